"""A small synchronous Kafka client: what the command line and `kbroker.testing` talk to clusters with.

It speaks plain Kafka and asks each broker for its versions, so it works with any Kafka from 3.0 on. It is
made for tools, not for applications: calls block, one thread uses a `Cluster` at a time, and what goes wrong
is a `ClientError` with a sentence for people.

`errors` and `record` import nothing of the protocol: whoever only handles results loads no more than those.
"""
