"""Access rules, SCRAM credentials and features, of a broker that has no authorizer and was given none."""

from __future__ import annotations

from typing import Any

from compat_tests.differential.conversation import Conversation, script

FILTER: dict[str, Any] = {
    "resource_type_filter": 2,
    "resource_name_filter": "t",
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
RULE: dict[str, Any] = {
    "resource_type": 2,
    "resource_name": "t",
    "principal": "User:a",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}


def odd(fields: dict[str, Any], *names: str) -> dict[str, dict[str, Any]]:
    """With values that no enumeration has, one by one."""
    return {f"{name} {code}": {**fields, name: code} for name in names for code in (0, 99, -1)}


@script
def acls(talk: Conversation) -> None:
    filters = {
        "plain": FILTER,
        **odd(FILTER, "resource_type_filter", "pattern_type_filter", "operation", "permission_type"),
    }
    rules = {
        "plain": RULE,
        **odd(RULE, "resource_type", "resource_pattern_type", "operation", "permission_type"),
    }
    for version in talk.versions("DescribeAcls"):
        for label, one in filters.items():
            talk.ask("DescribeAcls", version, label, **one)
            talk.ask("DeleteAcls", version, label, filters=[one])
        for label, one in rules.items():
            talk.ask("CreateAcls", version, label, creations=[one])
        talk.ask("CreateAcls", version, "none", creations=[])
        talk.ask("CreateAcls", version, "two", creations=[RULE, RULE])
        talk.ask("DeleteAcls", version, "none", filters=[])
        talk.ask("DeleteAcls", version, "two", filters=[FILTER, FILTER])


@script
def scram_credentials(talk: Conversation) -> None:
    for version in talk.versions("DescribeUserScramCredentials"):
        for label, users in {
            "of all": None,
            "of nobody": [],
            "of one": [{"name": "u"}],
            "of two": [{"name": "u"}, {"name": "v"}],
            "of one twice": [{"name": "u"}, {"name": "v"}, {"name": "u"}],
            "of no name": [{"name": ""}],
        }.items():
            talk.ask("DescribeUserScramCredentials", version, label, users=users)


@script
def update_features(talk: Conversation) -> None:
    """Nothing that would change a level."""
    unknown = {"feature": "nobody.knows", "max_version_level": 1}
    present = {"feature": "transaction.version", "max_version_level": 2}
    for version in talk.versions("UpdateFeatures"):
        for label, updates in {
            "nothing": [],
            "an unknown one": [unknown],
            "an unknown level": [{**present, "max_version_level": 9}],
            "a negative level": [{**present, "max_version_level": -1}],
            "the present level": [present],
            "the present level and an unknown one": [present, unknown],
        }.items():
            talk.ask("UpdateFeatures", version, label, feature_updates=updates)
