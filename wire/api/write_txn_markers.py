"""WriteTxnMarkers (key 27): write the outcome of transactions into their partitions.

Between brokers, and from tools that abort a hanging transaction. v2 has the transaction version.
"""

from __future__ import annotations

from wire.schema import boolean, int8, int16, int32, int64, message, since, string, struct


@message(key=27, versions="0-2", flexible="1+")
class WriteTxnMarkersRequest:
    markers: list[WritableTxnMarker]


@struct
class WritableTxnMarker:
    producer_id: int64
    producer_epoch: int16
    transaction_result: boolean
    topics: list[WritableTxnMarkerTopic]
    coordinator_epoch: int32
    transaction_version: int8 = since("2+", default=0)


@struct
class WritableTxnMarkerTopic:
    name: string
    partition_indexes: list[int32]


@message(key=27, versions="0-2", flexible="1+")
class WriteTxnMarkersResponse:
    markers: list[WritableTxnMarkerResult]


@struct
class WritableTxnMarkerResult:
    producer_id: int64
    topics: list[WritableTxnMarkerTopicResult]


@struct
class WritableTxnMarkerTopicResult:
    name: string
    partitions: list[WritableTxnMarkerPartitionResult]


@struct
class WritableTxnMarkerPartitionResult:
    partition_index: int32
    error_code: int16
