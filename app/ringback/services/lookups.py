"""Find what an id or a key names: a call, a delivery, an event, a webhook, an upstream's task, a session or a correlation id.

Each kind is one read by an index. An operator finds rows of all principals by ids; the keys that clients choose are unique for
one principal only, so an operator finds them among its own and among the latest calls.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ringback.domain.call import LABEL_LENGTH_MAX, Call
from ringback.domain.call_completion import REPORTED_KEY_PREFIX
from ringback.domain.call_rows import CallFilter
from ringback.domain.errors import InvalidRequest
from ringback.domain.ids import CallId, DeliveryId, EventId, WebhookId, is_webhook_id, is_well_formed_id
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Caller, Principal, Scope
from ringback.domain.upstreams import ToolCatalog

LOOKUP_LENGTH_MAX: Final = 300
"""Characters: more than the longest key that a client chooses."""
UPSTREAMS_TRIED_MAX: Final = 100
DELIVERIES_FOUND_MAX: Final = 20


class FoundKind(StrEnum):
    CALL = "call"
    DELIVERY = "delivery"
    WEBHOOK = "webhook"
    SESSION = "client session"
    CORRELATION = "correlation id"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    kind: FoundKind
    id: str
    by: str
    """What the searched text is of it: `idempotency key`, `webhook-id`, …"""
    client_session_id: str | None = None
    note: str = ""
    """A name by which a reader distinguishes it from others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupResult:
    found: Sequence[Found]
    tried: Sequence[str]
    """What the text was compared with, in words."""


class Lookups:
    def __init__(self, *, store: Store, catalog: ToolCatalog) -> None:
        self._store = store
        self._catalog = catalog

    async def find(self, caller: Caller, text: str) -> LookupResult:
        """Raises `InvalidRequest` for a text that is no id and no key. `caller` may be the caller of a list."""
        caller.require_scope(Scope.READ)
        text = text.strip()
        if not text or len(text) > LOOKUP_LENGTH_MAX or not text.isprintable():
            raise InvalidRequest(f"Enter an id or a key of at most {LOOKUP_LENGTH_MAX} printable characters.")
        upstreams = [
            info.name
            for info in self._catalog.list_upstreams(caller.principal)[:UPSTREAMS_TRIED_MAX]
            if caller.upstreams is None or info.name in caller.upstreams
        ]
        search = _Search(caller, text, upstreams)
        return await self._store.scan(caller.principal, search.run)


class _Search:
    def __init__(self, caller: Caller, text: str, upstreams: Sequence[str]) -> None:
        self._principal = caller.principal
        self._listed_principal = caller.listed_principal
        self._text = text
        self._upstreams = upstreams

    async def run(self, tx: Transaction) -> LookupResult:
        found: list[Found] = []
        tried: list[str] = []
        for name, look_up in self._choose_steps():
            tried.append(name)
            found += await look_up(tx)
        unique = {(each.kind, each.id): each for each in reversed(found)}
        return LookupResult(found=list(reversed(unique.values())), tried=tried)

    def _choose_steps(self) -> Sequence[tuple[str, Callable[[Transaction], Awaitable[Sequence[Found]]]]]:
        """An id of ours is only what it says; any other text can be each of the keys that clients and upstreams choose."""
        text = self._text
        if is_well_formed_id("call", text):
            return [("call id", self._find_call)]
        if self._delivery_id is not None:
            return [("delivery id or webhook-id", self._find_delivery)]
        if is_webhook_id(text):
            return [("webhook id", self._find_webhook)]
        if is_well_formed_id("evt", text):
            return [("event id (webhook-id)", self._find_event)]
        return [
            ("event id (webhook-id)", self._find_event),
            ("idempotency key", self._find_key),
            ("key of a reported call", self._find_reported_key),
            ("task id at an upstream", self._find_task),
            ("client session", self._find_session),
            ("correlation id", self._find_correlation),
        ]

    @property
    def _delivery_id(self) -> DeliveryId | None:
        """The delivery of this id, or of the webhook-id of a control envelope: `msg_gap_…` is sent by `dlv_…`."""
        head, _, tail = self._text.rpartition("_")
        delivery_id = f"dlv_{tail}" if head == "dlv" or head.startswith("msg_") else ""
        return DeliveryId(delivery_id) if is_well_formed_id("dlv", delivery_id) else None

    def _is_visible(self, principal: Principal) -> bool:
        return self._listed_principal is None or principal == self._listed_principal

    async def _find_call(self, tx: Transaction) -> Sequence[Found]:
        return self._show_call(await tx.calls.get(CallId(self._text)), "call id")

    async def _find_key(self, tx: Transaction) -> Sequence[Found]:
        call = await tx.calls.find_by_idempotency_key(self._principal, self._text)
        return self._show_call(call, "idempotency key")

    async def _find_reported_key(self, tx: Transaction) -> Sequence[Found]:
        call = await tx.calls.find_by_idempotency_key(self._principal, REPORTED_KEY_PREFIX + self._text)
        return self._show_call(call, "key of a reported call")

    async def _find_task(self, tx: Transaction) -> Sequence[Found]:
        found: list[Found] = []
        for upstream in self._upstreams:
            call = await tx.call_queue.find_by_task(upstream, self._text, principal=self._listed_principal)
            found += self._show_call(call, f"task id at {upstream}")
        return found

    async def _find_delivery(self, tx: Transaction) -> Sequence[Found]:
        delivery = await tx.deliveries.get(self._delivery_id or DeliveryId(""))
        if delivery is None or not self._is_visible(delivery.principal):
            return ()
        return [
            Found(kind=FoundKind.DELIVERY, id=delivery.id, by="delivery id or webhook-id", note=str(delivery.state)),
            *([] if delivery.call_id is None else self._show_call(await tx.calls.get(delivery.call_id), "its call")),
        ]

    async def _find_webhook(self, tx: Transaction) -> Sequence[Found]:
        webhook = await tx.webhooks.get(WebhookId(self._text))
        if webhook is None or not self._is_visible(webhook.principal):
            return ()
        return [
            Found(
                kind=FoundKind.WEBHOOK,
                id=webhook.id,
                by="webhook id",
                client_session_id=webhook.client_session_id,
                note=str(webhook.state),
            )
        ]

    async def _find_event(self, tx: Transaction) -> Sequence[Found]:
        deliveries = await tx.call_histories.list_of_event(
            self._listed_principal, EventId(self._text), limit=DELIVERIES_FOUND_MAX
        )
        found = [
            Found(
                kind=FoundKind.DELIVERY,
                id=delivery.id,
                by="webhook-id",
                note=f"{delivery.state}, {delivery.webhook_id}",
            )
            for delivery in deliveries
        ]
        for call_id in {delivery.call_id for delivery in deliveries if delivery.call_id is not None}:
            found += self._show_call(await tx.calls.get(call_id), "call of the event")
        return found

    async def _find_session(self, tx: Transaction) -> Sequence[Found]:
        return await self._find_label(tx, FoundKind.SESSION, CallFilter(client_session_id=self._text))

    async def _find_correlation(self, tx: Transaction) -> Sequence[Found]:
        return await self._find_label(tx, FoundKind.CORRELATION, CallFilter(correlation_id=self._text))

    async def _find_label(self, tx: Transaction, kind: FoundKind, where: CallFilter) -> Sequence[Found]:
        if len(self._text) > LABEL_LENGTH_MAX:
            return ()
        page = await tx.calls.list_page(self._listed_principal, where, position=None, limit=1)
        return [
            Found(kind=kind, id=self._text, by=str(kind), client_session_id=call.client_session_id, note="of calls")
            for call in page
        ]

    def _show_call(self, call: Call | None, by: str) -> Sequence[Found]:
        if call is None or not self._is_visible(call.principal):
            return ()
        return [
            Found(
                kind=FoundKind.CALL,
                id=call.id,
                by=by,
                client_session_id=call.client_session_id,
                note=f"{call.upstream} / {call.tool}, {call.outcome or call.status}",
            )
        ]
