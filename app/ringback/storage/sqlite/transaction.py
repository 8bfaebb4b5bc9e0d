"""What a unit of work sees of the store, and how it is driven."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Generator
from datetime import datetime
from typing import Any, TypeVar

from ringback.domain.encryption import Sealer
from ringback.storage.sqlite.api_keys import SqliteApiKeys
from ringback.storage.sqlite.call_deliveries import SqliteCallDeliveries
from ringback.storage.sqlite.call_queue import SqliteCallQueue
from ringback.storage.sqlite.calls import SqliteCalls
from ringback.storage.sqlite.catalog import SqliteUpstreamCatalog
from ringback.storage.sqlite.catch_ups import SqliteCatchUps
from ringback.storage.sqlite.deliveries import SqliteDeliveries
from ringback.storage.sqlite.delivery_lanes import SqliteWebhookDeliveries
from ringback.storage.sqlite.delivery_queue import SqliteDeliveryQueue
from ringback.storage.sqlite.delivery_upkeep import SqliteDeliveryMaintenance
from ringback.storage.sqlite.event_places import SqliteEventLog
from ringback.storage.sqlite.events import SqliteEvents
from ringback.storage.sqlite.joined_names import SqliteToolAliases
from ringback.storage.sqlite.origins import SqliteOriginBreakers
from ringback.storage.sqlite.pauses import PAUSED, Pause
from ringback.storage.sqlite.scheduling_time import SqliteSchedulingTime
from ringback.storage.sqlite.sealed import SqliteSealedValues
from ringback.storage.sqlite.sealing_keys import SqliteSealingKeys
from ringback.storage.sqlite.tombstones import SqliteTombstones
from ringback.storage.sqlite.usage import SqliteUsage
from ringback.storage.sqlite.verification import SqliteChallenges, SqliteProofs
from ringback.storage.sqlite.watches import SqliteChangeSubscriptions
from ringback.storage.sqlite.webhooks import CachingWebhookReader, SqliteWebhooks
from ringback.storage.sqlite.write_probe import SqliteWriteProbe

T = TypeVar("T")


class SqliteTransaction:
    def __init__(
        self, connection: sqlite3.Connection, *, sealer: Sealer, webhook_reader: CachingWebhookReader, now: datetime
    ) -> None:
        self._connection = connection
        self._sealer = sealer
        self._webhook_reader = webhook_reader
        self._now = now
        self.topics: list[str] = []
        self.commit_actions: list[Callable[[], None]] = []
        self.rollback_actions: list[Callable[[], None]] = []

    @property
    def calls(self) -> SqliteCalls:
        return SqliteCalls(self._connection)

    @property
    def call_queue(self) -> SqliteCallQueue:
        return SqliteCallQueue(self._connection)

    @property
    def tombstones(self) -> SqliteTombstones:
        return SqliteTombstones(self._connection)

    @property
    def events(self) -> SqliteEvents:
        return SqliteEvents(self._connection)

    @property
    def event_log(self) -> SqliteEventLog:
        return SqliteEventLog(self._connection)

    @property
    def webhooks(self) -> SqliteWebhooks:
        return SqliteWebhooks(self._connection, sealer=self._sealer, reader=self._webhook_reader, now=self._now)

    @property
    def catch_ups(self) -> SqliteCatchUps:
        return SqliteCatchUps(self._connection)

    @property
    def deliveries(self) -> SqliteDeliveries:
        return SqliteDeliveries(self._connection, sealer=self._sealer)

    @property
    def call_deliveries(self) -> SqliteCallDeliveries:
        return SqliteCallDeliveries(self._connection, now=self._now)

    @property
    def webhook_deliveries(self) -> SqliteWebhookDeliveries:
        return SqliteWebhookDeliveries(self._connection, sealer=self._sealer)

    @property
    def delivery_queue(self) -> SqliteDeliveryQueue:
        return SqliteDeliveryQueue(self._connection, sealer=self._sealer)

    @property
    def delivery_maintenance(self) -> SqliteDeliveryMaintenance:
        return SqliteDeliveryMaintenance(self._connection, sealer=self._sealer)

    @property
    def origin_breakers(self) -> SqliteOriginBreakers:
        return SqliteOriginBreakers(self._connection, now=self._now)

    @property
    def usage(self) -> SqliteUsage:
        return SqliteUsage(self._connection)

    @property
    def api_keys(self) -> SqliteApiKeys:
        return SqliteApiKeys(self._connection)

    @property
    def challenges(self) -> SqliteChallenges:
        return SqliteChallenges(self._connection)

    @property
    def proofs(self) -> SqliteProofs:
        return SqliteProofs(self._connection)

    @property
    def sealed_values(self) -> SqliteSealedValues:
        return SqliteSealedValues(self._connection, sealer=self._sealer)

    @property
    def sealing_keys(self) -> SqliteSealingKeys:
        return SqliteSealingKeys(self._connection)

    @property
    def write_probe(self) -> SqliteWriteProbe:
        return SqliteWriteProbe(self._connection)

    @property
    def catalog(self) -> SqliteUpstreamCatalog:
        return SqliteUpstreamCatalog(self._connection)

    @property
    def change_subscriptions(self) -> SqliteChangeSubscriptions:
        return SqliteChangeSubscriptions(self._connection)

    @property
    def tool_aliases(self) -> SqliteToolAliases:
        return SqliteToolAliases(self._connection)

    @property
    def scheduling_time(self) -> SqliteSchedulingTime:
        return SqliteSchedulingTime(self._connection)

    def now(self) -> datetime:
        return self._now

    async def pause(self) -> None:
        await Pause()

    def notify(self, *topics: str) -> None:
        self.topics.extend(topics)

    def on_commit(self, action: Callable[[], None]) -> None:
        self.commit_actions.append(action)

    def on_rollback(self, action: Callable[[], None]) -> None:
        self.rollback_actions.append(action)


def run_to_completion(awaitable: Awaitable[T]) -> T:
    """Run to the end without an event loop, and without its pauses; RuntimeError for whoever waits on the way."""
    steps = awaitable.__await__()
    while True:
        try:
            reached = next(steps)
        except StopIteration as end:
            return end.value
        _require_pause(reached, steps)


async def drive_in_turns(awaitable: Awaitable[T]) -> T:
    """As `drive`, but each pause is a turn of the event loop."""
    steps = awaitable.__await__()
    while True:
        try:
            reached = next(steps)
        except StopIteration as end:
            return end.value
        _require_pause(reached, steps)
        try:
            await asyncio.sleep(0)
        except BaseException:
            steps.close()
            raise


def _require_pause(reached: object, steps: Generator[Any, Any, Any]) -> None:
    if reached is not PAUSED:
        steps.close()
        raise RuntimeError(
            "A unit of work waited for something that is not its transaction. Do that before or after, never inside."
        )
