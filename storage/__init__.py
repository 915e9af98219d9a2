"""The log on disk: Kafka's files, byte for byte. Synchronous; no clock, no chance, no sockets.

`files.py` is the only module that touches the operating system.
"""
