"""DescribeUserScramCredentials (key 50): which SCRAM credentials users have."""

from __future__ import annotations

from wire.schema import int8, int16, int32, message, string, struct


@message(key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsRequest:
    users: list[UserName] | None


@struct
class UserName:
    name: string


@message(key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsResponse:
    throttle_time_ms: int32
    error_code: int16
    error_message: string | None
    results: list[DescribeUserScramCredentialsResult]


@struct
class DescribeUserScramCredentialsResult:
    user: string
    error_code: int16
    error_message: string | None
    credential_infos: list[CredentialInfo]


@struct
class CredentialInfo:
    mechanism: int8
    iterations: int32
