"""The store, as the rules need it: implemented at the edge and handed in by bootstrap.

Each noun has its rows beside it (`domain.call_rows`, `domain.watches`, …): narrow Protocols, at most eight methods each. The
store is asked in units of work:

    await store.write(work)     work(tx) runs in one transaction; its value is returned after the commit, never before
    await store.read(work)      the same on a snapshot that cannot be written: a few rows, by their keys
    await store.scan(who, work) the same as read, beside the event loop: lists and counts

`work` is an async function that awaits nothing but its transaction. A long one pauses at places of its own choice. The SQLite
store relies on that (it drives the coroutine to its end, and raises if it waits for anything else), which makes the third rule
of the product, never hold a transaction over the network, a thing that cannot be broken by mistake. A unit of work may be run
again after a serialisation failure, so it changes nothing but the store.
"""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Protocol, TypeVar

from ringback.domain.call_rows import CallQueue, CallRows, TombstoneRows
from ringback.domain.catalog import CatalogRows
from ringback.domain.catch_up import CatchUpRows
from ringback.domain.delivery_rows import CallDeliveries, DeliveryLanes, DeliveryQueue, DeliveryRows, DeliveryUpkeep
from ringback.domain.event_rows import EventPlaces, EventRows
from ringback.domain.joined_names import JoinedNameRows
from ringback.domain.principal import KeyRows, Principal
from ringback.domain.sealed import SealedRows, SealingKeyRows
from ringback.domain.signals import Signals
from ringback.domain.usage import UsageRows
from ringback.domain.verification import ChallengeRows, ProofRows
from ringback.domain.watches import WatchRows
from ringback.domain.webhook_rows import OriginRows, WebhookRows
from ringback.domain.write_probe import WriteProbe

T = TypeVar("T")


class SchedulingTimeRow(Protocol):
    """How far scheduling time has come, for the process after this one."""

    async def last(self) -> datetime | None:
        """None in a store that nobody has served yet."""
        ...

    async def keep(self, now: datetime) -> None: ...


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
    def event_places(self) -> EventPlaces: ...
    @property
    def webhooks(self) -> WebhookRows: ...
    @property
    def catch_ups(self) -> CatchUpRows: ...
    @property
    def deliveries(self) -> DeliveryRows: ...
    @property
    def call_deliveries(self) -> CallDeliveries: ...
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
    def sealing_keys(self) -> SealingKeyRows: ...
    @property
    def write_probe(self) -> WriteProbe: ...
    @property
    def catalog(self) -> CatalogRows: ...
    @property
    def watches(self) -> WatchRows: ...
    @property
    def joined_names(self) -> JoinedNameRows: ...

    @property
    def scheduling_time(self) -> SchedulingTimeRow: ...

    def now(self) -> datetime:
        """The store's clock at the start of the transaction: the one that leases and due dates are compared with."""
        ...

    async def pause(self) -> None:
        """Let the event loop have a turn in the middle of a long unit of work. Its transaction stays open meanwhile.

        No other unit runs in that turn, but everything else does: what a unit has read from memory may have changed after it.
        """
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

    async def scan(self, principal: Principal | None, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """The same as `read`, beside the event loop: for lists and counts, which may visit thousands of rows.

        `work` runs in another thread, so it touches nothing but its transaction and values. Scans wait in turns between
        principals (None: the service itself), so one who asks for many lists makes nobody else's wait for them all.
        """
        ...

    @property
    def signals(self) -> Signals: ...

    @property
    def exclusive(self) -> bool:
        """Whether opening it has proven that no other process serves it.

        Then leases of other owners are void, whatever the clock says; else only those are that have run out.
        """
        ...
