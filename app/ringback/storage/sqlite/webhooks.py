"""Webhooks, as rows; their secrets are sealed."""

import logging
import sqlite3
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from ringback.domain import jsontext
from ringback.domain.clock import from_epoch_milliseconds
from ringback.domain.event import Event, EventName
from ringback.domain.ids import WebhookId
from ringback.domain.pages import Page
from ringback.domain.principal import Principal
from ringback.domain.retry import Profile
from ringback.domain.sealed import Sealer
from ringback.domain.webhook import Origin, Webhook, WebhookSecret, WebhookState, When, without_secrets
from ringback.domain.webhook_rows import ExpiredPlace, WebhookPart
from ringback.signing.sealing import UnsealError
from ringback.storage.queries import load
from ringback.storage.sqlite.columns import from_instant, from_json, to_instant
from ringback.storage.sqlite.database import Statements
from ringback.storage.sqlite.matching import MatchKey, match_keys
from ringback.storage.sqlite.origins import from_breaker, to_breaker
from ringback.storage.sqlite.pauses import Pause

log = logging.getLogger(__name__)

_SQL: Final = load("ringback.storage.sqlite", "sql/webhooks.sql")

READ_KEPT: Final = 4096
"""Webhooks kept as values, some 2 KB each. Reading one anew takes 25 µs, comparing its row 2 (measured)."""
READ_AT_ONCE: Final = 128
"""Candidates read between two turns of the event loop: 3 ms if all of them are read anew."""


class SqliteWebhooks:
    """Implements `domain.webhook_rows.WebhookRows`."""

    def __init__(
        self, connection: sqlite3.Connection, *, sealer: Sealer, reader: "WebhookReader", now: datetime
    ) -> None:
        self._sql = Statements(connection, _SQL)
        self._sealer = sealer
        self._reader = reader
        self._now = now

    async def insert(self, webhook: Webhook) -> None:
        self._sql.change("insert", **_to_row(webhook), secrets=self._sealed(webhook))

    async def get(self, webhook_id: WebhookId) -> Webhook | None:
        row = self._sql.one("get", id=webhook_id)
        return None if row is None else self._reader.read(row)

    async def by_ids(self, webhook_ids: Collection[WebhookId]) -> Sequence[Webhook]:
        return [self._reader.read(row) for row in self._sql.all("by_ids", ids=from_json(list(webhook_ids)))]

    async def page(self, principal: Principal, *, before: str | None, limit: int) -> Sequence[Webhook]:
        rows = self._sql.all("page", principal=principal, before=before, limit=limit)
        return [self._reader.read(row) for row in rows]

    async def candidates(self, events: Sequence[Event], *, catching_up: bool) -> Sequence[Sequence[Webhook]]:
        principal = events[0].principal
        fields_in_use = self._fields_in_use(principal, {event.name for event in events})
        keys_of = [list(match_keys(event, fields_in_use[event.name])) for event in events]
        matching = await self._matching(principal, {key for keys in keys_of for key in keys}, catching_up=catching_up)
        of_call = self._of_calls(principal, events)
        return [
            [*of_call[event.call_id], *(webhook for key in keys for webhook in matching[key])]
            for event, keys in zip(events, keys_of, strict=True)
        ]

    def _fields_in_use(self, principal: Principal, names: Collection[EventName]) -> Mapping[str, Sequence[int]]:
        found: defaultdict[str, list[int]] = defaultdict(list)
        for row in self._sql.all("fields_in_use", principal=principal, event_names=from_json(list(names))):
            found[row["event_name"]].append(row["fields"])
        return found

    async def _matching(
        self, principal: Principal, wanted: Collection[MatchKey], *, catching_up: bool
    ) -> Mapping[MatchKey, Sequence[Webhook]]:
        """Those that were registered and hear the events of these keys."""
        found: defaultdict[MatchKey, list[Webhook]] = defaultdict(list)
        if wanted:
            keys = list(wanted)
            rows = self._sql.all(
                "matching",
                principal=principal,
                keys=from_json(keys),
                now=from_instant(self._now),
                catching_up=catching_up,
            )
            for number, row in enumerate(rows, 1):
                *columns, place = row
                if not number % READ_AT_ONCE:
                    await Pause()
                found[keys[place]].append(self._reader.read(row, tuple(columns)))
        return found

    def _of_calls(self, principal: Principal, events: Sequence[Event]) -> Mapping[str | None, Sequence[Webhook]]:
        """Those that came with these calls."""
        found: defaultdict[str | None, list[Webhook]] = defaultdict(list)
        call_ids = list({event.call_id for event in events if event.call_id is not None})
        if call_ids:
            for row in self._sql.all("of_calls", principal=principal, call_ids=from_json(call_ids)):
                found[row["call_id"]].append(self._reader.read(row))
        return found

    async def update(self, webhook: Webhook, part: WebhookPart, *more: WebhookPart) -> bool:
        parts = (part, *more)
        return sum(self._sql.change(f"update_{each}", **self._decided(webhook, each)) for each in parts) == len(parts)

    async def delete(self, webhook_id: WebhookId) -> bool:
        self._sql.change("cancel_open_deliveries", id=webhook_id, now=from_instant(self._now))
        return self._sql.change("delete", id=webhook_id) == 1

    async def remove_expired(
        self, *, now: datetime, limit: int, after: ExpiredPlace | None = None
    ) -> Page[WebhookId, ExpiredPlace]:
        instant, webhook_id = after or (0, "")
        visited = self._sql.all(
            "expired", now=from_instant(now), after_instant=instant, after_id=webhook_id, limit=limit
        )
        gone = [row["id"] for row in visited if not row["busy"]]
        self._sql.change_each("delete", [{"id": each} for each in gone])
        last = visited[-1] if len(visited) == limit else None
        return Page(gone, next_place=None if last is None else (last["expires_at"], last["id"]))

    def _decided(self, webhook: Webhook, part: WebhookPart) -> dict[str, Any]:
        """What the statement of this part needs. The health changes with every delivery, so nothing is sealed for it."""
        match part:
            case WebhookPart.HEALTH:
                return {"id": webhook.id, **_health(webhook)}
            case WebhookPart.SECRETS:
                return {
                    "id": webhook.id,
                    "secrets": self._sealed(webhook),
                    "updated_at": from_instant(webhook.updated_at),
                }
            case _:
                return _to_row(webhook)

    def _sealed(self, webhook: Webhook) -> bytes | None:
        """None for secrets that could not be read: what is there stays, in case that its key is put back."""
        if not webhook.secrets:
            return None
        return self._sealer.seal(_secrets_text(webhook), place=place_of_secrets(webhook.id))


class WebhookReader:
    """From rows to values, each row once.

    Every event reads all webhooks that might hear it, and hardly ever one that has changed. The same row is the same webhook,
    so what was read stays; what was rolled back, or written by another process, shows in the row itself.
    """

    def __init__(self, sealer: Sealer) -> None:
        self._sealer = sealer
        self._read: dict[str, tuple[tuple[Any, ...], Webhook]] = {}

    def read(self, row: sqlite3.Row, columns: tuple[Any, ...] | None = None) -> Webhook:
        """`columns` are the webhook's own, where the row has more."""
        columns = columns or tuple(row)
        known = self._read.pop(row["id"], None)  # and put back behind all others
        if known is None or known[0] != columns:
            known = columns, self._to_webhook(row)
            if len(self._read) >= READ_KEPT:
                del self._read[next(iter(self._read))]
        self._read[row["id"]] = known
        return known[1]

    def _to_webhook(self, row: sqlite3.Row) -> Webhook:
        try:
            secrets = self._sealer.unseal(row["secrets"], place=place_of_secrets(row["id"]))
        except UnsealError:
            log.warning("webhook.secrets_unreadable", extra={"webhook_id": row["id"]})
            return without_secrets(self._with_secrets(row, b"[]"))
        return self._with_secrets(row, secrets)

    def _with_secrets(self, row: sqlite3.Row, secrets: bytes) -> Webhook:
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
                WebhookSecret(value=value, ends_at=to_instant(ends_at)) for value, ends_at in jsontext.loads(secrets)
            ),
            retries=Profile(row["retries"]),
            include_result=bool(row["include_result"]),
            when=When(row["when"]),
            ordered=bool(row["ordered"]),
            rate_per_second=row["rate_per_second"],
            description=row["description"],
            state=WebhookState(row["state"]),
            origin=Origin(row["origin"]),
            created_at=from_epoch_milliseconds(row["created_at"]),
            updated_at=from_epoch_milliseconds(row["updated_at"]),
            expires_at=to_instant(row["expires_at"]),
            last_delivery_at=to_instant(row["last_delivery_at"]),
            last_error=row["last_error"],
            failing_since=to_instant(row["failing_since"]),
            breaker=to_breaker(row),
            missed_from=row["missed_from"],
        )


def _to_row(webhook: Webhook) -> dict[str, Any]:
    """Everything but the secrets."""
    return {
        "id": webhook.id,
        "principal": webhook.principal,
        "url": webhook.url,
        "events": from_json(sorted(webhook.events)),
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
        "created_at": from_instant(webhook.created_at),
        "updated_at": from_instant(webhook.updated_at),
        "expires_at": from_instant(webhook.expires_at),
        **_health(webhook),
        "missed_from": webhook.missed_from,
    }


def _health(webhook: Webhook) -> dict[str, Any]:
    return {
        "last_delivery_at": from_instant(webhook.last_delivery_at),
        "last_error": webhook.last_error,
        "failing_since": from_instant(webhook.failing_since),
        **from_breaker(webhook.breaker),
    }


def _secrets_text(webhook: Webhook) -> bytes:
    """`[[value, ends_at], …]`, newest first."""
    return jsontext.dumps([(secret.value, from_instant(secret.ends_at)) for secret in webhook.secrets])


def place_of_secrets(webhook_id: str) -> str:
    return f"webhooks/{webhook_id}/secrets"
