"""DescribeUserScramCredentials: nobody has SCRAM credentials, as in a Kafka that has been given none.

- All users (null or none named): an empty list.
- Users that are named: RESOURCE_NOT_FOUND for each; one that is named twice gets DUPLICATE_RESOURCE, once.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kbroker.context import Context, InSlices
from wire.api.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from wire.errors import ErrorCode

if TYPE_CHECKING:
    from kbroker.broker import Broker


def describe_user_scram_credentials(
    broker: Broker, context: Context, request: DescribeUserScramCredentialsRequest
) -> InSlices[DescribeUserScramCredentialsResponse]:
    named = Counter(user.name for user in request.users or ())
    results = []
    for name, count in named.items():
        results.append(answer(name, count))
        yield
    return DescribeUserScramCredentialsResponse(
        throttle_time_ms=0, error_code=ErrorCode.NONE, error_message="", results=results
    )


def answer(name: str, count: int) -> DescribeUserScramCredentialsResult:
    code = ErrorCode.RESOURCE_NOT_FOUND
    message = f"Attempt to describe a user credential that does not exist: {name}"
    if count > 1:
        code = ErrorCode.DUPLICATE_RESOURCE
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
    return DescribeUserScramCredentialsResult(
        user=name, error_code=code, error_message=message, credential_infos=[]
    )
