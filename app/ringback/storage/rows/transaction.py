"""What a unit of work sees of the store."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Generic, TypeVar

from ringback.storage.rows.api_keys import SqlApiKeys
from ringback.storage.rows.calls import SqlCallQueue, SqlCalls, SqlScheduledCalls, SqlTombstones
from ringback.storage.rows.deliveries import SqlCallDeliveries, SqlDeliveries, SqlWebhookDeliveries
from ringback.storage.rows.delivery_queue import SqlDeliveryMaintenance, SqlDeliveryQueue
from ringback.storage.rows.encryption import SqlSealedValues, SqlSealingKeys
from ringback.storage.rows.events import SqlEventLog, SqlEvents
from ringback.storage.rows.mcp_sessions import SqlMcpSessions
from ringback.storage.rows.operations import SqlSchedulingTime, SqlUsage
from ringback.storage.rows.unit import Pause, UnitContext
from ringback.storage.rows.upstreams import SqlToolAliases, SqlUpstreamCatalog
from ringback.storage.rows.verification import SqlChallenges, SqlProofs
from ringback.storage.rows.webhooks import (
    SqlCallWebhooks,
    SqlCatchUps,
    SqlChangeSubscriptions,
    SqlOriginBreakers,
    SqlRegisteredWebhooks,
    SqlWebhooks,
)

RowsT = TypeVar("RowsT")


class RowsAttribute(Generic[RowsT]):
    """An attribute of a transaction: one kind of rows, made at its first use in the unit of work."""

    def __init__(self, rows: Callable[[UnitContext], RowsT]) -> None:
        self._rows = rows
        self._name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, transaction: Any, owner: type | None = None) -> RowsT:
        rows = self._rows(transaction.unit)
        transaction.__dict__[self._name] = rows  # found before this attribute from now on
        return rows


class SqlTransaction:
    """Implements `domain.ports.Transaction` but for the write probe, which each database has of its own."""

    calls = RowsAttribute(SqlCalls)
    call_queue = RowsAttribute(SqlCallQueue)
    scheduled_calls = RowsAttribute(SqlScheduledCalls)
    tombstones = RowsAttribute(SqlTombstones)
    events = RowsAttribute(SqlEvents)
    event_log = RowsAttribute(SqlEventLog)
    webhooks = RowsAttribute(SqlWebhooks)
    registered_webhooks = RowsAttribute(SqlRegisteredWebhooks)
    call_webhooks = RowsAttribute(SqlCallWebhooks)
    catch_ups = RowsAttribute(SqlCatchUps)
    deliveries = RowsAttribute(SqlDeliveries)
    call_deliveries = RowsAttribute(SqlCallDeliveries)
    webhook_deliveries = RowsAttribute(SqlWebhookDeliveries)
    delivery_queue = RowsAttribute(SqlDeliveryQueue)
    delivery_maintenance = RowsAttribute(SqlDeliveryMaintenance)
    origin_breakers = RowsAttribute(SqlOriginBreakers)
    usage = RowsAttribute(SqlUsage)
    api_keys = RowsAttribute(SqlApiKeys)
    challenges = RowsAttribute(SqlChallenges)
    proofs = RowsAttribute(SqlProofs)
    sealed_values = RowsAttribute(SqlSealedValues)
    sealing_keys = RowsAttribute(SqlSealingKeys)
    catalog = RowsAttribute(SqlUpstreamCatalog)
    change_subscriptions = RowsAttribute(SqlChangeSubscriptions)
    tool_aliases = RowsAttribute(SqlToolAliases)
    mcp_sessions = RowsAttribute(SqlMcpSessions)
    scheduling_time = RowsAttribute(SqlSchedulingTime)

    def __init__(self, unit: UnitContext) -> None:
        self.unit = unit
        self.topics: list[str] = []
        self.commit_actions: list[Callable[[], None]] = []
        self.rollback_actions: list[Callable[[], None]] = []

    def now(self) -> datetime:
        return self.unit.now

    async def pause(self) -> None:
        await Pause()

    def notify(self, *topics: str) -> None:
        self.topics.extend(topics)

    def on_commit(self, action: Callable[[], None]) -> None:
        self.commit_actions.append(action)

    def on_rollback(self, action: Callable[[], None]) -> None:
        self.rollback_actions.append(action)
