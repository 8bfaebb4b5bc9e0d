"""Webhooks, whose secrets are sealed; the calls that name them; catch-ups, change subscriptions, breakers of origins."""

import logging
import sqlite3
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from ringback.domain.catch_up import CatchUp
from ringback.domain.change_subscriptions import ChangeSubscription
from ringback.domain.circuit_breaker import CLOSED_BREAKER, CircuitBreaker
from ringback.domain.cursor import Page
from ringback.domain.encryption import Sealer
from ringback.domain.event import Event, EventName
from ringback.domain.ids import CallId, WebhookId
from ringback.domain.principal import Principal
from ringback.domain.webhook import Webhook, webhook_for_call, with_unreadable_secrets
from ringback.domain.webhook_rows import ExpiryPosition, WebhookPart
from ringback.signing.sealing import UnsealError
from ringback.storage.queries import parameters
from ringback.storage.sqlite.columns import RECORDS, instant_to_column, json_to_column
from ringback.storage.sqlite.unit_of_work import Pause, SqliteRows, UnitContext
from ringback.storage.sqlite.webhook_matching import MatchKey, build_match_keys

log = logging.getLogger(__name__)

_WEBHOOK: Final = RECORDS.webhook
_NO_SECRETS: Final = b"[]"

WEBHOOK_CACHE_MAX: Final = 4096
"""Decoded webhooks, some 2 KB each. Decoding one takes 25 µs, comparing its row 2 (measured)."""
READ_AT_ONCE: Final = 128
"""Candidates read between two turns of the event loop: 3 ms if none of them is cached."""


class CachingWebhookReader:
    """Decodes webhooks, and each version of a row once.

    Every event reads all webhooks that it may match, and few of them have changed. The cache compares whole rows, so it never
    returns what was rolled back, or what another process has changed.
    """

    def __init__(self, sealer: Sealer) -> None:
        self._sealer = sealer
        self._cache: dict[str, tuple[tuple[Any, ...], Webhook]] = {}

    def read_webhook(self, row: sqlite3.Row, columns: tuple[Any, ...] | None = None) -> Webhook:
        """`columns` are the webhook's own, if the row has more."""
        columns = columns or tuple(row)
        cached = self._cache.pop(row["id"], None)  # re-inserted below as the most recently used
        if cached is None or cached[0] != columns:
            cached = columns, self._decode(row)
            if len(self._cache) >= WEBHOOK_CACHE_MAX:
                del self._cache[next(iter(self._cache))]
        self._cache[row["id"]] = cached
        return cached[1]

    def _decode(self, row: sqlite3.Row) -> Webhook:
        try:
            secrets = self._sealer.unseal(row["secrets"], associated_data=secrets_associated_data(row["id"]))
        except UnsealError:
            log.warning("webhook.secrets_unreadable", extra={"webhook_id": row["id"]})
            return with_unreadable_secrets(_WEBHOOK.decode(row, secrets=_NO_SECRETS))
        return _WEBHOOK.decode(row, secrets=secrets)


class SqliteWebhooks(SqliteRows, noun="webhooks"):
    """Implements `domain.webhook_rows.WebhookRows`."""

    def __init__(self, unit: UnitContext, *, reader: CachingWebhookReader) -> None:
        super().__init__(unit)
        self._webhook_reader = reader

    async def insert(self, webhook: Webhook) -> None:
        self._sql.execute("insert", **self._seal_secrets(_WEBHOOK.encode(webhook)))

    async def get(self, webhook_id: WebhookId) -> Webhook | None:
        row = self._sql.fetch_one("get", id=webhook_id)
        return None if row is None else self._webhook_reader.read_webhook(row)

    async def get_many(self, webhook_ids: Collection[WebhookId]) -> Sequence[Webhook]:
        return [
            self._webhook_reader.read_webhook(row)
            for row in self._sql.fetch_all("by_ids", ids=json_to_column(list(webhook_ids)))
        ]

    async def list_page(self, principal: Principal, *, position: str | None, limit: int) -> Sequence[Webhook]:
        rows = self._sql.fetch_all("page", principal=principal, before=position, limit=limit)
        return [self._webhook_reader.read_webhook(row) for row in rows]

    async def find_candidates(self, events: Sequence[Event], *, catching_up: bool) -> Sequence[Sequence[Webhook]]:
        principal = events[0].principal
        fields_in_use = self._fields_in_use(principal, {event.name for event in events})
        keys_of = [list(build_match_keys(event, fields_in_use[event.name])) for event in events]
        matching = await self._find_matching(
            principal, {key for keys in keys_of for key in keys}, catching_up=catching_up
        )
        of_call = self._find_call_webhooks(principal, events, catching_up=catching_up)
        return [
            _without_repetition([*of_call[event.call_id], *(webhook for key in keys for webhook in matching[key])])
            for event, keys in zip(events, keys_of, strict=True)
        ]

    def _fields_in_use(self, principal: Principal, names: Collection[EventName]) -> Mapping[str, Sequence[int]]:
        found: defaultdict[str, list[int]] = defaultdict(list)
        for row in self._sql.fetch_all("fields_in_use", principal=principal, event_names=json_to_column(list(names))):
            found[row["event_name"]].append(row["fields"])
        return found

    async def _find_matching(
        self, principal: Principal, match_keys: Collection[MatchKey], *, catching_up: bool
    ) -> Mapping[MatchKey, Sequence[Webhook]]:
        """Registered webhooks that match events of these keys."""
        found: defaultdict[MatchKey, list[Webhook]] = defaultdict(list)
        if match_keys:
            keys = list(match_keys)
            rows = self._sql.fetch_all(
                "matching",
                principal=principal,
                keys=json_to_column(keys),
                now=instant_to_column(self._unit.now),
                catching_up=catching_up,
            )
            for number, row in enumerate(rows, 1):
                *columns, key_index = row
                if not number % READ_AT_ONCE:
                    await Pause()
                found[keys[key_index]].append(self._webhook_reader.read_webhook(row, tuple(columns)))
        return found

    def _find_call_webhooks(
        self, principal: Principal, events: Sequence[Event], *, catching_up: bool
    ) -> Mapping[str | None, Sequence[Webhook]]:
        """Webhooks that belong to these calls, and those that the calls name."""
        found: defaultdict[str | None, list[Webhook]] = defaultdict(list)
        call_ids = list({event.call_id for event in events if event.call_id is not None})
        if call_ids:
            rows = self._sql.fetch_all(
                "of_calls", principal=principal, call_ids=json_to_column(call_ids), catching_up=catching_up
            )
            for row in rows:
                *columns, call_id = row
                webhook = self._webhook_reader.read_webhook(row, tuple(columns))
                found[call_id].append(webhook if webhook.call_id == call_id else webhook_for_call(webhook, call_id))
        return found

    async def update(self, webhook: Webhook, part: WebhookPart, *more: WebhookPart) -> bool:
        parts = (part, *more)
        changed = [
            self._sql.execute(f"update_{each}", **self._seal_secrets(_ENCODE_PART[each](webhook))) for each in parts
        ]
        return sum(changed) == len(parts)

    async def delete(self, webhook_id: WebhookId) -> bool:
        self._sql.execute("cancel_open_deliveries", id=webhook_id, now=instant_to_column(self._unit.now))
        return self._sql.execute("delete", id=webhook_id) == 1

    async def remove_expired(
        self, *, now: datetime, limit: int, after: ExpiryPosition | None = None
    ) -> Page[WebhookId, ExpiryPosition]:
        instant, webhook_id = after or (0, "")
        visited = self._sql.fetch_all(
            "expired", now=instant_to_column(now), after_instant=instant, after_id=webhook_id, limit=limit
        )
        removed = [row["id"] for row in visited if not row["busy"]]
        self._sql.execute_many("delete", [{"id": each} for each in removed])
        last = visited[-1] if len(visited) == limit else None
        return Page(removed, next_position=None if last is None else (last["expires_at"], last["id"]))

    def _seal_secrets(self, row: dict[str, Any]) -> dict[str, Any]:
        """Secrets that could not be read become NULL: the stored ones stay, in case that their key comes back."""
        if (secrets := row.get("secrets")) is not None:
            associated_data = secrets_associated_data(row["id"])
            row["secrets"] = (
                None if secrets == _NO_SECRETS else self._unit.sealer.seal(secrets, associated_data=associated_data)
            )
        return row


_ENCODE_PART: Final = {
    part: _WEBHOOK.encoder(sorted(parameters(SqliteWebhooks.statements[f"update_{part}"]).intersection(_WEBHOOK.names)))
    for part in WebhookPart
}
"""A part converts the columns that its statement writes. The health changes with every delivery, so it seals nothing."""


def secrets_associated_data(webhook_id: str) -> str:
    return f"webhooks/{webhook_id}/secrets"


def _without_repetition(webhooks: Sequence[Webhook]) -> Sequence[Webhook]:
    """Each webhook once. One that a call names comes first and counts as the call names it, also if it matches the event."""
    first: dict[WebhookId, Webhook] = {}
    for webhook in webhooks:
        first.setdefault(webhook.id, webhook)
    return list(first.values())


class SqliteRegisteredWebhooks(SqliteRows, noun="registered_webhooks"):
    """Implements `domain.webhook_rows.RegisteredWebhookRows`."""

    def __init__(self, unit: UnitContext, *, reader: CachingWebhookReader) -> None:
        super().__init__(unit)
        self._webhook_reader = reader

    async def find_by_name(self, principal: Principal, name: str) -> Webhook | None:
        row = self._sql.fetch_one("by_name", principal=principal, name=name)
        return None if row is None else self._webhook_reader.read_webhook(row)

    async def find_by_idempotency_key(self, principal: Principal, key: str) -> Webhook | None:
        row = self._sql.fetch_one("by_idempotency_key", principal=principal, key=key)
        return None if row is None else self._webhook_reader.read_webhook(row)


class SqliteCallWebhooks(SqliteRows, noun="call_webhooks"):
    """Implements `domain.webhook_rows.CallWebhookRows`."""

    def __init__(self, unit: UnitContext, *, reader: CachingWebhookReader) -> None:
        super().__init__(unit)
        self._webhook_reader = reader

    async def add(self, call_id: CallId, webhook_id: WebhookId) -> None:
        self._sql.execute("add", call_id=call_id, webhook_id=webhook_id)

    async def has_calls(self, webhook_id: WebhookId) -> bool:
        row = self._sql.fetch_one("any_call", webhook_id=webhook_id)
        return row is not None and bool(row["any_call"])

    async def select_calls(self, webhook_id: WebhookId, call_ids: Collection[CallId]) -> Collection[CallId]:
        rows = self._sql.fetch_all("naming_calls", webhook_id=webhook_id, call_ids=json_to_column(list(call_ids)))
        return {row["call_id"] for row in rows}

    async def list_of_target(
        self,
        principal: Principal,
        *,
        url: str,
        client_session_id: str | None,
        call_id: CallId | None,
        limit: int,
    ) -> Sequence[Webhook]:
        rows = self._sql.fetch_all(
            "same_target",
            principal=principal,
            url=url,
            client_session_id=client_session_id,
            call_id=call_id,
            limit=limit,
        )
        return [self._webhook_reader.read_webhook(row) for row in rows]


class SqliteCatchUps(SqliteRows, noun="catch_ups"):
    """Implements `domain.catch_up.CatchUpRows`."""

    async def get(self, webhook_id: WebhookId) -> CatchUp | None:
        return self._sql.fetch_record("get", RECORDS.catch_up, webhook_id=webhook_id)

    async def find_next(self, *, after: str) -> CatchUp | None:
        found = self._sql.fetch_record("next", RECORDS.catch_up, after=after)
        return found or self._sql.fetch_record("next", RECORDS.catch_up, after="")

    async def save(self, catch_up: CatchUp) -> None:
        self._sql.execute("save", **RECORDS.catch_up.encode(catch_up))

    async def remove(self, webhook_id: WebhookId) -> None:
        self._sql.execute("remove", webhook_id=webhook_id)


class SqliteChangeSubscriptions(SqliteRows, noun="change_subscriptions"):
    """Implements `domain.change_subscriptions.ChangeSubscriptionRows`."""

    async def list_all(self, *, now: datetime) -> Collection[ChangeSubscription]:
        return self._sql.fetch_records("all", RECORDS.change_subscription, now=instant_to_column(now))


class SqliteOriginBreakers(SqliteRows, noun="origin_breakers"):
    """Implements `domain.webhook_rows.OriginBreakerRows`. A closed breaker has no row."""

    async def get_breakers(self, origins: Collection[str]) -> Mapping[str, CircuitBreaker]:
        rows = self._sql.fetch_all("breakers", origins=json_to_column(list(origins)))
        return {row["origin"]: RECORDS.circuit_breaker.decode(row) for row in rows}

    async def save_breaker(self, origin: str, breaker: CircuitBreaker) -> None:
        if breaker == CLOSED_BREAKER:
            self._sql.execute("close", origin=origin)
        else:
            row = RECORDS.circuit_breaker.encode(breaker)
            self._sql.execute("save", origin=origin, now=instant_to_column(self._unit.now), **row)

    async def remove(self, *, cutoff: datetime, limit: int) -> int:
        return self._sql.execute("remove", older_than=instant_to_column(cutoff), limit=limit)
