"""What the rules need from the world: narrow Protocols, implemented at the edges and handed in by bootstrap.

The store is asked in units of work:

    await store.write(work)     work(tx) runs in one transaction; its value is returned after the commit, never before
    await store.read(work)      the same on a snapshot that cannot be written

`work` is an async function that awaits nothing but its transaction. The SQLite store relies on that (it drives the coroutine to
its end without an event loop, and raises if it waits for anything else), which makes the third rule of the product, never hold
a transaction over the network, a thing that cannot be broken by mistake. A unit of work may be run again after a
serialisation failure, so it changes nothing but the store.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeVar

from ringback.domain.breaker import Breaker
from ringback.domain.call import Call, Progress, Status
from ringback.domain.catalog import CatalogRows
from ringback.domain.delivery import Attempt, Delivery, DeliveryState, Settled
from ringback.domain.event import Event, EventName
from ringback.domain.ids import CallId, DeliveryId, EventId, KeyId, WebhookId
from ringback.domain.joined_names import JoinedNameRows
from ringback.domain.principal import ApiKey, Principal
from ringback.domain.sealed import SealedRows
from ringback.domain.usage import UsageRows
from ringback.domain.verification import ChallengeRows, ProofRows
from ringback.domain.watches import WatchRows
from ringback.domain.webhook import Webhook

T = TypeVar("T")


# -- filters: what a list may be narrowed by -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFilter:
    client_session_id: str | None = None
    correlation_id: str | None = None
    status: Status | None = None
    upstream: str | None = None
    tool: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    name: EventName | None = None
    call_id: CallId | None = None
    client_session_id: str | None = None
    correlation_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryFilter:
    state: DeliveryState | None = None
    webhook_id: WebhookId | None = None
    call_id: CallId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstone:
    """What is kept of an expired call: enough to keep the promise of its idempotency key."""

    call_id: CallId
    principal: Principal
    idempotency_key: str | None
    request_hash: str
    expired_at: datetime


# -- rows: one Protocol for each noun, at most eight methods ---------------------------------------------------------------


class CallRows(Protocol):
    async def insert(self, call: Call) -> None: ...

    async def get(self, call_id: CallId) -> Call | None:
        """The call, locked against others until the transaction ends when this is a write."""
        ...

    async def by_idempotency_key(self, principal: Principal, key: str) -> Call | None: ...

    async def page(self, principal: Principal, where: CallFilter, *, before: str | None, limit: int) -> Sequence[Call]:
        """Newest first; `before` is the id of the last call of the previous page."""
        ...

    async def update(self, call: Call, *, expected: Status, lease_token: str | None) -> bool:
        """Write every changing column if the row still has the status `expected` and (when a token is given) that lease.

        False means that somebody else was first; nothing was written.
        """
        ...

    async def save_progress(self, call_id: CallId, progress: Progress, *, now: datetime, lease_token: str) -> bool: ...

    async def put_result(self, call_id: CallId, result: bytes) -> None: ...

    async def result(self, call_id: CallId) -> bytes | None: ...


class CallQueue(Protocol):
    """The same rows as the runner and the janitor see them."""

    async def lease(self, upstream: str, *, owner: str, token: str, until: datetime, limit: int) -> Sequence[Call]:
        """Lease queued calls of an upstream, in fair turns between principals, oldest first within each: they are running then.

        The turns go on from one lease to the next: the principal that was served longest ago comes first.
        """
        ...

    async def extend(self, owner: str, call_ids: Collection[CallId], *, until: datetime) -> Sequence[CallId]:
        """Prolong this owner's leases of these calls; the ids of those that it still holds."""
        ...

    async def lapsed(self, *, now: datetime, limit: int) -> Sequence[Call]:
        """Running calls that nobody drives any more: those whose lease ran out at or before `now`, and those without one."""
        ...

    async def overdue(self, *, now: datetime, limit: int) -> Sequence[Call]:
        """Queued and parked calls whose deadline has passed; whoever drives a call watches its deadline itself."""
        ...

    async def release_all(self) -> int:
        """Void every lease at once; how many. Only for a store that proves at start that no other process serves it.

        The calls stay running, and have lapsed: what becomes of them is `domain.recovery`'s to say.
        """
        ...

    async def expired(self, *, now: datetime, limit: int) -> Sequence[Call]: ...

    async def of_task(self, upstream: str, task_id: str) -> Call | None:
        """The call, of whatever principal, that follows or followed this task of the upstream's."""
        ...


class TombstoneRows(Protocol):
    async def bury(self, tombstone: Tombstone) -> None:
        """Remove the call with its result and leave the tombstone in its place; the call's own webhook expires with it."""
        ...

    async def get(self, principal: Principal, *, call_id: CallId | None, key: str | None) -> Tombstone | None:
        """By the call's id or by its idempotency key."""
        ...

    async def remove(self, *, older_than: datetime, limit: int) -> int: ...


class EventRows(Protocol):
    async def reserve(self, principal: Principal, count: int) -> int:
        """Lock the principal's log until commit and take `count` places; the first of them."""
        ...

    async def head(self, principal: Principal, *, lock: bool = False) -> int:
        """The last place taken; 0 for an empty log. With `lock`, nothing is appended until this transaction ends."""
        ...

    async def insert(self, event: Event) -> None: ...

    async def after(self, principal: Principal, seq: int, where: EventFilter, *, limit: int) -> Sequence[Event]:
        """Oldest first, with `event.seq > seq`."""
        ...

    async def last_before(self, principal: Principal, instant: datetime) -> int:
        """The last place taken before that instant; 0 when all that is kept was appended later."""
        ...

    async def horizon(self, principal: Principal) -> int:
        """The highest place that retention has removed; a cursor before it has missed something."""
        ...

    async def remove(self, *, older_than: datetime, limit: int) -> int:
        """Remove events made before, and raise the horizon to the last of them."""
        ...


class WebhookRows(Protocol):
    async def insert(self, webhook: Webhook) -> None: ...

    async def get(self, webhook_id: WebhookId) -> Webhook | None: ...

    async def by_ids(self, webhook_ids: Collection[WebhookId]) -> Sequence[Webhook]:
        """Those of them that there are, in any order."""
        ...

    async def page(self, principal: Principal, *, before: str | None, limit: int) -> Sequence[Webhook]: ...

    async def candidates(self, event: Event) -> Sequence[Webhook]:
        """A superset of the webhooks that hear the event; `domain.webhook.hears` decides."""
        ...

    async def update(self, webhook: Webhook) -> bool:
        """Write every changing column; False when it is gone."""
        ...

    async def delete(self, webhook_id: WebhookId) -> bool:
        """Remove it, and cancel what of it is still open."""
        ...

    async def remove_expired(self, *, now: datetime, limit: int) -> int:
        """Remove those that have expired, once nothing of theirs is open: a call's own webhook outlives its retries."""
        ...


class DeliveryRows(Protocol):
    async def insert(self, deliveries: Sequence[Delivery]) -> None: ...

    async def get(self, delivery_id: DeliveryId) -> Delivery | None: ...

    async def page(
        self, principal: Principal, where: DeliveryFilter, *, before: str | None, limit: int
    ) -> Sequence[Delivery]:
        """Newest first; `before` is the id of the last delivery of the previous page."""
        ...

    async def watermark(self, webhook_id: WebhookId) -> int | None:
        """The lowest `seq` among the webhook's open deliveries of the first generation; None when there is none.

        What is sent again was delivered or given up before, so a replay holds nothing back, and neither does a gap.
        """
        ...

    async def attempts(self, delivery_id: DeliveryId) -> Sequence[Attempt]:
        """Newest first."""
        ...

    async def supersede(self, call_id: CallId) -> None:
        """Cancel what is told of the call's progress and has not begun to be sent: something newer has happened."""
        ...

    async def spare(self, call_id: CallId) -> None:
        """Cancel what is to be told of the call to `detached` webhooks and was not tried yet: its client knows the end."""
        ...

    async def remove(self, *, older_than: datetime, limit: int) -> int:
        """Remove deliveries that ended before, with their attempts."""
        ...


class DeliveryLanes(Protocol):
    """The same rows as the lane of one webhook."""

    async def latest(self, webhook_id: WebhookId, event_ids: Sequence[EventId]) -> Sequence[Delivery]:
        """The latest generation of each of these events that was ever to be delivered to it, in the order asked for."""
        ...

    async def dead(self, webhook_id: WebhookId, *, limit: int) -> Sequence[Delivery]:
        """What was given up and not sent again since, oldest first. Tests are not among it: they are over when they are."""
        ...

    async def held(self, webhook_id: WebhookId, *, limit: int) -> int:
        """How many are held, counted up to `limit`."""
        ...

    async def release(self, webhook_id: WebhookId, *, now: datetime, limit: int) -> int:
        """Make what is held due now, oldest first; how many."""
        ...

    async def hold(self, webhook_id: WebhookId, *, limit: int) -> int:
        """Hold what waits for its turn; how many."""
        ...


class DeliveryQueue(Protocol):
    """The same rows as the dispatcher sees them."""

    async def lanes(self, *, now: datetime, without: Collection[WebhookId], limit: int) -> Sequence[WebhookId]:
        """Webhooks that have something due, but none of `without`: the one whose delivery has waited longest comes first."""
        ...

    async def lease(
        self, webhook_id: WebhookId, *, now: datetime, token: str, until: datetime, limit: int, ordered: bool
    ) -> Sequence[Delivery]:
        """Lease what is due for the webhook, oldest due first. Each row's `attempts` counts the attempt that the lease is for.

        With `ordered`, of those that share an order key only the first that is open, and only while none of them is leased.
        """
        ...

    async def settle(self, settled: Sequence[Settled]) -> Collection[DeliveryId]:
        """Write what became of deliveries whose lease still holds, and end it; their ids.

        Of the others somebody else decides, and nothing of them is written.
        """
        ...

    async def log(self, attempts: Sequence[Attempt]) -> None: ...

    async def give_up(self, webhook_id: WebhookId, *, now: datetime, limit: int) -> Sequence[Delivery]:
        """End what waits for the webhook and has reached its age; dead, as it is then."""
        ...

    async def next_due(self) -> datetime | None:
        """When the first pending delivery is due, which may have been a while ago."""
        ...


class DeliveryUpkeep(Protocol):
    """The same rows as the janitor sees them."""

    async def release_lapsed(self, *, now: datetime) -> int:
        """Make pending what was leased until `now` or before. It may have been sent: the attempt stays counted."""
        ...

    async def release_all(self) -> int:
        """The same with every lease. Only for a store that proves at start that no other process serves it."""
        ...

    async def give_up_held(self, *, now: datetime, limit: int) -> Sequence[Delivery]:
        """End what is held and has reached its age; dead, as it is then."""
        ...

    async def to_release(self, *, limit: int) -> Sequence[WebhookId]:
        """Active webhooks that have something held."""
        ...

    async def to_probe(self, *, now: datetime, limit: int) -> Sequence[WebhookId]:
        """Suspended webhooks whose breaker's pause is over, that have something held and nothing under way."""
        ...


class OriginRows(Protocol):
    """The breakers of origins; those of webhooks are the webhooks' own."""

    async def breakers(self, origins: Collection[str]) -> Mapping[str, Breaker]:
        """Of those among these that are not closed or have counted failures."""
        ...

    async def save(self, origin: str, breaker: Breaker) -> None:
        """A closed one without failures leaves no row."""
        ...

    async def remove(self, *, older_than: datetime, limit: int) -> int:
        """Remove those that have not changed since: nobody sends anything there any more."""
        ...


class KeyRows(Protocol):
    async def insert(self, key: ApiKey) -> None: ...

    async def by_hash(self, key_hash: str) -> ApiKey | None:
        """The key, revoked or not."""
        ...

    async def all(self) -> Sequence[ApiKey]: ...

    async def revoke(self, key_id: KeyId, *, now: datetime) -> bool: ...


class Transaction(Protocol):
    """One unit of work's view of the store."""

    @property
    def calls(self) -> CallRows: ...
    @property
    def call_queue(self) -> CallQueue: ...
    @property
    def tombstones(self) -> TombstoneRows: ...
    @property
    def events(self) -> EventRows: ...
    @property
    def webhooks(self) -> WebhookRows: ...
    @property
    def deliveries(self) -> DeliveryRows: ...
    @property
    def delivery_lanes(self) -> DeliveryLanes: ...
    @property
    def delivery_queue(self) -> DeliveryQueue: ...
    @property
    def delivery_upkeep(self) -> DeliveryUpkeep: ...
    @property
    def origins(self) -> OriginRows: ...
    @property
    def usage(self) -> UsageRows: ...
    @property
    def keys(self) -> KeyRows: ...
    @property
    def challenges(self) -> ChallengeRows: ...
    @property
    def proofs(self) -> ProofRows: ...
    @property
    def sealed(self) -> SealedRows: ...
    @property
    def catalog(self) -> CatalogRows: ...
    @property
    def watches(self) -> WatchRows: ...
    @property
    def joined_names(self) -> JoinedNameRows: ...

    def now(self) -> datetime:
        """The store's clock at the start of the transaction: the one that leases and due dates are compared with."""
        ...

    def ring(self, *topics: str) -> None:
        """Wake whoever listens to these topics, after the commit and only if it succeeds."""
        ...

    def at_end(self, action: Callable[[bool], None]) -> None:
        """Do this once it is known whether this unit was committed, which is what the action is told.

        For what has to move with the store and is not in it: the slots and bodies of deliveries that are born leased. A unit
        that is run again ends twice.
        """
        ...


class Store(Protocol):
    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T: ...

    async def read(self, work: Callable[[Transaction], Awaitable[T]]) -> T: ...

    @property
    def signals(self) -> "Signals": ...


# -- signals: who waits for what -------------------------------------------------------------------------------------------


class Bell(Protocol):
    async def wait(self, timeout_seconds: float) -> bool:
        """Wait until a topic rang since the last `wait` returned; False when the time ran out first.

        A hint, never the truth: whoever is woken looks at the store again, and whoever waits also looks now and then.
        """
        ...


class Signals(Protocol):
    def listen(self, *topics: str) -> AbstractContextManager[Bell]: ...


QUEUED = "calls"
"""Topic: a call was queued."""
DUE = "deliveries"
"""Topic: a delivery became due."""


def changed(call_id: CallId) -> str:
    """Topic: this call changed."""
    return f"call:{call_id}"


def cancelling(call_id: CallId) -> str:
    """Topic: this call's cancellation was asked for."""
    return f"cancel:{call_id}"


def answered(call_id: CallId) -> str:
    """Topic: one of this call's questions was answered."""
    return f"answer:{call_id}"


def appended(principal: Principal) -> str:
    """Topic: this principal's log grew."""
    return f"log:{principal}"


# -- the rest of the world -------------------------------------------------------------------------------------------------


class Sealer(Protocol):
    """Encryption at rest. `place` names table, row and column, so that a ciphertext is worth nothing anywhere else."""

    def seal(self, plaintext: bytes, *, place: str) -> bytes: ...

    def unseal(self, ciphertext: bytes, *, place: str) -> bytes: ...

    def is_current(self, ciphertext: bytes) -> bool:
        """Whether the newest key sealed it."""
        ...
