"""Webhooks, whose secrets are sealed; the calls that name them; catch-ups, change subscriptions, breakers of origins."""

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from ringback.domain.catch_up import CatchUp
from ringback.domain.change_subscriptions import ChangeSubject, ChangeSubscription, find_change_topic
from ringback.domain.circuit_breaker import CLOSED_BREAKER, REQUESTED_PROBE_SPACING_SECONDS, CircuitBreaker
from ringback.domain.cursor import Page
from ringback.domain.event import Event
from ringback.domain.ids import CallId, WebhookId
from ringback.domain.principal import Principal
from ringback.domain.webhook import Webhook, WebhookHealth, WebhookState, webhook_for_call
from ringback.domain.webhook_rows import ExpiryPosition, WebhookPart
from ringback.protocol.mcp_events.subscription_key import ARGUMENTS_BYTES_MAX
from ringback.storage.records import encode_headers
from ringback.storage.rows.columns import RECORDS, column_to_instant, instant_to_column, json_to_column
from ringback.storage.rows.paging import fetch_indexed_page, fetch_scanned_page
from ringback.storage.rows.unit import Pause, SqlRows
from ringback.storage.rows.webhook_matching import MatchKey, build_match_keys
from ringback.storage.rows.webhook_reader import NO_SECRETS, secrets_associated_data

_WEBHOOK: Final = RECORDS.webhook
_NEVER_STORED: Final = re.compile(r"[\0\ud800-\udfff]")

READ_AT_ONCE: Final = 128
"""Candidates read between two turns of the event loop: 3 ms if none of them is cached."""


class SqlWebhooks(SqlRows, noun="webhooks"):
    """Implements `domain.webhook_rows.WebhookRows` and `WebhookBatchRows`."""

    async def insert(self, webhook: Webhook) -> None:
        await self._sql.execute("insert", **self._seal_secrets(_WEBHOOK.encode(webhook), webhook))

    async def get(self, webhook_id: WebhookId) -> Webhook | None:
        row = await self._sql.fetch_one("get", id=webhook_id)
        return None if row is None else self._unit.webhook_reader.read_webhook(row)

    async def get_many(self, webhook_ids: Collection[WebhookId], *, lock: bool = False) -> Sequence[Webhook]:
        if not webhook_ids:
            return []
        sql = self._sql if lock else self._sql.without_locks()
        rows = await sql.fetch_all("by_ids", ids=self._sql.array(list(webhook_ids)))
        return [self._unit.webhook_reader.read_webhook(row) for row in rows]

    async def list_page(
        self,
        principal: Principal | None,
        health: WebhookHealth | None,
        *,
        state: WebhookState | None = None,
        position: str | None,
        limit: int,
    ) -> Page[Webhook, str]:
        owner, of_all = ({}, "_of_all") if principal is None else ({"principal": principal}, "")
        read = self._unit.webhook_reader.read_webhook
        if state is None:
            name = f"{'page' if health is None else 'page_of_failing'}{of_all}"
            return await fetch_indexed_page(self._sql, name, read, limit=limit, before=position, **owner)
        name = f"page_of_state{of_all}"
        return await fetch_scanned_page(
            self._sql, name, read, limit=limit, before=position, state=state, health=health, **owner
        )

    async def find_candidates(self, events: Sequence[Event], *, catching_up: bool) -> Sequence[Sequence[Webhook]]:
        principal = events[0].principal
        fields_in_use = await self._fields_in_use(principal, {event.name for event in events})
        keys_of = [list(build_match_keys(event, fields_in_use[event.name])) for event in events]
        matching = await self._find_matching(
            principal, {key for keys in keys_of for key in keys}, catching_up=catching_up
        )
        of_call = await self._find_call_webhooks(principal, events, catching_up=catching_up)
        return [
            _without_repetition([*of_call[event.call_id], *(webhook for key in keys for webhook in matching[key])])
            for event, keys in zip(events, keys_of, strict=True)
        ]

    async def _fields_in_use(self, principal: Principal, names: Collection[str]) -> Mapping[str, Sequence[int]]:
        found: defaultdict[str, list[int]] = defaultdict(list)
        for row in await self._sql.fetch_all(
            "fields_in_use", principal=principal, event_names=self._sql.array(list(names))
        ):
            found[row["event_name"]].append(row["fields"])
        return found

    async def _find_matching(
        self, principal: Principal, match_keys: Collection[MatchKey], *, catching_up: bool
    ) -> Mapping[MatchKey, Sequence[Webhook]]:
        """Registered webhooks that match events of these keys."""
        found: defaultdict[MatchKey, list[Webhook]] = defaultdict(list)
        if match_keys:
            keys = list(match_keys)
            rows = await self._sql.fetch_all(
                "matching",
                principal=principal,
                keys=json_to_column(keys),
                now=instant_to_column(self._unit.confirmed_now),
                catching_up=catching_up,
            )
            for number, row in enumerate(rows, 1):
                *columns, key_index = row
                if not number % READ_AT_ONCE:
                    await Pause()
                found[keys[key_index]].append(self._unit.webhook_reader.read_webhook(row, tuple(columns)))
        return found

    async def _find_call_webhooks(
        self, principal: Principal, events: Sequence[Event], *, catching_up: bool
    ) -> Mapping[str | None, Sequence[Webhook]]:
        """Webhooks that belong to these calls, and those that the calls name."""
        found: defaultdict[str | None, list[Webhook]] = defaultdict(list)
        call_ids = list({event.call_id for event in events if event.call_id is not None})
        if call_ids:
            rows = await self._sql.fetch_all(
                "of_calls", principal=principal, call_ids=self._sql.array(call_ids), catching_up=catching_up
            )
            for row in rows:
                *columns, call_id = row
                webhook = self._unit.webhook_reader.read_webhook(row, tuple(columns))
                found[call_id].append(webhook if webhook.call_id == call_id else webhook_for_call(webhook, call_id))
        return found

    async def update(self, webhook: Webhook, part: WebhookPart, *more: WebhookPart) -> bool:
        parts = (part, *more)
        changed = [await self._update_part(webhook, each) for each in parts]
        return sum(changed) == len(parts)

    async def update_many(self, changes: Sequence[tuple[Webhook, Collection[WebhookPart]]]) -> None:
        webhooks_by_part: defaultdict[WebhookPart, list[Webhook]] = defaultdict(list)
        for webhook, parts in sorted(changes, key=lambda change: change[0].id):  # every unit locks rows in this order
            for part in parts:
                webhooks_by_part[part].append(webhook)
        for part, webhooks in webhooks_by_part.items():
            await self._sql.execute_many(f"update_{part}", [self._encode_part(webhook, part) for webhook in webhooks])

    async def delete(self, webhook_id: WebhookId) -> bool:
        await self._sql.execute("cancel_open_deliveries", id=webhook_id, now=instant_to_column(self._unit.now))
        return await self._sql.execute("delete", id=webhook_id) == 1

    async def remove_expired(
        self, *, now: datetime, limit: int, after: ExpiryPosition | None = None
    ) -> Page[WebhookId, ExpiryPosition]:
        instant, webhook_id = after or (0, "")
        visited = await self._sql.fetch_all(
            "expired", now=instant_to_column(now), after_instant=instant, after_id=webhook_id, limit=limit
        )
        idle = [row for row in visited if not row["busy"]]
        # In the order of principals, whose counts of subscriptions change.
        removed = [row["id"] for row in sorted(idle, key=lambda row: (row["principal"], row["id"]))]
        await self._sql.execute_many("delete", [{"id": each} for each in removed])
        last = visited[-1] if len(visited) == limit else None
        return Page(removed, next_position=None if last is None else (last["expires_at"], last["id"]))

    async def _update_part(self, webhook: Webhook, part: WebhookPart) -> int:
        return await self._sql.execute(f"update_{part}", **self._encode_part(webhook, part))

    def _encode_part(self, webhook: Webhook, part: WebhookPart) -> dict[str, Any]:
        """Encode only what the statement writes. The health changes with every delivery, so it seals nothing."""
        return self._seal_secrets(_WEBHOOK.encode_for(self._sql.parameters(f"update_{part}"), webhook), webhook)

    def _seal_secrets(self, row: dict[str, Any], webhook: Webhook) -> dict[str, Any]:
        """Seal the secrets and the headers.

        Secrets that could not be read become NULL: the stored ones stay, in case that their key comes back.
        """
        if (secrets := row.get("secrets")) is not None:
            associated_data = secrets_associated_data(row["id"])
            plaintext = encode_headers(secrets, webhook.headers)
            row["secrets"] = (
                None if secrets == NO_SECRETS else self._unit.sealer.seal(plaintext, associated_data=associated_data)
            )
        return row


def _without_repetition(webhooks: Sequence[Webhook]) -> Sequence[Webhook]:
    """Each webhook once. One that a call names comes first and counts as the call names it, also if it matches the event."""
    first: dict[WebhookId, Webhook] = {}
    for webhook in webhooks:
        first.setdefault(webhook.id, webhook)
    return list(first.values())


class SqlRegisteredWebhooks(SqlRows, noun="registered_webhooks"):
    """Implements `domain.webhook_rows.RegisteredWebhookRows`."""

    async def find_by_name(self, principal: Principal, name: str) -> Webhook | None:
        row = await self._sql.fetch_one("by_name", principal=principal, name=name)
        return None if row is None else self._unit.webhook_reader.read_webhook(row)

    async def find_by_idempotency_key(self, principal: Principal, key: str) -> Webhook | None:
        row = await self._sql.fetch_one("by_idempotency_key", principal=principal, key=key)
        return None if row is None else self._unit.webhook_reader.read_webhook(row)


class SqlCallWebhooks(SqlRows, noun="call_webhooks"):
    """Implements `domain.webhook_rows.CallWebhookRows`."""

    async def add(self, call_id: CallId, webhook_id: WebhookId) -> None:
        await self._sql.execute("add", call_id=call_id, webhook_id=webhook_id)

    async def has_calls(self, webhook_id: WebhookId) -> bool:
        row = await self._sql.fetch_one("any_call", webhook_id=webhook_id)
        return row is not None and bool(row["any_call"])

    async def select_calls(self, webhook_id: WebhookId, call_ids: Collection[CallId]) -> Collection[CallId]:
        rows = await self._sql.fetch_all(
            "naming_calls", webhook_id=webhook_id, call_ids=self._sql.array(list(call_ids))
        )
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
        rows = await self._sql.fetch_all(
            "same_target",
            principal=principal,
            url=url,
            client_session_id=client_session_id,
            call_id=call_id,
            limit=limit,
        )
        return [self._unit.webhook_reader.read_webhook(row) for row in rows]


class SqlCatchUps(SqlRows, noun="catch_ups"):
    """Implements `domain.catch_up.CatchUpRows`."""

    async def get(self, webhook_id: WebhookId) -> CatchUp | None:
        return await self._sql.fetch_record("get", RECORDS.catch_up, webhook_id=webhook_id)

    async def find_next(self, *, after: str) -> CatchUp | None:
        found = await self._sql.fetch_record("next", RECORDS.catch_up, after=after)
        return found or await self._sql.fetch_record("next", RECORDS.catch_up, after="")

    async def find_next_of(self, principal: Principal, *, after: WebhookId) -> CatchUp | None:
        return await self._sql.fetch_record("next_of_principal", RECORDS.catch_up, principal=principal, after=after)

    async def save(self, *catch_ups: CatchUp) -> None:
        await self._sql.execute_many("save", [RECORDS.catch_up.encode(catch_up) for catch_up in catch_ups])

    async def remove(self, webhook_id: WebhookId) -> None:
        await self._sql.execute("remove", webhook_id=webhook_id)


class SqlChangeSubscriptions(SqlRows, noun="change_subscriptions"):
    """Implements `domain.change_subscriptions.ChangeSubscriptionRows`."""

    async def list_all(self, *, now: datetime) -> Collection[ChangeSubscription]:
        return await self._sql.fetch_records("all", RECORDS.change_subscription, now=instant_to_column(now))

    async def has_subscription(self, wanted: ChangeSubscription, *, now: datetime) -> bool:
        found = await self._sql.fetch_one(
            "has",
            principal=wanted.principal,
            upstream=wanted.upstream,
            resource_uri=wanted.resource_uri or "",
            topic=find_change_topic(wanted.upstream, wanted.resource_uri),
            now=instant_to_column(now),
        )
        return found is not None

    async def list_of_subjects(
        self, subjects: Collection[ChangeSubject], *, now: datetime
    ) -> Collection[ChangeSubscription]:
        rows = [
            (upstream, uri or "", find_change_topic(upstream, uri))
            for upstream, uri in subjects
            if uri is None or _may_be_stored(uri)
        ]
        return await self._sql.fetch_records(
            "of_subjects", RECORDS.change_subscription, subjects=json_to_column(rows), now=instant_to_column(now)
        )

    async def list_watched_resources(self, upstream: str, *, now: datetime) -> Collection[ChangeSubscription]:
        return await self._sql.fetch_records(
            "watched_resources", RECORDS.change_subscription, upstream=upstream, now=instant_to_column(now)
        )


def _may_be_stored(uri: str) -> bool:
    """False for some that only an upstream makes up: PostgreSQL takes neither U+0000 nor surrogates."""
    return len(uri) <= ARGUMENTS_BYTES_MAX and _NEVER_STORED.search(uri) is None


class SqlOriginBreakers(SqlRows, noun="origin_breakers"):
    """Implements `domain.webhook_rows.OriginBreakerRows`. A closed breaker has no row."""

    async def get_breakers(self, origins: Collection[str], *, lock: bool = False) -> Mapping[str, CircuitBreaker]:
        if not origins:
            return {}
        if lock:
            await self._sql.execute("lock_origins", origins=self._sql.array(sorted(origins)))
        rows = await self._sql.fetch_all("breakers", origins=self._sql.array(list(origins)))
        return {row["origin"]: RECORDS.circuit_breaker.decode(row) for row in rows}

    async def request_probe(self, origin: str, *, now: datetime) -> datetime | None:
        await self._sql.execute("lock_origins", origins=self._sql.array([origin]))
        row = await self._sql.fetch_one(
            "request_probe",
            origin=origin,
            now=instant_to_column(now),
            spacing=round(REQUESTED_PROBE_SPACING_SECONDS * 1000),
        )
        return None if row is None else column_to_instant(row["paused_until"])

    async def save_breaker(self, origin: str, breaker: CircuitBreaker) -> None:
        if breaker == CLOSED_BREAKER:
            await self._sql.execute("close", origin=origin)
        else:
            row = RECORDS.circuit_breaker.encode(breaker)
            await self._sql.execute("save", origin=origin, now=instant_to_column(self._unit.now), **row)

    async def remove(self, *, cutoff: datetime, limit: int) -> int:
        return await self._sql.execute("remove", older_than=instant_to_column(cutoff), limit=limit)
