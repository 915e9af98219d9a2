"""What a broker without an authorizer, SCRAM credentials and levels to change answers, as Kafka without them.

Measured on Kafka 3.9.2 and 4.3.1; compat_tests/differential/scripts_security.py compares with 4.3.1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.kbroker.harness import BrokerProcess, RawClient
from wire.api import ApiKey
from wire.api.create_acls import AclCreation, CreateAclsRequest
from wire.api.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from wire.api.describe_acls import DescribeAclsRequest
from wire.api.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from wire.api.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from wire.errors import ErrorCode

Connect = Callable[[BrokerProcess], RawClient]

FILTER: dict[str, Any] = {
    "resource_type_filter": 2,
    "resource_name_filter": None,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
RULE = AclCreation(
    resource_type=2, resource_name="t", principal="User:a", host="*", operation=3, permission_type=3
)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_access_rules_are_disabled(shared_broker: BrokerProcess, connect: Connect, version: int) -> None:
    client = connect(shared_broker)
    described = client.ask(DescribeAclsRequest(**FILTER), ApiKey.DESCRIBE_ACLS, version)
    assert (described.error_code, described.resources) == (ErrorCode.SECURITY_DISABLED, [])
    created = client.ask(CreateAclsRequest(creations=[RULE, RULE]), ApiKey.CREATE_ACLS, version)
    assert [one.error_code for one in created.results] == [ErrorCode.SECURITY_DISABLED] * 2
    filters = [DeleteAclsFilter(**FILTER)] * 2
    deleted = client.ask(DeleteAclsRequest(filters=filters), ApiKey.DELETE_ACLS, version)
    answers = [(one.error_code, one.matching_acls) for one in deleted.filter_results]
    assert answers == [(ErrorCode.SECURITY_DISABLED, [])] * 2


@pytest.mark.parametrize(
    ("key", "request_"),
    [
        (ApiKey.DESCRIBE_ACLS, DescribeAclsRequest(**{**FILTER, "operation": 0})),
        (ApiKey.DELETE_ACLS, DeleteAclsRequest(filters=[DeleteAclsFilter(**{**FILTER, "operation": 0})])),
        (
            ApiKey.CREATE_ACLS,
            CreateAclsRequest(
                creations=[
                    AclCreation(
                        resource_type=2,
                        resource_name="t",
                        principal="User:a",
                        host="*",
                        operation=0,
                        permission_type=3,
                    )
                ]
            ),
        ),
    ],
)
def test_a_rule_with_an_unknown_element_ends_the_connection(
    shared_broker: BrokerProcess, connect: Connect, key: ApiKey, request_: Any
) -> None:
    client = connect(shared_broker)
    client.send(client.request(request_, key, 2))
    assert client.receive() == b""


def test_nobody_has_scram_credentials(shared_broker: BrokerProcess, connect: Connect) -> None:
    client = connect(shared_broker)

    def ask(users: list[str] | None) -> list[tuple[str, int]]:
        names = None if users is None else [UserName(name=name) for name in users]
        request = DescribeUserScramCredentialsRequest(users=names)
        reply = client.ask(request, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0)
        assert reply.error_code == 0
        return [(one.user, one.error_code) for one in reply.results]

    assert ask(None) == ask([]) == []
    not_found, twice = int(ErrorCode.RESOURCE_NOT_FOUND), int(ErrorCode.DUPLICATE_RESOURCE)
    assert ask(["a", "b", "a", ""]) == [("a", twice), ("b", not_found), ("", not_found)]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_levels_of_features_are_not_changed_by_requests(
    shared_broker: BrokerProcess, connect: Connect, version: int
) -> None:
    client = connect(shared_broker)

    def ask(*levels: tuple[str, int]) -> tuple[int, list[int]]:
        updates = [FeatureUpdateKey(feature=name, max_version_level=level) for name, level in levels]
        request = UpdateFeaturesRequest(feature_updates=updates)
        reply = client.ask(request, ApiKey.UPDATE_FEATURES, version)
        return reply.error_code, [one.error_code for one in reply.results]

    failed: tuple[int, list[int]] = int(ErrorCode.INVALID_UPDATE_VERSION), []
    assert ask() == (0, [])
    assert ask(("transaction.version", 2)) == (0, [0] if version < 2 else [])
    for level in (("transaction.version", 9), ("transaction.version", 1), ("metadata.version", 1)):
        assert ask(level) == failed
        assert ask(("transaction.version", 2), level) == failed
