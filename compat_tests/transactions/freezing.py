"""Stops a program in the middle of a transaction, which it may then be killed in."""

from __future__ import annotations

import signal
import subprocess
from typing import Any

from tests.kbroker.speaker import Speaker
from tests.kbroker.transacting import READ_COMMITTED
from wire.api import ApiKey
from wire.api.list_transactions import ListTransactionsRequest

LATEST = -1
TURNS = 2
"""What it sent before it was stopped has reached the broker, which handles it within a turn of its loop."""


def is_open(speaker: Speaker, topic: str) -> bool:
    """Whether a topic ends in records that are not committed."""
    end = speaker.offset(topic, LATEST).offset
    return bool(speaker.offset(topic, LATEST, isolation_level=READ_COMMITTED).offset < end)


def is_undecided(speaker: Speaker) -> bool:
    request = ListTransactionsRequest(state_filters=["Ongoing"], producer_id_filters=[])
    return bool(speaker.ask(request, ApiKey.LIST_TRANSACTIONS, 0).transaction_states)


def frozen_in_a_transaction(process: subprocess.Popen[Any], speaker: Speaker, topic: str) -> bool:
    """True if it is stopped with records in the topic whose transaction nobody has ended; else it goes on."""
    process.send_signal(signal.SIGSTOP)
    if all(is_open(speaker, topic) and is_undecided(speaker) for _ in range(TURNS)):
        return True
    process.send_signal(signal.SIGCONT)
    return False
