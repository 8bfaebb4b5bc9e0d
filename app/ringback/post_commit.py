"""New work passes from the transaction that creates it to the worker that carries it out, without a query of the store.

    producer, in its transaction ── the worker has capacity ──▶ the row is inserted as leased
                                 └─ it has none, or none is attached ──▶ the row is inserted as queued or pending
    the transaction commits      ──▶ the worker begins the work, with the values that are still in memory
    it is rolled back            ──▶ the worker's capacity is free again

Two producers use this: `services.calls.calls` passes new calls to the runner, `notifier.fan_out` passes new deliveries to the
dispatcher. The lease is an ordinary one: if the process dies, it expires and the work is leased again.
"""

from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Generic, Protocol, TypeVar

from ringback.domain.call import Call
from ringback.domain.clock import Clock
from ringback.domain.delivery import Delivery
from ringback.domain.ports import Transaction
from ringback.domain.principal import Principal
from ringback.domain.webhook import Webhook

T = TypeVar("T")


class PostCommitHandoff(Generic[T]):
    """Holds the function by which the worker of this process grants leases."""

    def __init__(self) -> None:
        self.consumer: T | None = None
        """None while no worker runs: all new work is then inserted as queued or pending."""

    @contextmanager
    def attach(self, consumer: T) -> Generator[None]:
        self.consumer = consumer
        try:
            yield
        finally:
            self.consumer = None


UNUSED_TOKENS_KEPT: Final = 10_000
"""More leases than one node grants in the transactions that are open at once; it limits the memory for them."""
UNUSED_SECONDS: Final = 60.0
"""How long after the loss of its connection a database may still commit: longer than any statement may take."""


class UnusedLeases:
    """Leases for which this process began no work, because their transaction was rolled back as far as it knows.

    If the connection was lost during the commit, the rows may be leased all the same. The holder finds them by these tokens.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._unused: deque[tuple[float, str, Sequence[str]]] = deque(maxlen=UNUSED_TOKENS_KEPT)

    def watch(self, tx: Transaction, token: str, ids: Sequence[str] = ()) -> str:
        """The token, which this transaction writes, and which is unused if the transaction is rolled back.

        `ids` are of the leased rows; they may be added to the list until the transaction ends.
        """
        tx.on_rollback(lambda: self._unused.append((self._clock.monotonic(), token, ids)))
        return token

    def list_tokens(self) -> Sequence[str]:
        """The tokens that became unused within `UNUSED_SECONDS`."""
        while self._unused and self._unused[0][0] < self._clock.monotonic() - UNUSED_SECONDS:
            self._unused.popleft()
        return [token for _, token, _ in self._unused]

    def list_ids(self) -> Sequence[str]:
        """The rows of these tokens."""
        return [each for _, _, ids in self._unused for each in ids]


class CallLeases(Protocol):
    """Leases calls within one transaction."""

    async def lease_queued(self, tx: Transaction, upstream: str, *, starter: Principal | None = None) -> Sequence[Call]:
        """Lease as many of the upstream's queued calls as it has capacity for; returns these.

        None, and no query, while the principal that starts a call (`starter`) has all the capacity that one may have.
        """
        ...

    async def lease_new(
        self, tx: Transaction, call: Call, *, may_dispatch: bool, starter_goes_first: bool = False
    ) -> Call | None:
        """The new call with its lease, for the caller to insert; None if it must queue behind others or lacks capacity.

        With `may_dispatch` the call is also marked as dispatched, if its request will be sent as soon as the transaction has
        committed. That saves the commit of `dispatched_at`. If the process dies in between, the call ends as `unknown` and is
        not queued again, although nothing was sent. So it is only for a call of which no client knows yet.

        With `starter_goes_first`, its execution begins after the commit, and sends nothing before the next step of the task
        that has started the call.
        """
        ...


PrepareCallLeases = Callable[[], CallLeases]
"""Called before the transaction begins, because the holder counts its lease from before the store grants it."""


@dataclass(frozen=True, slots=True)
class DeliveryLease:
    """The lease with which a delivery is inserted if its attempt begins right after the commit."""

    owner: str
    token: str
    until: datetime
    hand_off: Callable[[Delivery], None]
    """Takes the delivery that the lease is for; called in the same transaction."""


GrantDeliveryLease = Callable[[Transaction, Webhook], DeliveryLease | None]

CallHandoff = PostCommitHandoff[PrepareCallLeases]
DeliveryHandoff = PostCommitHandoff[GrantDeliveryLease]
