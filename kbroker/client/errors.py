"""What can go wrong between a tool and a cluster, in words for whoever runs the tool.

Imports nothing, so that these can be raised, pickled and caught where the protocol is not loaded.
"""

from __future__ import annotations

from collections.abc import Sequence


class ClientError(Exception):
    """Something that the cluster would not or could not do; the text is one sentence."""

    retriable = False


class CannotConnect(ClientError):
    """None of the addresses answers."""


class ConnectionLost(ClientError):
    """A broker hung up, or does not answer any more; another attempt may find its successor."""

    retriable = True


class NotServed(ClientError):
    """The broker does not have a request, or not in a version that we speak."""


class Refused(ClientError):
    """An error code in a reply. `code` is Kafka's name of it."""

    def __init__(self, code: str, text: str, retriable: bool = False) -> None:
        super().__init__(code, text, retriable)
        self.code = code
        self.text = text
        self.retriable = retriable

    def __str__(self) -> str:
        return f"{self.text} ({self.code})"


class UnknownTopic(ClientError):
    """No such topic; `near` are names that look like it."""

    def __init__(self, topic: str, near: Sequence[str] = ()) -> None:
        super().__init__(topic, near)
        self.topic = topic
        self.near = near

    def __str__(self) -> str:
        question = f"; did you mean {' or '.join(self.near)}?" if self.near else ""
        return f"there is no topic {self.topic}{question}"


class UnknownGroup(ClientError):
    """No such group; `near` are names that look like it."""

    def __init__(self, group: str, near: Sequence[str] = ()) -> None:
        super().__init__(group, near)
        self.group = group
        self.near = near

    def __str__(self) -> str:
        question = f"; did you mean {' or '.join(self.near)}?" if self.near else ""
        return f"there is no group {self.group}{question}"
