"""Kafka for people's tests.

    from kbroker.testing import Broker

    with Broker() as broker:
        broker.create_topic("orders", partitions=3)
        my_code(broker.bootstrap)
        broker.wait_until(lambda: broker.group("billing").lag == 0)
        assert [record.value for record in broker.records("orders")] == [b"..."]

`docs/testing.md` has the rest, and the pytest fixtures.

Importing this loads nothing of the broker: a broker runs in a process of its own, which also answers the
questions about it. Only `Broker(in_thread=True)` loads it here.
"""

from kbroker.client.record import Record
from kbroker.testing.broker import Broker
from kbroker.testing.process import BrokerFailed
from kbroker.testing.views import Group, Member
from kbroker.testing.waiting import WaitFailed

__all__ = ["Broker", "BrokerFailed", "Group", "Member", "Record", "WaitFailed"]
