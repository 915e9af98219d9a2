"""The Kafka protocol, sans IO: bytes in, typed messages out, and back.

Nothing here opens a socket, reads a clock or starts a thread. Errors are `WireError` (these bytes are not
the message they claim to be) and `KafkaError` (a request that Kafka answers with an error code).
"""
