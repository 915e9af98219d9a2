"""What is configured now: the values of this broker, of topics and groups, as they are altered while it runs.

The static part comes from the command line and `server.properties`; what is altered over the wire is stored
below `/config` and heard of here (`heard`), at first all of it, then each change. This is also what the
controller has to know about configuration: the controller stores texts, the tables of keys give them meaning
(`controller.rules`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from controller.quotas import Named, named_by, quotas_in
from controller.rules import Stored
from controller.state import Entity, EntityType
from controller.znodes import DEFAULT_ENTITY, desanitize
from kbroker.config import ConfigError
from kbroker.configuration.broker_keys import BrokerConfig
from kbroker.configuration.group_keys import GroupConfig
from kbroker.configuration.layers import NOTHING, Configuration, Texts
from kbroker.configuration.resources import (
    AllBrokersResource,
    BrokerResource,
    GroupResource,
    Resource,
    TopicResource,
)
from kbroker.configuration.topic_keys import TopicConfig
from kbroker.coordinators import classic_group
from kbroker.coordinators.transactions import TransactionConfig
from kbroker.produced_batches import ProduceRules
from storage.log_manager import Intervals
from wire.api.create_topics import CreatableTopicConfigs
from wire.compression import Codec
from wire.errors import ErrorCode, KafkaError

CODECS = {
    "producer": None,
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


class Settings:
    """The configuration in force. `changed` is called with the topics that something changed for."""

    def __init__(self, configuration: Configuration, broker_id: int) -> None:
        self.configuration = configuration
        self.changed: Callable[[Iterable[str] | None], object] = lambda topics: None
        """Told of topics whose configuration is another now; None stands for all of them."""
        self._broker_id = str(broker_id)
        self._topics: dict[str, Texts] = {}
        self._groups: dict[str, Texts] = {}
        self._of_clients: dict[str, Texts] = {}
        """By path: what is stored for users, clients and addresses."""

    # -- what is stored

    def heard(self, path: str, values: Mapping[str, str]) -> None:
        """All that is set at a path below `/config`, such as `topics/t`. It is read again and again."""
        kind, _, name = path.partition("/")
        if kind == "topics":
            if values != self.stored_of_topic(name):
                _keep(self._topics, name, values)
                self.changed([name])
        elif kind == "groups":
            _keep(self._groups, desanitize(name), values)
        elif kind in ("users", "clients", "ips"):
            _keep(self._of_clients, path, values)
        elif kind == "brokers" and name in (self._broker_id, DEFAULT_ENTITY):
            is_default = name == DEFAULT_ENTITY
            self.configuration = self.configuration.with_dynamic(
                default=values if is_default else None, broker=None if is_default else values
            ).without_contradictions()
            self.changed(None)

    def stored_of_topic(self, topic: str) -> Texts:
        return self._topics.get(topic, NOTHING)

    def topic(self, topic: str) -> TopicConfig:
        return self.configuration.topic(self.stored_of_topic(topic))

    def stored_of_group(self, group_id: str) -> Texts:
        return self._groups.get(group_id, NOTHING)

    def group(self, group_id: str) -> GroupConfig:
        return self.configuration.group(self.stored_of_group(group_id))

    def configured_groups(self) -> list[str]:
        """Those for which something is stored."""
        return list(self._groups)

    def quotas(self) -> Iterator[tuple[Named, dict[str, float]]]:
        """Whose, and which."""
        for path, values in self._of_clients.items():
            if (named := named_by(path)) is not None and (found := quotas_in(values)):
                yield named, found

    # -- what the controller asks

    @property
    def num_partitions(self) -> int:
        return self.configuration.broker.num_partitions

    @property
    def default_replication_factor(self) -> int:
        return self.configuration.broker.default_replication_factor

    @property
    def delete_topic_enable(self) -> bool:
        return self.configuration.broker.delete_topic_enable

    @property
    def replica_recovery_delay_ms(self) -> int:
        return self.configuration.broker.kbroker_replica_recovery_delay_ms

    @property
    def auto_balance(self) -> bool:
        return self.configuration.broker.kbroker_auto_balance

    @property
    def balance_max_moves(self) -> int:
        return self.configuration.broker.kbroker_balance_max_moves

    def unclean_leader_election(self, topic: Stored) -> bool:
        return self.configuration.topic(topic).unclean_leader_election_enable

    def create_topic(self, settings: Iterable[tuple[str, str | None]]) -> dict[str, str]:
        return TopicResource(self.configuration).create(settings)

    def describe_topic(self, topic: Stored) -> list[CreatableTopicConfigs]:
        return [
            CreatableTopicConfigs(
                name=entry.name,
                value=topic.get(entry.name, entry.value),
                read_only=entry.read_only,
                config_source=entry.source,
                is_sensitive=entry.is_sensitive,
            )
            for entry in TopicResource(self.configuration, topic).describe()
        ]

    def alter(
        self, entity: Entity, stored: Stored, changes: Iterable[tuple[str, int, str | None]]
    ) -> dict[str, str]:
        return self._resource(entity, stored).alter(changes)

    def replace(
        self, entity: Entity, stored: Stored, settings: Iterable[tuple[str, str | None]]
    ) -> dict[str, str]:
        return self._resource(entity, stored).replace(settings)

    def _resource(self, entity: Entity, stored: Stored) -> Resource:
        kind, name = entity
        if kind is EntityType.TOPIC:
            return TopicResource(self.configuration, stored)
        if kind is EntityType.GROUP:
            return GroupResource(self.configuration, stored)
        try:
            if name == DEFAULT_ENTITY:
                return AllBrokersResource(self.configuration.with_dynamic(default=stored))
            return BrokerResource(self.configuration.with_dynamic(broker=stored))
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error


def _keep(by_name: dict[str, Texts], name: str, values: Texts) -> None:
    if values:
        by_name[name] = values
    else:
        by_name.pop(name, None)


def produce_rules(config: TopicConfig, max_batch_bytes: int, *, validate_records: bool) -> ProduceRules:
    """What of a topic's configuration concerns a produced batch."""
    codec = CODECS[config.compression_type]
    levels = {
        Codec.GZIP: config.compression_gzip_level,
        Codec.LZ4: config.compression_lz4_level,
        Codec.ZSTD: config.compression_zstd_level,
    }
    return ProduceRules(
        codec=codec,
        compression_level=None if codec is None else levels.get(codec),
        log_append_time=config.message_timestamp_type == "LogAppendTime",
        timestamp_before_max_ms=config.message_timestamp_before_max_ms,
        timestamp_after_max_ms=config.message_timestamp_after_max_ms,
        require_keys="compact" in config.cleanup_policy,
        validate_records=validate_records,
        max_message_bytes=config.max_message_bytes,
        max_batch_bytes=max_batch_bytes,
    )


def intervals(values: BrokerConfig) -> Intervals:
    """How often the logs are looked after."""
    return Intervals(
        retention_ms=values.log_retention_check_interval_ms,
        recovery_points_ms=values.log_flush_offset_checkpoint_interval_ms,
        log_start_offsets_ms=values.log_flush_start_offset_checkpoint_interval_ms,
        high_watermarks_ms=values.replica_high_watermark_checkpoint_interval_ms,
    )


def group_config(configuration: Configuration) -> classic_group.GroupConfig:
    values = configuration.broker
    return classic_group.GroupConfig(
        group_initial_rebalance_delay_ms=max(0, values.group_initial_rebalance_delay_ms),
        group_max_size=values.group_max_size,
        group_min_session_timeout_ms=values.group_min_session_timeout_ms,
        group_max_session_timeout_ms=values.group_max_session_timeout_ms,
        offset_metadata_max_bytes=values.offset_metadata_max_bytes,
        offsets_retention_ms=values.offsets_retention_minutes * 60_000,
        offsets_retention_check_interval_ms=values.offsets_retention_check_interval_ms,
    )


def transaction_config(configuration: Configuration) -> TransactionConfig:
    values = configuration.broker
    return TransactionConfig(
        values.transaction_max_timeout_ms,
        values.transactional_id_expiration_ms,
        values.transaction_abort_timed_out_transaction_cleanup_interval_ms,
        values.transaction_remove_expired_transaction_cleanup_interval_ms,
        values.kbroker_transaction_version,
    )
