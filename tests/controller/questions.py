"""Questions to a controller, in few words."""

from __future__ import annotations

from controller import events
from tests.controller.rules import SET
from wire.api import incremental_alter_configs
from wire.api.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic


def grow(name: str, count: int) -> events.CreatePartitions:
    topic = CreatePartitionsTopic(name=name, count=count, assignments=None)
    return events.CreatePartitions(CreatePartitionsRequest(topics=[topic], timeout_ms=1, validate_only=False))


def set_config(name: str, key: str, value: str) -> events.IncrementalAlterConfigs:
    config = incremental_alter_configs.AlterableConfig(name=key, config_operation=SET, value=value)
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=2, resource_name=name, configs=[config]
    )
    return events.IncrementalAlterConfigs(
        incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    )
