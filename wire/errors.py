"""Everything that can go wrong in the protocol, in three shapes.

`ErrorCode` is Kafka's table of error codes: what goes on the wire, whether a client may simply try again, and
a sentence for people. `KafkaError` unwinds one request and becomes an error reply. `WireError` says that
bytes are not what they claim to be; nobody can be answered in terms of a message that could not be read, so
it closes the connection (or names the corrupt file).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Self


class ErrorCode(IntEnum):
    """Kafka's error codes. `int(code)` is the wire number."""

    retriable: bool
    message: str

    def __new__(cls, code: int, retriable: bool = False, message: str = "") -> Self:
        # Every member has all three. The defaults let type checkers accept the lookup `ErrorCode(3)`.
        self = int.__new__(cls, code)
        self._value_ = code
        self.retriable = retriable
        self.message = message
        return self

    UNKNOWN_SERVER_ERROR = (
        -1,
        False,
        "The broker failed in a way it cannot explain; its log has the traceback.",
    )
    NONE = 0, False, "Success."
    OFFSET_OUT_OF_RANGE = 1, False, "The offset lies outside the range of offsets this partition holds."
    CORRUPT_MESSAGE = 2, True, "The record data fails its checksum or cannot be decoded."
    UNKNOWN_TOPIC_OR_PARTITION = 3, True, "This broker does not host the topic or partition."
    INVALID_FETCH_SIZE = 4, False, "The fetch size is not valid."
    LEADER_NOT_AVAILABLE = 5, True, "The partition has no leader at the moment."
    NOT_LEADER_OR_FOLLOWER = 6, True, "This broker is not the leader (or not a replica) of the partition."
    REQUEST_TIMED_OUT = 7, True, "The request was not completed in the time it allowed."
    BROKER_NOT_AVAILABLE = 8, False, "The broker is not available."
    REPLICA_NOT_AVAILABLE = 9, True, "The replica is not available for this partition."
    MESSAGE_TOO_LARGE = 10, False, "The record batch is larger than the topic accepts."
    STALE_CONTROLLER_EPOCH = 11, False, "The request comes from a controller that has been replaced."
    OFFSET_METADATA_TOO_LARGE = 12, False, "The metadata of the committed offset is too long."
    NETWORK_EXCEPTION = 13, True, "The broker hung up before it answered."
    COORDINATOR_LOAD_IN_PROGRESS = 14, True, "The coordinator is still loading its state."
    COORDINATOR_NOT_AVAILABLE = 15, True, "No coordinator is available."
    NOT_COORDINATOR = 16, True, "This broker does not coordinate this group or transaction."
    INVALID_TOPIC_EXCEPTION = 17, False, "The topic name is not legal, or the topic is reserved."
    RECORD_LIST_TOO_LARGE = 18, False, "The request carries more record data than a segment may hold."
    NOT_ENOUGH_REPLICAS = 19, True, "Fewer replicas are in sync than the topic requires; nothing was written."
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (
        20,
        True,
        "The records were written, but fewer replicas are in sync than the topic requires.",
    )
    INVALID_REQUIRED_ACKS = 21, False, "acks must be -1, 0 or 1."
    ILLEGAL_GENERATION = 22, False, "The generation is not the group's current one."
    INCONSISTENT_GROUP_PROTOCOL = 23, False, "The member's protocols do not fit those of the group."
    INVALID_GROUP_ID = 24, False, "The group id is not valid."
    UNKNOWN_MEMBER_ID = 25, False, "The coordinator does not know this member."
    INVALID_SESSION_TIMEOUT = 26, False, "The session timeout lies outside the range the broker allows."
    REBALANCE_IN_PROGRESS = 27, False, "The group is rebalancing; the member has to join again."
    INVALID_COMMIT_OFFSET_SIZE = 28, False, "The committed offset data is too large."
    TOPIC_AUTHORIZATION_FAILED = 29, False, "No permission for this topic."
    GROUP_AUTHORIZATION_FAILED = 30, False, "No permission for this group."
    CLUSTER_AUTHORIZATION_FAILED = 31, False, "No permission for this operation on the cluster."
    INVALID_TIMESTAMP = 32, False, "A record's timestamp lies outside the range the topic accepts."
    UNSUPPORTED_SASL_MECHANISM = 33, False, "The broker does not offer this SASL mechanism."
    ILLEGAL_SASL_STATE = 34, False, "The request does not fit the state of the SASL exchange."
    UNSUPPORTED_VERSION = 35, False, "The broker does not support this version of the request."
    TOPIC_ALREADY_EXISTS = 36, False, "A topic of this name exists already."
    INVALID_PARTITIONS = 37, False, "The number of partitions is not valid."
    INVALID_REPLICATION_FACTOR = (
        38,
        False,
        "The replication factor is not valid for the brokers that are there.",
    )
    INVALID_REPLICA_ASSIGNMENT = 39, False, "The replica assignment is not valid."
    INVALID_CONFIG = 40, False, "A configuration key or value is not valid."
    NOT_CONTROLLER = 41, True, "This broker is not the controller."
    INVALID_REQUEST = 42, False, "The request is not consistent or not allowed as it stands."
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, False, "The stored message format does not support the request."
    POLICY_VIOLATION = 44, False, "A policy of the cluster forbids the request."
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, False, "The producer's sequence number is not the next one expected."
    DUPLICATE_SEQUENCE_NUMBER = 46, False, "The producer's sequence number was already written."
    INVALID_PRODUCER_EPOCH = 47, False, "A newer instance of this producer has taken its place."
    INVALID_TXN_STATE = 48, False, "The transaction is not in a state that allows this."
    INVALID_PRODUCER_ID_MAPPING = 49, False, "The producer id does not belong to this transactional id."
    INVALID_TRANSACTION_TIMEOUT = 50, False, "The transaction timeout is larger than the broker allows."
    CONCURRENT_TRANSACTIONS = 51, True, "Another operation on this transaction is still under way."
    TRANSACTION_COORDINATOR_FENCED = (
        52,
        False,
        "This transaction coordinator has been replaced by a newer one.",
    )
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, False, "No permission for this transactional id."
    SECURITY_DISABLED = 54, False, "Security features are switched off on this broker."
    OPERATION_NOT_ATTEMPTED = 55, False, "The operation was not attempted, because an earlier one failed."
    KAFKA_STORAGE_ERROR = 56, True, "The disk that holds the partition has failed."
    LOG_DIR_NOT_FOUND = 57, False, "No such log directory is configured on this broker."
    SASL_AUTHENTICATION_FAILED = 58, False, "Authentication failed."
    UNKNOWN_PRODUCER_ID = 59, False, "The broker holds no state of this producer."
    REASSIGNMENT_IN_PROGRESS = 60, False, "A reassignment of the partition is already under way."
    DELEGATION_TOKEN_AUTH_DISABLED = 61, False, "Delegation tokens are switched off."
    DELEGATION_TOKEN_NOT_FOUND = 62, False, "No such delegation token."
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, False, "The delegation token belongs to somebody else."
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = (
        64,
        False,
        "Delegation tokens cannot be requested over this kind of connection.",
    )
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, False, "No permission for this delegation token."
    DELEGATION_TOKEN_EXPIRED = 66, False, "The delegation token has expired."
    INVALID_PRINCIPAL_TYPE = 67, False, "The principal type is not supported."
    NON_EMPTY_GROUP = 68, False, "The group still has members."
    GROUP_ID_NOT_FOUND = 69, False, "No such group."
    FETCH_SESSION_ID_NOT_FOUND = 70, True, "No such fetch session."
    INVALID_FETCH_SESSION_EPOCH = 71, True, "The epoch of the fetch session is not the next one expected."
    LISTENER_NOT_FOUND = 72, True, "The leader has no listener that matches the one the request came in by."
    TOPIC_DELETION_DISABLED = 73, False, "Deleting topics is switched off."
    FENCED_LEADER_EPOCH = 74, True, "The request carries an older leader epoch than the broker's."
    UNKNOWN_LEADER_EPOCH = 75, True, "The request carries a newer leader epoch than the broker's."
    UNSUPPORTED_COMPRESSION_TYPE = (
        76,
        False,
        "The version of the request does not support the compression type of the data.",
    )
    STALE_BROKER_EPOCH = 77, False, "The broker epoch is not the current one."
    OFFSET_NOT_AVAILABLE = (
        78,
        True,
        "The leader cannot tell the offset yet, because it was only just elected.",
    )
    MEMBER_ID_REQUIRED = 79, False, "The member has to join again with the member id in this reply."
    PREFERRED_LEADER_NOT_AVAILABLE = 80, True, "The preferred leader is not available."
    GROUP_MAX_SIZE_REACHED = 81, False, "The group is full."
    FENCED_INSTANCE_ID = 82, False, "Another member has taken this static instance id."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, True, "No replica is eligible to lead the partition."
    ELECTION_NOT_NEEDED = 84, True, "The partition already has the leader asked for."
    NO_REASSIGNMENT_IN_PROGRESS = 85, False, "No reassignment of this partition is under way."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, False, "A member of the group is subscribed to the topic."
    INVALID_RECORD = 87, False, "The record data breaks a rule of the broker or of the topic."
    UNSTABLE_OFFSET_COMMIT = 88, True, "Offsets of an open transaction are pending for the partition."
    THROTTLING_QUOTA_EXCEEDED = 89, True, "A quota is used up."
    PRODUCER_FENCED = 90, False, "A newer producer with the same transactional id has fenced this one."
    RESOURCE_NOT_FOUND = 91, False, "No such resource."
    DUPLICATE_RESOURCE = 92, False, "The request names a resource twice."
    UNACCEPTABLE_CREDENTIAL = 93, False, "The credential does not meet the requirements."
    INCONSISTENT_VOTER_SET = 94, False, "The voters named are not those of the quorum."
    INVALID_UPDATE_VERSION = 95, False, "The version asked for is not valid here."
    FEATURE_UPDATE_FAILED = 96, False, "The feature levels could not be changed."
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, False, "The forwarded principal could not be read."
    SNAPSHOT_NOT_FOUND = 98, False, "No such snapshot."
    POSITION_OUT_OF_RANGE = 99, False, "The position lies outside the snapshot."
    UNKNOWN_TOPIC_ID = 100, True, "No topic has this id."
    DUPLICATE_BROKER_REGISTRATION = 101, False, "A broker with this id is registered and alive."
    BROKER_ID_NOT_REGISTERED = 102, False, "No broker with this id is registered."
    INCONSISTENT_TOPIC_ID = 103, True, "The topic id is not the one the log was made with."
    INCONSISTENT_CLUSTER_ID = 104, False, "The cluster id is not that of this cluster."
    TRANSACTIONAL_ID_NOT_FOUND = 105, False, "No such transactional id."
    FETCH_SESSION_TOPIC_ID_ERROR = 106, True, "Topic ids and names are mixed within one fetch session."
    INELIGIBLE_REPLICA = 107, False, "The replica is not eligible for the in-sync set."
    NEW_LEADER_ELECTED = 108, False, "The change was applied and brought a new leader."
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, False, "The offset has moved to tiered storage."
    FENCED_MEMBER_EPOCH = (
        110,
        False,
        "The member's epoch is not the one the coordinator knows: it has been fenced.",
    )
    UNRELEASED_INSTANCE_ID = 111, False, "Another member that is still active holds this instance id."
    UNSUPPORTED_ASSIGNOR = 112, False, "The assignor is not supported by the coordinator."
    STALE_MEMBER_EPOCH = 113, False, "The member's epoch is old; heartbeat again and retry."
    MISMATCHED_ENDPOINT_TYPE = 114, False, "The request went to the wrong kind of endpoint."
    UNSUPPORTED_ENDPOINT_TYPE = 115, False, "The kind of endpoint is not known here."
    UNKNOWN_CONTROLLER_ID = 116, False, "No controller has this id."
    UNKNOWN_SUBSCRIPTION_ID = 117, False, "The client's telemetry subscription is not known."
    TELEMETRY_TOO_LARGE = 118, False, "The telemetry data is larger than allowed."
    INVALID_REGISTRATION = 119, False, "The broker registration is not valid."
    TRANSACTION_ABORTABLE = 120, False, "The transaction cannot go on; abort it and try again."
    INVALID_RECORD_STATE = 121, False, "The record is not in a state that allows this acknowledgement."
    SHARE_SESSION_NOT_FOUND = 122, True, "No such share session."
    INVALID_SHARE_SESSION_EPOCH = 123, True, "The epoch of the share session is not the next one expected."
    FENCED_STATE_EPOCH = 124, False, "The state epoch is old; a newer coordinator holds this share partition."
    INVALID_VOTER_KEY = 125, False, "The voter's key does not match its directory id."
    DUPLICATE_VOTER = 126, False, "The voter is already in the set of voters."
    VOTER_NOT_FOUND = 127, False, "No such voter."
    INVALID_REGULAR_EXPRESSION = 128, False, "The regular expression is not valid."
    REBOOTSTRAP_REQUIRED = 129, False, "The client has to bootstrap again."
    STREAMS_INVALID_TOPOLOGY = 130, False, "The topology of the streams group is not valid."
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, False, "The topology epoch of the streams group is not valid."
    STREAMS_TOPOLOGY_FENCED = 132, False, "The topology epoch is older than the group's."
    SHARE_SESSION_LIMIT_REACHED = 133, True, "There are as many share sessions as the broker allows."
    GROUP_DELETION_FAILED = 134, False, "The group could not be deleted."
    STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED = (
        135,
        False,
        "The description of the streams topology could not be updated.",
    )
    CONTROLLER_ID_NOT_REGISTERED = 136, False, "No controller with this id is registered."


class KafkaError(Exception):
    """Unwinds one request; dispatch turns it into that API's error reply.

    A message may quote what a client has sent, so it is cut: strings of the protocol have an end as well.
    """

    MOST_CHARACTERS = 1000

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        text = message or code.message
        super().__init__(text if len(text) <= self.MOST_CHARACTERS else f"{text[: self.MOST_CHARACTERS]}...")
        self.code = code


class WireError(Exception):
    """These bytes are not the message they claim to be."""


class TooManyElements(WireError):
    """A message may be what it claims to be, and is more than anybody wants to decode."""
