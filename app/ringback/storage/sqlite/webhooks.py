"""Webhooks, as rows; their secrets are sealed."""

import logging
import sqlite3
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from ringback.domain import jsontext
from ringback.domain.clock import from_epoch_milliseconds
from ringback.domain.cursor import Page
from ringback.domain.encryption import Sealer
from ringback.domain.event import Event, EventName
from ringback.domain.ids import WebhookId
from ringback.domain.principal import Principal
from ringback.domain.retry import RetryProfile
from ringback.domain.webhook import (
    DeliveryCondition,
    Webhook,
    WebhookOrigin,
    WebhookSecret,
    WebhookState,
    with_unreadable_secrets,
)
from ringback.domain.webhook_rows import ExpiryPosition, WebhookPart
from ringback.signing.sealing import UnsealError
from ringback.storage.codec import column_to_instant, instant_to_column, json_to_column
from ringback.storage.queries import load_statements
from ringback.storage.sqlite.database import Statements
from ringback.storage.sqlite.origins import breaker_to_row, row_to_breaker
from ringback.storage.sqlite.pauses import Pause
from ringback.storage.sqlite.webhook_matching import MatchKey, build_match_keys

log = logging.getLogger(__name__)

_SQL: Final = load_statements("ringback.storage.sqlite", "sql/webhooks.sql")

WEBHOOK_CACHE_MAX: Final = 4096
"""Webhooks kept as values, some 2 KB each. Reading one anew takes 25 µs, comparing its row 2 (measured)."""
READ_AT_ONCE: Final = 128
"""Candidates read between two turns of the event loop: 3 ms if all of them are read anew."""


class SqliteWebhooks:
    """Implements `domain.webhook_rows.WebhookRows`."""

    def __init__(
        self, connection: sqlite3.Connection, *, sealer: Sealer, reader: "CachingWebhookReader", now: datetime
    ) -> None:
        self._sql = Statements(connection, _SQL)
        self._sealer = sealer
        self._webhook_reader = reader
        self._now = now

    async def insert(self, webhook: Webhook) -> None:
        self._sql.execute("insert", **_to_row(webhook), secrets=self._seal_secrets(webhook))

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
        of_call = self._find_call_webhooks(principal, events)
        return [
            [*of_call[event.call_id], *(webhook for key in keys for webhook in matching[key])]
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
        """Those that were registered and hear the events of these keys."""
        found: defaultdict[MatchKey, list[Webhook]] = defaultdict(list)
        if match_keys:
            keys = list(match_keys)
            rows = self._sql.fetch_all(
                "matching",
                principal=principal,
                keys=json_to_column(keys),
                now=instant_to_column(self._now),
                catching_up=catching_up,
            )
            for number, row in enumerate(rows, 1):
                *columns, key_index = row
                if not number % READ_AT_ONCE:
                    await Pause()
                found[keys[key_index]].append(self._webhook_reader.read_webhook(row, tuple(columns)))
        return found

    def _find_call_webhooks(
        self, principal: Principal, events: Sequence[Event]
    ) -> Mapping[str | None, Sequence[Webhook]]:
        """Those that came with these calls."""
        found: defaultdict[str | None, list[Webhook]] = defaultdict(list)
        call_ids = list({event.call_id for event in events if event.call_id is not None})
        if call_ids:
            for row in self._sql.fetch_all("of_calls", principal=principal, call_ids=json_to_column(call_ids)):
                found[row["call_id"]].append(self._webhook_reader.read_webhook(row))
        return found

    async def update(self, webhook: Webhook, part: WebhookPart, *more: WebhookPart) -> bool:
        parts = (part, *more)
        return sum(self._sql.execute(f"update_{each}", **self._decided(webhook, each)) for each in parts) == len(parts)

    async def delete(self, webhook_id: WebhookId) -> bool:
        self._sql.execute("cancel_open_deliveries", id=webhook_id, now=instant_to_column(self._now))
        return self._sql.execute("delete", id=webhook_id) == 1

    async def remove_expired(
        self, *, now: datetime, limit: int, after: ExpiryPosition | None = None
    ) -> Page[WebhookId, ExpiryPosition]:
        instant, webhook_id = after or (0, "")
        visited = self._sql.fetch_all(
            "expired", now=instant_to_column(now), after_instant=instant, after_id=webhook_id, limit=limit
        )
        gone = [row["id"] for row in visited if not row["busy"]]
        self._sql.execute_many("delete", [{"id": each} for each in gone])
        last = visited[-1] if len(visited) == limit else None
        return Page(gone, next_position=None if last is None else (last["expires_at"], last["id"]))

    def _decided(self, webhook: Webhook, part: WebhookPart) -> dict[str, Any]:
        """What the statement of this part needs. The health changes with every delivery, so nothing is sealed for it."""
        match part:
            case WebhookPart.HEALTH:
                return {"id": webhook.id, **_health(webhook)}
            case WebhookPart.SECRETS:
                return {
                    "id": webhook.id,
                    "secrets": self._seal_secrets(webhook),
                    "updated_at": instant_to_column(webhook.updated_at),
                }
            case _:
                return _to_row(webhook)

    def _seal_secrets(self, webhook: Webhook) -> bytes | None:
        """None for secrets that could not be read: what is there stays, in case that its key is put back."""
        if not webhook.secrets:
            return None
        return self._sealer.seal(_encode_secrets(webhook), associated_data=secrets_associated_data(webhook.id))


class CachingWebhookReader:
    """From rows to values, each row once.

    Every event reads all webhooks that might hear it, and hardly ever one that has changed. The same row is the same webhook,
    so what was read stays; what was rolled back, or written by another process, shows in the row itself.
    """

    def __init__(self, sealer: Sealer) -> None:
        self._sealer = sealer
        self._cache: dict[str, tuple[tuple[Any, ...], Webhook]] = {}

    def read_webhook(self, row: sqlite3.Row, columns: tuple[Any, ...] | None = None) -> Webhook:
        """`columns` are the webhook's own, where the row has more."""
        columns = columns or tuple(row)
        cached = self._cache.pop(row["id"], None)  # and put back behind all others
        if cached is None or cached[0] != columns:
            cached = columns, self._row_to_webhook(row)
            if len(self._cache) >= WEBHOOK_CACHE_MAX:
                del self._cache[next(iter(self._cache))]
        self._cache[row["id"]] = cached
        return cached[1]

    def _row_to_webhook(self, row: sqlite3.Row) -> Webhook:
        try:
            secrets = self._sealer.unseal(row["secrets"], associated_data=secrets_associated_data(row["id"]))
        except UnsealError:
            log.warning("webhook.secrets_unreadable", extra={"webhook_id": row["id"]})
            return with_unreadable_secrets(self._build_webhook(row, b"[]"))
        return self._build_webhook(row, secrets)

    def _build_webhook(self, row: sqlite3.Row, secrets: bytes) -> Webhook:
        return Webhook(
            id=row["id"],
            principal=row["principal"],
            url=row["url"],
            events=frozenset(EventName(name) for name in jsontext.loads(row["events"])),
            upstream=row["upstream"],
            resource_uri=row["resource_uri"],
            tool=row["tool"],
            call_id=row["call_id"],
            client_session_id=row["client_session_id"],
            correlation_id=row["correlation_id"],
            match_correlation=bool(row["match_correlation"]),
            secrets=tuple(
                WebhookSecret(value=value, ends_at=column_to_instant(ends_at))
                for value, ends_at in jsontext.loads(secrets)
            ),
            retries=RetryProfile(row["retries"]),
            include_result=bool(row["include_result"]),
            when=DeliveryCondition(row["when"]),
            ordered=bool(row["ordered"]),
            rate_per_second=row["rate_per_second"],
            description=row["description"],
            state=WebhookState(row["state"]),
            origin=WebhookOrigin(row["origin"]),
            created_at=from_epoch_milliseconds(row["created_at"]),
            updated_at=from_epoch_milliseconds(row["updated_at"]),
            expires_at=column_to_instant(row["expires_at"]),
            last_delivery_at=column_to_instant(row["last_delivery_at"]),
            last_error=row["last_error"],
            failing_since=column_to_instant(row["failing_since"]),
            breaker=row_to_breaker(row),
            missed_from=row["missed_from"],
        )


def _to_row(webhook: Webhook) -> dict[str, Any]:
    """Everything but the secrets."""
    return {
        "id": webhook.id,
        "principal": webhook.principal,
        "url": webhook.url,
        "events": json_to_column(sorted(webhook.events)),
        "upstream": webhook.upstream,
        "resource_uri": webhook.resource_uri,
        "tool": webhook.tool,
        "call_id": webhook.call_id,
        "client_session_id": webhook.client_session_id,
        "correlation_id": webhook.correlation_id,
        "match_correlation": webhook.match_correlation,
        "retries": webhook.retries,
        "include_result": webhook.include_result,
        "when": webhook.when,
        "ordered": webhook.ordered,
        "rate_per_second": webhook.rate_per_second,
        "description": webhook.description,
        "state": webhook.state,
        "origin": webhook.origin,
        "created_at": instant_to_column(webhook.created_at),
        "updated_at": instant_to_column(webhook.updated_at),
        "expires_at": instant_to_column(webhook.expires_at),
        **_health(webhook),
        "missed_from": webhook.missed_from,
    }


def _health(webhook: Webhook) -> dict[str, Any]:
    return {
        "last_delivery_at": instant_to_column(webhook.last_delivery_at),
        "last_error": webhook.last_error,
        "failing_since": instant_to_column(webhook.failing_since),
        **breaker_to_row(webhook.breaker),
    }


def _encode_secrets(webhook: Webhook) -> bytes:
    """`[[value, ends_at], …]`, newest first."""
    return jsontext.dumps([(secret.value, instant_to_column(secret.ends_at)) for secret in webhook.secrets])


def secrets_associated_data(webhook_id: str) -> str:
    return f"webhooks/{webhook_id}/secrets"
