"""What a unit of work sees of the store."""

import sqlite3
from collections.abc import Callable
from datetime import datetime

from ringback.domain.encryption import Sealer
from ringback.storage.sqlite.api_keys import SqliteApiKeys
from ringback.storage.sqlite.calls import SqliteCallQueue, SqliteCalls, SqliteScheduledCalls, SqliteTombstones
from ringback.storage.sqlite.deliveries import SqliteCallDeliveries, SqliteDeliveries, SqliteWebhookDeliveries
from ringback.storage.sqlite.delivery_queue import SqliteDeliveryMaintenance, SqliteDeliveryQueue
from ringback.storage.sqlite.encryption import SqliteSealedValues, SqliteSealingKeys
from ringback.storage.sqlite.events import SqliteEventLog, SqliteEvents
from ringback.storage.sqlite.mcp_sessions import SqliteMcpSessions
from ringback.storage.sqlite.operations import SqliteSchedulingTime, SqliteUsage, SqliteWriteProbe
from ringback.storage.sqlite.unit_of_work import Pause, UnitContext
from ringback.storage.sqlite.upstreams import SqliteToolAliases, SqliteUpstreamCatalog
from ringback.storage.sqlite.verification import SqliteChallenges, SqliteProofs
from ringback.storage.sqlite.webhooks import (
    CachingWebhookReader,
    SqliteCallWebhooks,
    SqliteCatchUps,
    SqliteChangeSubscriptions,
    SqliteOriginBreakers,
    SqliteRegisteredWebhooks,
    SqliteWebhooks,
)


class SqliteTransaction:
    def __init__(
        self, connection: sqlite3.Connection, *, sealer: Sealer, webhook_reader: CachingWebhookReader, now: datetime
    ) -> None:
        self._unit = UnitContext(connection, sealer, now)
        self._webhook_reader = webhook_reader
        self.topics: list[str] = []
        self.commit_actions: list[Callable[[], None]] = []
        self.rollback_actions: list[Callable[[], None]] = []

    @property
    def calls(self) -> SqliteCalls:
        return SqliteCalls(self._unit)

    @property
    def call_queue(self) -> SqliteCallQueue:
        return SqliteCallQueue(self._unit)

    @property
    def scheduled_calls(self) -> SqliteScheduledCalls:
        return SqliteScheduledCalls(self._unit)

    @property
    def tombstones(self) -> SqliteTombstones:
        return SqliteTombstones(self._unit)

    @property
    def events(self) -> SqliteEvents:
        return SqliteEvents(self._unit)

    @property
    def event_log(self) -> SqliteEventLog:
        return SqliteEventLog(self._unit)

    @property
    def webhooks(self) -> SqliteWebhooks:
        return SqliteWebhooks(self._unit, reader=self._webhook_reader)

    @property
    def registered_webhooks(self) -> SqliteRegisteredWebhooks:
        return SqliteRegisteredWebhooks(self._unit, reader=self._webhook_reader)

    @property
    def call_webhooks(self) -> SqliteCallWebhooks:
        return SqliteCallWebhooks(self._unit, reader=self._webhook_reader)

    @property
    def catch_ups(self) -> SqliteCatchUps:
        return SqliteCatchUps(self._unit)

    @property
    def deliveries(self) -> SqliteDeliveries:
        return SqliteDeliveries(self._unit)

    @property
    def call_deliveries(self) -> SqliteCallDeliveries:
        return SqliteCallDeliveries(self._unit)

    @property
    def webhook_deliveries(self) -> SqliteWebhookDeliveries:
        return SqliteWebhookDeliveries(self._unit)

    @property
    def delivery_queue(self) -> SqliteDeliveryQueue:
        return SqliteDeliveryQueue(self._unit)

    @property
    def delivery_maintenance(self) -> SqliteDeliveryMaintenance:
        return SqliteDeliveryMaintenance(self._unit)

    @property
    def origin_breakers(self) -> SqliteOriginBreakers:
        return SqliteOriginBreakers(self._unit)

    @property
    def usage(self) -> SqliteUsage:
        return SqliteUsage(self._unit)

    @property
    def api_keys(self) -> SqliteApiKeys:
        return SqliteApiKeys(self._unit)

    @property
    def challenges(self) -> SqliteChallenges:
        return SqliteChallenges(self._unit)

    @property
    def proofs(self) -> SqliteProofs:
        return SqliteProofs(self._unit)

    @property
    def sealed_values(self) -> SqliteSealedValues:
        return SqliteSealedValues(self._unit)

    @property
    def sealing_keys(self) -> SqliteSealingKeys:
        return SqliteSealingKeys(self._unit)

    @property
    def write_probe(self) -> SqliteWriteProbe:
        return SqliteWriteProbe(self._unit)

    @property
    def catalog(self) -> SqliteUpstreamCatalog:
        return SqliteUpstreamCatalog(self._unit)

    @property
    def change_subscriptions(self) -> SqliteChangeSubscriptions:
        return SqliteChangeSubscriptions(self._unit)

    @property
    def tool_aliases(self) -> SqliteToolAliases:
        return SqliteToolAliases(self._unit)

    @property
    def mcp_sessions(self) -> SqliteMcpSessions:
        return SqliteMcpSessions(self._unit)

    @property
    def scheduling_time(self) -> SqliteSchedulingTime:
        return SqliteSchedulingTime(self._unit)

    def now(self) -> datetime:
        return self._unit.now

    async def pause(self) -> None:
        await Pause()

    def notify(self, *topics: str) -> None:
        self.topics.extend(topics)

    def on_commit(self, action: Callable[[], None]) -> None:
        self.commit_actions.append(action)

    def on_rollback(self, action: Callable[[], None]) -> None:
        self.rollback_actions.append(action)
