"""AlterClientQuotas: set and remove quotas of users, clients and addresses. The controller stores them.

They are stored and told, and not enforced: nobody is throttled yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller import events
from kbroker.context import Context, Parked
from wire.api.alter_client_quotas import AlterClientQuotasRequest

if TYPE_CHECKING:
    from kbroker.broker import Broker


def alter_client_quotas(broker: Broker, context: Context, request: AlterClientQuotasRequest) -> Parked:
    return broker.ask_controller(events.AlterClientQuotas(request))
