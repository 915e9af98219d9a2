"""SaslAuthenticate (key 36): exchange SASL tokens.

v1 has the lifetime of the session.
"""

from __future__ import annotations

from wire.schema import byte_string, int16, int64, message, since, string


@message(key=36, versions="0-2", flexible="2+")
class SaslAuthenticateRequest:
    auth_bytes: byte_string


@message(key=36, versions="0-2", flexible="2+")
class SaslAuthenticateResponse:
    error_code: int16
    error_message: string | None
    auth_bytes: byte_string
    session_lifetime_ms: int64 = since("1+", default=0)
