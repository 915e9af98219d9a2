"""AlterUserScramCredentials (key 51): set and delete SCRAM credentials."""

from __future__ import annotations

from wire.schema import byte_string, int8, int16, int32, message, string, struct


@message(key=51, versions="0", flexible="0+")
class AlterUserScramCredentialsRequest:
    deletions: list[ScramCredentialDeletion]
    upsertions: list[ScramCredentialUpsertion]


@struct
class ScramCredentialDeletion:
    name: string
    mechanism: int8


@struct
class ScramCredentialUpsertion:
    name: string
    mechanism: int8
    iterations: int32
    salt: byte_string
    salted_password: byte_string


@message(key=51, versions="0", flexible="0+")
class AlterUserScramCredentialsResponse:
    throttle_time_ms: int32
    results: list[AlterUserScramCredentialsResult]


@struct
class AlterUserScramCredentialsResult:
    user: string
    error_code: int16
    error_message: string | None
