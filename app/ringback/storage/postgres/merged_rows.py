"""Rows with one statement in the place of several of `storage.rows`, because every statement is a round trip."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from ringback.domain.call import Call
from ringback.domain.call_rows import LEASED_ARGUMENT_BYTES_MAX
from ringback.domain.delivery import Attempt, Delivery, DeliveryUpdate
from ringback.domain.delivery_rows import BODIES_READ_BYTES_MAX
from ringback.domain.event import Event
from ringback.domain.ids import DeliveryId, WebhookId
from ringback.domain.log_appends import Place
from ringback.domain.principal import Principal
from ringback.domain.webhook import Webhook, webhook_for_call
from ringback.storage.rows import webhooks
from ringback.storage.rows.call_content import seal_arguments
from ringback.storage.rows.calls import SqlCallQueue, SqlCalls, decode_whole_call, encode_new_call
from ringback.storage.rows.columns import RECORDS, instant_to_column, json_to_column
from ringback.storage.rows.deliveries import SqlDeliveries, seal_body
from ringback.storage.rows.delivery_queue import SqlDeliveryQueue, encode_updates
from ringback.storage.rows.statements import Row
from ringback.storage.rows.unit import Pause
from ringback.storage.rows.webhook_matching import changed_resource_uri, possible_outcomes
from ringback.storage.rows.webhook_reader import CachingWebhookReader
from ringback.storage.rows.webhooks import SqlWebhooks

_WEBHOOK_COLUMNS: Final = len(RECORDS.webhook.names)


class PostgresCalls(SqlCalls):
    async def insert(self, call: Call) -> None:
        row = encode_new_call(call)
        await self._sql.execute("insert_whole", **row | seal_arguments(row, self._unit.sealer))


class PostgresCallQueue(SqlCallQueue):
    async def lease_queued(
        self,
        upstream: str,
        *,
        owner: str,
        token: str,
        until: datetime,
        limit: int,
        limit_each: int | None = None,
        running: Mapping[Principal, int] | None = None,
        without: Collection[Principal] = (),
    ) -> Sequence[Call]:
        rows = await self._sql.fetch_all(
            "lease_queued",
            upstream=upstream,
            owner=owner,
            token=token,
            until=instant_to_column(until),
            limit=limit,
            limit_each=limit if limit_each is None else limit_each,
            running_principals=list(running or ()),
            running_calls=list((running or {}).values()),
            without=list(without),
            argument_bytes_max=LEASED_ARGUMENT_BYTES_MAX,
        )
        return [decode_whole_call(row, self._unit.sealer) for row in rows]

    async def take_turn(self, upstream: str, principal: Principal) -> bool:
        return await self._sql.execute("take_turn", upstream=upstream, principal=principal) == 1


class PostgresDeliveries(SqlDeliveries):
    async def _insert_bodies(self, deliveries: Sequence[Delivery]) -> None:
        sealer = self._unit.sealer
        await self._sql.execute(
            "insert_bodies",
            ids=[each.id for each in deliveries],
            bodies=[seal_body(each, sealer) for each in deliveries],
            principals=[each.principal for each in deliveries],
        )


class PostgresDeliveryQueue(SqlDeliveryQueue):
    async def lease(
        self, delivery_ids: Collection[DeliveryId], *, owner: str, token: str, until: datetime
    ) -> Sequence[Delivery]:
        return await self._fetch_deliveries(
            "lease_whole",
            ids=list(delivery_ids),
            owner=owner,
            token=token,
            until=instant_to_column(until),
            bytes_max=BODIES_READ_BYTES_MAX,
        )

    async def apply_updates(
        self, updates: Sequence[DeliveryUpdate], attempts: Sequence[Attempt] = ()
    ) -> Collection[DeliveryId]:
        encoded = json_to_column([list(RECORDS.attempt.encode(each).values()) for each in attempts])
        rows = await self._sql.fetch_all("record_attempts", rows=encode_updates(updates), attempts=encoded)
        return {row["id"] for row in rows}


class PostgresWebhooks(SqlWebhooks):
    async def find_candidates(self, events: Sequence[Event], *, catching_up: bool) -> Sequence[Sequence[Webhook]]:
        rows = await self._sql.fetch_all(
            "candidates",
            events=json_to_column([encode_for_matching(each, place) for place, each in enumerate(events)]),
            now=instant_to_column(self._unit.confirmed_now),
            catching_up=catching_up,
        )
        places = [(event.principal, place) for place, event in enumerate(events)]
        found = await read_candidates(rows, places, self._unit.webhook_reader)
        return [found[place] for place in places]


def encode_for_matching(event: Event, seq: int) -> list[Any]:
    """An event as `candidates` and `find_receivers` read it. `seq` stands for it in the rows that they return.

    The URI of a resource comes from an upstream. PostgreSQL refuses U+0000, also in a URI that no webhook can name.
    """
    uri = changed_resource_uri(event)
    return [
        event.principal,
        seq,
        event.name,
        event.upstream,
        event.tool,
        event.call_id,
        event.client_session_id,
        event.correlation_id,
        None if uri is None else uri.replace("\0", "\N{REPLACEMENT CHARACTER}"),
        event.topic,
        list(possible_outcomes(event)),
    ]


async def read_candidates(
    rows: Sequence[Row], places: Iterable[Place], reader: CachingWebhookReader
) -> dict[Place, Sequence[Webhook]]:
    """The webhooks of each event, each once. One that the event's call names is a `webhook_for_call`."""
    found: dict[Place, dict[WebhookId, Webhook]] = {place: {} for place in places}
    for number, row in enumerate(rows, 1):
        if not number % webhooks.READ_AT_ONCE:
            await Pause()
        webhook = _read_webhook(row, reader)
        for seq in map(int, row["seqs"]):
            of_event = found[row["log"], seq]
            if row["of_call"] is not None or webhook.id not in of_event:
                of_event[webhook.id] = webhook
    return {place: list(of_event.values()) for place, of_event in found.items()}


def _read_webhook(row: Row, reader: CachingWebhookReader) -> Webhook:
    webhook, call_id = reader.read_webhook(row, row[:_WEBHOOK_COLUMNS]), row["of_call"]
    return webhook if call_id is None or webhook.call_id == call_id else webhook_for_call(webhook, call_id)
