"""Where kbroker answers otherwise than Apache Kafka 4.3.1 on purpose, and why. There is no other list.

Each entry names a script, a label, a path in the reply, what Kafka has there, what we have, and the reason.
It fails its script's test once it is no longer true; only those for all scripts at once do not.
"""

from __future__ import annotations

from collections.abc import Iterator

from compat_tests.differential.conversation import ANYTHING, COUNT, Difference

TEXT, NO_TEXT = "<text>", "<no text>"
NO_ID = bytes(16)

ELR = "Kafka 4.1 and newer stores it for all brokers when a cluster is made with eligible leader replicas"
NEVER_UNKNOWN = "an unknown error helps nobody, and has made clients write twice"
ONE_KIND = "two kinds of topics would share their metrics' names, within one request as well"
KRAFT_FEATURES = "most features belong to KRaft and to groups that are not served; epochs are as they come"
NO_TOPIC = "the topic of this id is gone, whatever else has its name"
DELETED = "a record that was deleted is not the one with the largest timestamp"
WHOLE = "no batch is cut off at the end, which leaves room for another partition"


def same(script: str, *rows: tuple[str, str, object, object], reason: str) -> Iterator[Difference]:
    """Several places of one script, for one reason."""
    for label, path, theirs, ours in rows:
        yield Difference(script, label, path, theirs, ours, reason)


DIFFERENCES: list[Difference] = [
    Difference("*", "*", "*error_message", NO_TEXT, TEXT, "more is said than by Kafka"),
    Difference("*", "*", "*.min.insync.replicas.config_source", 3, 5, ELR),
    Difference("*", "*", "*.min.insync.replicas.synonyms.*", ANYTHING, ANYTHING, ELR),
    # Topics
    Difference("metadata_by_id", "* neither*", "*error_code", -1, 42, NEVER_UNKNOWN),
    *same(
        "describe_topic_partitions",
        ("* invalid names", "*.error_code", -1, 17),
        ("* invalid names", "*.topic_authorized_operations", ANYTHING, ANYTHING),
        reason=NEVER_UNKNOWN,
    ),
    Difference(
        "create_topics",
        "*, only validated",
        "*.topic_id",
        "<new id>",
        NO_ID,
        "what was not created has no id",
    ),
    *same(
        "changes_without_time",
        ("known *", "is_known", False, True),
        ("* deleted in *", "responses.unknown.error_code", 7, 3),
        reason="as in Kafka 3, it is done, and answered at once that it is not there; Kafka 4 does nothing",
    ),
    *same(
        "names_of_new_topics",
        ("collisions", "topics.y_b.error_code", 0, 17),
        ("collisions", "topics.y_b.topic_id", "<new id>", NO_ID),
        ("collisions", "topics.y_b.num_partitions", 1, -1),
        ("collisions", "topics.y_b.replication_factor", 1, -1),
        ("collisions", f"topics.y_b.configs.{COUNT}", 33, 0),
        reason=ONE_KIND,
    ),
    Difference(
        "delete_topics",
        "* v6 one by name and id",
        "responses.strange.topic_id",
        "<id of strange>",
        NO_ID,
        "a topic that is named both ways is refused under its name",
    ),
    # Produce
    Difference("a_null_for_records", "*", "event", "silence", "a reply", "every request is answered (6)"),
    Difference("several_partitions_at_once", "* twice", f"*{COUNT}", 1, 2, "both batches are kept"),
    Difference(
        "transactional_records_without_an_id",
        "* transactional control of a producer with an id",
        "*.error_code",
        19,
        87,
        "what cannot be stored is refused before the coordinator is asked",
    ),
    Difference(
        "transactional_records_without_an_id",
        "* transactional control of a producer with an id",
        "*.log_start_offset",
        -1,
        0,
        "it is the log that refuses them",
    ),
    *same(
        "produce_what_is_not_right",
        ("* log append time", "*.error_code", 0, 32),
        ("* log append time", "*.base_offset", ANYTHING, -1),
        reason="the append time is the broker's to set; Kafka stores the batch without the flag",
    ),
    *same(
        "produce_what_is_not_right",
        ("* codec *", "*.error_code", -1, 87),
        ("* not gzip at all", "*.error_code", -1, 87),
        reason=NEVER_UNKNOWN,
    ),
    # Records inside batches
    *same(
        "records_that_are_not_right",
        ("Produce * length-*", "*.error_code", 0, 87),
        ("Produce * length-*", "*.base_offset", 0, -1),
        ("Fetch * length-*", "*", ANYTHING, ANYTHING),
        ("ListOffsets * length-* at *", "*", ANYTHING, ANYTHING),
        reason="Kafka passes over lengths in compressed batches, and cannot read such records afterwards",
    ),
    *same(
        "records_that_are_not_right",
        ("Produce * bytes-after", "*.error_code", ANYTHING, 87),
        ("Produce * bytes-after", "*.base_offset", 0, -1),
        ("Fetch * bytes-after", "*", ANYTHING, ANYTHING),
        ("ListOffsets * bytes-after at *", "*", ANYTHING, ANYTHING),
        reason="Kafka lets bytes after compressed data pass in gzip and lz4, where it does not read that far",
    ),
    *same(
        "records_that_are_not_right",
        *(
            row
            for label in ("offset-wrong", "offset-negative", "offset-twice", "many-small-one-wrong")
            for row in (
                (f"Produce * {label}", "*.error_code", ANYTHING, 87),
                (f"Produce * {label}", f"*.record_errors.{COUNT}", 0, 1),
                (f"Produce * {label}", "*.base_offset", 0, -1),
                (f"Fetch * {label}", "*", ANYTHING, ANYTHING),
                (f"ListOffsets * {label} at *", "*", ANYTHING, ANYTHING),
            )
        ),
        reason="Kafka stores offsets that do not count up, or answers UNKNOWN_SERVER_ERROR where compressed",
    ),
    *same(
        "records_that_are_not_right",
        ("Produce * length-without-end", "*.error_code", -1, 87),
        *(
            (f"Produce * {label}", "*.error_code", -1, 87)
            for label in ("not-compressed", "junk", "cut-short")
        ),
        reason=NEVER_UNKNOWN,
    ),
    Difference(
        "records_that_are_not_right",
        "ListOffsets * times-before-1970 at -3",
        "*",
        ANYTHING,
        ANYTHING,
        "the record with the largest timestamp, also where all are before 1970; Kafka finds none",
    ),
    Difference("records_of_particular_topics", "* junk*", "*.error_code", -1, 87, NEVER_UNKNOWN),
    Difference(
        "records_of_particular_topics",
        "* many-small-one-null*",
        f"*.record_errors.{COUNT}",
        300,
        100,
        "the first ones tell enough",
    ),
    *same(
        "produce_what_is_not_right",
        ("* bytes after", "*.error_code", 2, 87),
        ("* magic 3", "*.error_code", 2, 87),
        reason="sent again, it would be no better: 87 is not retried, 2 is",
    ),
    # Fetch
    Difference(
        "fetch_in_every_version", "* epoch -2", "*", ANYTHING, ANYTHING, "only -1 means that it is not known"
    ),
    Difference(
        "fetch_in_every_version",
        "* isolation 5",
        "*",
        ANYTHING,
        ANYTHING,
        f"read as uncommitted; Kafka: UNKNOWN_SERVER_ERROR, and {NEVER_UNKNOWN}",
    ),
    *same(
        "fetches_that_are_odd",
        ("* a follower that is none*", "*.current_leader*", ANYTHING, ANYTHING),
        reason="who leads is not told beside an error, but by Metadata",
    ),
    *same(
        "committed_data_below_the_log_start",
        ("Fetch * after 1 from *", "last_stable_offset", 0, 1),
        ("ListOffsets * after 1", "*.offset", 0, 1),
        reason="no offset below the log start can be read; Kafka tells where the first batch begins",
    ),
    Difference("limits_of_a_fetch", "* 3300 in all, 2500 each", "batches", "[2, 0, 0]", "[2, 1, 0]", WHOLE),
    Difference(
        "fetch_sessions",
        "* a session for nothing",
        "session_id",
        "<session>",
        0,
        "a session without partitions is of no use; there is a bound to their number",
    ),
    *same(
        "a_topic_that_goes_while_it_is_read",
        ("v17 while it is away", "*.error_code", 3, 100),
        ("v17 after it came again", "*.error_code", 103, 100),
        ("v17 after it came again", "*.aborted_transactions*", ANYTHING, ANYTHING),
        reason=NO_TOPIC,
    ),
    # Transactions
    *same(
        "markers_by_hand",
        ("Fetch * and ended, *", "*.high_watermark", 4, 3),
        ("Fetch * and ended, *", "*.last_stable_offset", 4, 3),
        ("ListOffsets * and ended, *", "*.offset", 4, 3),
        reason="a marker that a partition has already is not written again",
    ),
    # Offsets
    Difference(
        "offsets_after_deletion",
        "* at -3 after *",
        "*",
        ANYTHING,
        ANYTHING,
        DELETED,
    ),
    Difference("offsets_where_no_record_has_a_time", "* deleted", "*", ANYTHING, ANYTHING, DELETED),
    # Groups
    Difference("*", "FindCoordinator*", "error_message", TEXT, NO_TEXT, "Kafka says NONE"),
    # Configurations
    Difference("incremental_changes", "* unknown operation *", "*.error_code", -1, 42, NEVER_UNKNOWN),
    *same(
        "list_config_resources",
        ("* []", "config_resources.*", ANYTHING, ANYTHING),
        ("* v1 ?8?", f"config_resources.{COUNT}", 1, 0),
        reason="the loggers of a broker are not for clients to set",
    ),
    # The broker itself
    Difference("api_versions", "*", "api_keys.18.max_version", 4, 5, "v5 is of Kafka 4.4"),
    *same(
        "elect_leaders",
        ("* everything, *", f"replica_election_results.{COUNT}", 1, 0),
        ("* kind 9", f"replica_election_results.{COUNT}", 1, 0),
        ("* nothing, kind 9", "error_code", 0, 42),
        reason="what was not asked for by name and needs no election is not told; there is no kind 9",
    ),
    *same(
        "api_versions",
        ("* v3 *", f"supported_features.{COUNT}", 1, 0),
        ("* v4 *", f"supported_features.{COUNT}", 7, 1),
        ("*", f"finalized_features.{COUNT}", 6, 1),
        ("*", "finalized_features_epoch", ANYTHING, ANYTHING),
        reason=KRAFT_FEATURES,
    ),
    Difference(
        "frames_that_are_not_right",
        "not UTF-8",
        "event",
        ANYTHING,
        "hung up",
        "Kafka goes on with another name than was sent",
    ),
]
