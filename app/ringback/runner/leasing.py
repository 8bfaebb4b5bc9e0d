"""Leases queued calls, in a transaction of the runner or in one that starts a call.

lease ──committed────▶ the execution begins; its capacity is in use until `release_capacity`
  └─────rolled back──▶ the capacity is free again

The execution of a call that is inserted as dispatched begins during the commit, and sends nothing until it is done
(`held_execution`).

On PostgreSQL several transactions of this process are open at once. So a transaction reserves capacity before it queries the
store, and gives back afterwards what it does not use. If another one found too little capacity meanwhile, the runner looks
again. The same holds for the capacity that one principal may have (`permits`).

An upstream whose queue may hold more calls than it had capacity for is remembered. Capacity that becomes free wakes the runner
only for such an upstream: a call that ends on an idle upstream costs no query of the store.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial

from ringback.domain.call import Call, CallPhase, copy_call
from ringback.domain.clock import Clock, seconds
from ringback.domain.ids import IdGenerator
from ringback.domain.ports import Transaction
from ringback.domain.principal import Principal
from ringback.domain.signals import CALL_QUEUED_TOPIC, Waiter
from ringback.notifier.unsendable_deliveries import LEFT_TO_OTHERS_SECONDS
from ringback.post_commit import CallLeases, UnusedLeases
from ringback.runner.held_execution import HeldExecution
from ringback.runner.permits import CallPermit, Permits
from ringback.waits import LocalWaiter

HoldCall = Callable[[Call, float], HeldExecution]
"""Takes a leased call and the time until which its lease is trusted (by `Clock.monotonic`). Must not raise."""


class PossibleCallers(Enum):
    """Whose calls the runner may get: several principals share an upstream (`permits`), a single one has all of it."""

    ONE = auto()
    """Without authentication, every caller is the same principal."""
    KEY_OWNERS = auto()
    """The principals with valid API keys: the store has them."""
    ANYBODY = auto()
    """All to whom an identity provider gives an access token. No node knows how many they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerConfig:
    owner: str
    """Names this process in leases."""
    lease_seconds: float = 30.0
    heartbeat_seconds: float = 10.0
    lease_margin_seconds: float = 5.0
    """The holder stops trusting a lease this long before it ends: for clocks that drift.
    A request that is sent later is committed first, which needs the lease."""
    poll_seconds: float = 5.0
    """The longest delay that a lost notification can cause."""
    drain_seconds: float = 10.0
    """How long calls in flight may go on after the runner is stopped."""
    possible_callers: PossibleCallers = PossibleCallers.ANYBODY

    def __post_init__(self) -> None:
        if self.trust_window_seconds < 2 * self.heartbeat_seconds:
            raise ValueError(
                "lease_seconds must be at least twice heartbeat_seconds and the margin, so that a heartbeat may be missed"
            )

    @property
    def trust_window_seconds(self) -> float:
        """How long the holder trusts a lease, counted from the moment before it requests the lease."""
        return self.lease_seconds - self.lease_margin_seconds


class CallLeasing:
    def __init__(
        self,
        *,
        ids: IdGenerator,
        clock: Clock,
        config: RunnerConfig,
        get_capacity: Callable[[], Mapping[str, int]],
        can_send_at_once: Callable[[Call], bool],
        hold_call: HoldCall,
        is_shared: bool,
    ) -> None:
        """`is_shared` says that other nodes lease from the same queue."""
        self.waiter: Waiter | None = None
        """Notified when capacity becomes free for which a queued call may be waiting."""
        self.unused = UnusedLeases(clock)
        """Leases that may exist in the store although their calls were not begun."""
        self._ids = ids
        self._clock = clock
        self._config = config
        self._get_capacity = get_capacity
        may_be_several = config.possible_callers is not PossibleCallers.ONE
        self.permits = Permits(get_capacity, has_several_principals=may_be_several)
        """Those in use are of calls that run here, or will once their lease is committed."""
        self._can_send_at_once = can_send_at_once
        self._hold_call = hold_call
        self._is_shared = is_shared
        self._left_until: dict[tuple[str, Principal], float] = {}
        """Principals whose calls of an upstream this node cannot read and others can, and until when it leases none of them."""
        self._possibly_queued: set[str] = set()
        """Upstreams whose queue may hold more calls than they had capacity for."""
        self._refusals: Counter[str] = Counter()
        """By upstream: how often a transaction found too little capacity, for all principals or for one."""
        self._releases: Counter[str] = Counter()
        """By upstream: how often capacity became free."""
        self._uncommitted_dispatches = 0
        """Calls that an open transaction inserts as dispatched."""
        self._dispatch_settled = LocalWaiter()

    def find_upstreams_with_capacity(self) -> Sequence[str]:
        """Upstreams that take more calls now. The others are remembered as possibly queued."""
        upstreams = self._get_capacity()
        for upstream in upstreams:
            self.permits.admit_paused_calls(upstream)  # a principal may have more permits than before
        with_capacity = [upstream for upstream in upstreams if self.permits.count_free(upstream) > 0]
        for upstream in set(upstreams).difference(with_capacity):
            self._note_refusal(upstream)
        return with_capacity

    def set_principals(self, *, are_several: bool) -> None:
        """Note whether several principals can start calls. What waited because there were several begins at once."""
        had_several, self.permits.has_several_principals = self.permits.has_several_principals, are_several
        if had_several and not are_several:
            self._wake_runner()

    def prepare_leases(self) -> CallLeases:
        """For one transaction that begins later: the store counts a lease from its beginning, the holder from now."""
        return _PreparedLeases(self, self.new_trust_deadline())

    def new_trust_deadline(self) -> float:
        """Until when a lease that is requested now is trusted, by `Clock.monotonic`."""
        return self._clock.monotonic() + self._config.trust_window_seconds

    def make_permit(self, call: Call) -> CallPermit:
        """The permit of a call that is leased here."""
        return CallPermit(
            self.permits,
            call,
            give_back=self.release_capacity,
            on_pause_end=self._wake_runner,
            leave_to_others=partial(self._leave_to_others, call),
        )

    def release_capacity(self, upstream: str, principal: Principal) -> None:
        """Give back the permit of a principal's call of this upstream that has ended or waits."""
        self.permits.release(upstream, principal)
        self._releases[upstream] += 1
        if upstream in self._possibly_queued:
            self._wake_runner()

    async def find_queued_upstreams(self, tx: Transaction, upstreams: Sequence[str]) -> Sequence[str]:
        """Those of the upstreams that may have queued calls: one statement for all, because mostly none has any.

        They are in the order of their names. The transaction locks turns of each, and the nodes may have configured their
        upstreams in different orders.
        """
        if len(upstreams) == 1:
            return upstreams
        refusals = {upstream: self._refusals[upstream] for upstream in upstreams}
        queued = await tx.call_queue.find_queued_upstreams(upstreams)
        for upstream in upstreams:
            if upstream not in queued and self._refusals[upstream] == refusals[upstream]:
                self._possibly_queued.discard(upstream)
        return sorted(set(upstreams).intersection(queued))

    async def lease_queued(
        self, tx: Transaction, upstream: str, *, trusted_until: float, starter: Principal | None = None
    ) -> Sequence[Call]:
        free = self.permits.count_free(upstream)
        if free <= 0 or (starter is not None and self.permits.is_full(upstream, starter)):
            self._note_refusal(upstream)
            return []
        limit_each = self.permits.count_each(upstream)
        running = dict(self.permits.count_of_principals(upstream))
        reservation = self._reserve(tx, upstream, free)
        releases = self._releases[upstream]
        leased = await tx.call_queue.lease_queued(
            upstream,
            owner=self._config.owner,
            token=self.unused.watch(tx, self._ids.new_lease_token()),
            until=tx.now() + seconds(self._config.lease_seconds),
            limit=free,
            limit_each=limit_each,
            running=running,
            without=[*self.permits.list_held(upstream), *self._list_left(upstream)],
        )
        reservation.assign(self.permits, leased)
        full = _find_full(limit_each, running, leased)
        may_have_rest = len(leased) == free or limit_each <= 0 or bool(full)
        if not may_have_rest:
            self._possibly_queued.discard(upstream)
        elif self._releases[upstream] != releases:
            self._wake_runner()  # capacity became free while this transaction did not know that it leases too little
        if self._is_shared and leased and (len(leased) == free or any(call.principal in full for call in leased)):
            tx.notify(CALL_QUEUED_TOPIC)  # another node that skipped the calls leased here may have got too few
        self._give_back(reservation, keep=len(leased))
        if may_have_rest:
            self._note_refusal(upstream)
            reservation.refusals = self._refusals[upstream]
        self._begin_on_commit(tx, leased, trusted_until=trusted_until)
        return leased

    async def lease_new(
        self,
        tx: Transaction,
        call: Call,
        *,
        may_dispatch: bool,
        trusted_until: float,
        starter_goes_first: bool = False,
    ) -> Call | None:
        """Lease a call before it is inserted: one statement instead of an insert, a query, an update and a read."""
        upstream = call.upstream
        if self.permits.count_free(upstream) <= 0:
            self._note_refusal(upstream)
            return None
        if self.permits.is_held(upstream, call.principal) or self.permits.is_full(upstream, call.principal):
            return None
        reservation = self._reserve(tx, upstream, 1)
        reservation.assign(self.permits, [call])
        if not await tx.call_queue.take_turn(upstream, call.principal):
            self._give_back(reservation, keep=0)
            return None
        dispatches = may_dispatch and self._can_send_at_once(call)
        leased = copy_call(
            call,
            phase=CallPhase.RUNNING,
            lease_owner=self._config.owner,
            lease_token=self.unused.watch(tx, self._ids.new_lease_token()),
            lease_until=tx.now() + seconds(self._config.lease_seconds),
            dispatched_at=tx.now() if dispatches else None,
            runs=1 if dispatches else 0,
        )
        if dispatches:
            self._count_uncommitted_dispatch(tx)
        if dispatches and not starter_goes_first:
            self._begin_during_commit(tx, leased, trusted_until=trusted_until)
        else:
            self._begin_on_commit(tx, [leased], trusted_until=trusted_until)
        if self._refusals[upstream] == reservation.refusals and not self.permits.has_full(upstream):
            self._possibly_queued.discard(upstream)
        return leased

    async def wait_for_uncommitted_dispatches(self) -> None:
        """Return when no open transaction inserts a dispatched call: each execution that it begins must be able to begin."""
        while self._uncommitted_dispatches:
            await self._dispatch_settled.wait()

    def _count_uncommitted_dispatch(self, tx: Transaction) -> None:
        def end_dispatch() -> None:
            self._uncommitted_dispatches -= 1
            self._dispatch_settled.notify()

        self._uncommitted_dispatches += 1
        tx.on_rollback(end_dispatch)
        tx.on_commit(end_dispatch)

    def _reserve(self, tx: Transaction, upstream: str, calls: int) -> "_Reservation":
        reservation = _Reservation(upstream, calls, refusals=self._refusals[upstream])
        self.permits.reserve(upstream, calls)
        tx.on_rollback(partial(self._undo_reservation, reservation))
        return reservation

    def _give_back(self, reservation: "_Reservation", *, keep: int) -> None:
        """Free what the transaction does not use, and let the runner look if another found too little because of it."""
        upstream = reservation.upstream
        if not keep:
            reservation.unassign(self.permits)
        self._free(upstream, reservation.calls - keep)
        reservation.calls = keep
        if self._refusals[upstream] != reservation.refusals:
            self._possibly_queued.add(upstream)
            self._wake_runner()

    def _undo_reservation(self, reservation: "_Reservation") -> None:
        reservation.unassign(self.permits)
        self._free(reservation.upstream, reservation.calls)
        self._possibly_queued.add(reservation.upstream)
        if self._refusals[reservation.upstream] != reservation.refusals:
            self._wake_runner()

    def _begin_on_commit(self, tx: Transaction, leased: Sequence[Call], *, trusted_until: float) -> None:
        for call in leased:
            tx.on_commit(partial(self._begin_committed, call, trusted_until))

    def _begin_committed(self, call: Call, trusted_until: float) -> None:
        self._hold_call(call, trusted_until).confirm()

    def _begin_during_commit(self, tx: Transaction, leased: Call, *, trusted_until: float) -> None:
        held = self._hold_call(leased, trusted_until)
        tx.on_committing(held.begin)
        tx.on_commit(held.confirm)
        tx.on_rollback(held.cancel)

    def _leave_to_others(self, call: Call) -> None:
        self._left_until[call.upstream, call.principal] = self._clock.monotonic() + LEFT_TO_OTHERS_SECONDS

    def _list_left(self, upstream: str) -> Sequence[Principal]:
        now = self._clock.monotonic()
        self._left_until = {key: until for key, until in self._left_until.items() if until > now}
        return [principal for of_upstream, principal in self._left_until if of_upstream == upstream]

    def _note_refusal(self, upstream: str) -> None:
        self._refusals[upstream] += 1
        self._possibly_queued.add(upstream)

    def _free(self, upstream: str, calls: int) -> None:
        self.permits.free_reserved(upstream, calls)
        self._releases[upstream] += 1

    def _wake_runner(self) -> None:
        if self.waiter is not None:
            self.waiter.notify()


@dataclass(slots=True)
class _Reservation:
    """Capacity that one transaction has taken."""

    upstream: str
    calls: int
    refusals: int
    """As many transactions had found too little capacity for the upstream when this one took it."""
    principals: list[Principal] = field(default_factory=list[Principal])
    """Of the calls that have it."""

    def assign(self, permits: Permits, calls: Sequence[Call]) -> None:
        for call in calls:
            permits.assign(self.upstream, call.principal)
            self.principals.append(call.principal)

    def unassign(self, permits: Permits) -> None:
        for principal in self.principals:
            permits.unassign(self.upstream, principal)
        self.principals.clear()


@dataclass(frozen=True, slots=True)
class _PreparedLeases:
    """Implements `post_commit.CallLeases`."""

    leasing: CallLeasing
    trusted_until: float

    async def lease_queued(self, tx: Transaction, upstream: str, *, starter: Principal | None = None) -> Sequence[Call]:
        return await self.leasing.lease_queued(tx, upstream, trusted_until=self.trusted_until, starter=starter)

    async def lease_new(
        self, tx: Transaction, call: Call, *, may_dispatch: bool, starter_goes_first: bool = False
    ) -> Call | None:
        return await self.leasing.lease_new(
            tx,
            call,
            may_dispatch=may_dispatch,
            trusted_until=self.trusted_until,
            starter_goes_first=starter_goes_first,
        )


def _find_full(limit_each: int, running: Mapping[Principal, int], leased: Sequence[Call]) -> Collection[Principal]:
    """Principals that have as many calls as the query allowed: further ones may be in the queue."""
    calls = Counter(running)
    calls.update(call.principal for call in leased)
    return {principal for principal, count in calls.items() if count >= limit_each}
