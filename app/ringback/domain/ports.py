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
from typing import Final, Protocol, TypeVar

from ringback.domain.call_rows import CallQueue, CallRows, TombstoneRows
from ringback.domain.catch_up import CatchUpRows
from ringback.domain.change_subscriptions import ChangeSubscriptionRows
from ringback.domain.delivery_rows import (
    CallDeliveries,
    DeliveryMaintenance,
    DeliveryQueue,
    DeliveryRows,
    WebhookDeliveries,
)
from ringback.domain.encryption import SealedRows, SealingKeyRows
from ringback.domain.event_rows import EventLogRows, EventRows
from ringback.domain.principal import ApiKeyRows, Principal
from ringback.domain.signals import Signals
from ringback.domain.upstream_rows import CatalogRows, ToolAliasRows
from ringback.domain.usage import UsageRows
from ringback.domain.verification import ChallengeRows, ProofRows
from ringback.domain.webhook_rows import OriginBreakerRows, WebhookRows

# Whether the store would keep what it is given: readiness and `ringback doctor` ask before somebody's call has to find out.

PROBE_BYTES: Final = 32 * 1024
"""As much as the rows, indexes and events of a usual call take. A smaller write may fit into space that SQLite already has."""
DISK_FREE_BYTES_MIN: Final = 16 * 1024 * 1024
"""Four of the largest requests that are read by default. A disk with less refuses some of them soon, if not the next one."""


class WriteProbe(Protocol):
    async def write_probe_row(self) -> None:
        """Write `PROBE_BYTES`, in one row that is written again each time.

        Raises `StoreUnavailable` when the disk has less than `FREE_BYTES_MIN` left. What the write itself meets, this method or
        the commit of its unit of work raises.
        """
        ...


T = TypeVar("T")


class SchedulingTimeRow(Protocol):
    """How far scheduling time has come, for the process after this one."""

    async def load(self) -> datetime | None:
        """None in a store that nobody has served yet."""
        ...

    async def save(self, now: datetime) -> None: ...


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
    def event_log(self) -> EventLogRows: ...
    @property
    def webhooks(self) -> WebhookRows: ...
    @property
    def catch_ups(self) -> CatchUpRows: ...
    @property
    def deliveries(self) -> DeliveryRows: ...
    @property
    def call_deliveries(self) -> CallDeliveries: ...
    @property
    def webhook_deliveries(self) -> WebhookDeliveries: ...
    @property
    def delivery_queue(self) -> DeliveryQueue: ...
    @property
    def delivery_maintenance(self) -> DeliveryMaintenance: ...
    @property
    def origin_breakers(self) -> OriginBreakerRows: ...
    @property
    def usage(self) -> UsageRows: ...
    @property
    def api_keys(self) -> ApiKeyRows: ...
    @property
    def challenges(self) -> ChallengeRows: ...
    @property
    def proofs(self) -> ProofRows: ...
    @property
    def sealed_values(self) -> SealedRows: ...
    @property
    def sealing_keys(self) -> SealingKeyRows: ...
    @property
    def write_probe(self) -> WriteProbe: ...
    @property
    def catalog(self) -> CatalogRows: ...
    @property
    def change_subscriptions(self) -> ChangeSubscriptionRows: ...
    @property
    def tool_aliases(self) -> ToolAliasRows: ...

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

    def notify(self, *topics: str) -> None:
        """Wake whoever listens to these topics, after the commit and only if it succeeds."""
        ...

    def on_commit(self, action: Callable[[], None]) -> None:
        """Run the action once this transaction is committed. Actions run in the order in which they were added."""
        ...

    def on_rollback(self, action: Callable[[], None]) -> None:
        """Run the action once this transaction is rolled back: it frees what memory holds for rows that now do not exist.

        A transaction that is run again after a rollback adds its actions again.
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
    def is_exclusive(self) -> bool:
        """Whether opening it has proven that no other process serves it.

        Then leases of other owners are void, whatever the clock says; else only those are that have run out.
        """
        ...
