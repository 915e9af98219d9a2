"""SaslHandshake (key 17): choose a SASL mechanism.

After v0 raw SASL tokens follow; after v1 SaslAuthenticate does. Never flexible.
"""

from __future__ import annotations

from wire.schema import int16, message, string


@message(key=17, versions="0-1")
class SaslHandshakeRequest:
    mechanism: string


@message(key=17, versions="0-1")
class SaslHandshakeResponse:
    error_code: int16
    mechanisms: list[string]
