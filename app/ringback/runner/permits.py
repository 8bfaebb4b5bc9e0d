"""Permits of calls: as many calls as an upstream runs at once (`max_concurrent`) hold one.

    lease ──▶ permit ──▶ tools/call ──▶ result ──▶ released
                ▲            └──▶ 429 ──▶ given back, for a pause of at most an hour
                └──────── the next free permit ◀───────────┘

One principal holds three quarters of an upstream's permits at most: its calls may run for hours, and turns between principals
are of use only when a permit becomes free. Its further calls stay in the queue, and those of others pass them. A transaction
that queries the queue reserves permits before it knows whose calls it leases: until then, they count for every principal.

This limit applies while several principals can start calls (`key_owner_watch`). A single one has all permits, which nobody else
wants. Once there is a second one, the first one gets no permit beyond its three quarters, and keeps those that its calls have:
if these are all permits, the first calls of the second principal wait until one of these calls ends.

A call that its upstream refuses because of too many requests waits without a permit, so that one principal, whose credentials
are throttled, does not keep the calls of all others. Once a quarter as many calls of a principal wait so as the upstream runs
at once, its queued calls stay in the queue: each would be sent and refused, too. Beyond `WAITING_PRINCIPALS_MAX` principals
or `PAUSED_CALLS_MAX` calls, calls wait with their permits.
"""

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from ringback.domain.call import Call
from ringback.domain.principal import Principal
from ringback.upstreams.dispatch_records import WAITING_PRINCIPALS_MAX

LEFT_DIVISOR: Final = 4
"""Of the permits of an upstream: one principal leaves so many to others, and at least one if there are several."""
PAUSED_DIVISOR: Final = 4
"""Of the permits of an upstream: so many calls of a principal may wait. Its other tools go on while one is throttled."""
PAUSED_CALLS_MAX: Final = 1_000
"""Calls that wait without a permit for one upstream: it may refuse those of all principals. Each is in memory, and with
`isolation: call` it holds a session."""


class Permits:
    """Counts the permits of all upstreams, and the calls that wait without one."""

    def __init__(self, get_capacity: Callable[[], Mapping[str, int]], *, has_several_principals: bool) -> None:
        """`get_capacity` returns how many calls each upstream runs at once."""
        self.has_several_principals = has_several_principals
        """Whether one principal leaves permits to others. If it no longer does, calls that waited may have permits at once."""
        self._get_capacity = get_capacity
        self._in_use: Counter[str] = Counter()
        self._of_principals: defaultdict[str, Counter[Principal]] = defaultdict(Counter)
        """By upstream and principal: those of `_in_use` that calls have."""
        self._paused: defaultdict[str, Counter[Principal]] = defaultdict(Counter)
        """By upstream and principal: calls that wait without a permit."""
        self._returning: defaultdict[str, deque[_ReturningCall]] = defaultdict(deque)
        """By upstream: calls whose pause is over, in the order in which they get permits."""

    def count_free(self, upstream: str) -> int:
        return self._get_capacity().get(upstream, 0) - self._in_use[upstream]

    def count_in_use(self) -> int:
        """Of all upstreams together."""
        return self._in_use.total()

    def count_each(self, upstream: str) -> int:
        """How many permits of the upstream one principal may have, if those of unknown calls become its own."""
        capacity = self._get_capacity().get(upstream, 0)
        if not self.has_several_principals or capacity < 2:  # noqa: PLR2004 - one permit is not shared
            return capacity
        unknown = self._in_use[upstream] - sum(self.count_of_principals(upstream).values())
        return capacity - max(1, capacity // LEFT_DIVISOR) - unknown

    def count_of_principals(self, upstream: str) -> Mapping[Principal, int]:
        """How many permits of the upstream each principal has; those with none are left out."""
        return self._of_principals.get(upstream, {})

    def is_full(self, upstream: str, principal: Principal) -> bool:
        """Whether the principal has as many permits of the upstream as one may have."""
        return self.count_of_principals(upstream).get(principal, 0) >= self.count_each(upstream)

    def has_full(self, upstream: str) -> bool:
        """Whether there is such a principal."""
        count_max = self.count_each(upstream)
        return count_max <= 0 or any(calls >= count_max for calls in self.count_of_principals(upstream).values())

    def reserve(self, upstream: str, calls: int) -> None:
        """Take permits for calls that are not known yet."""
        self._in_use[upstream] += calls

    def free_reserved(self, upstream: str, calls: int) -> None:
        self._in_use[upstream] -= calls
        self.admit_paused_calls(upstream)

    def assign(self, upstream: str, principal: Principal) -> None:
        """Give a reserved permit to a call of the principal."""
        self._of_principals[upstream][principal] += 1

    def unassign(self, upstream: str, principal: Principal) -> None:
        """Take a permit from a call. It stays reserved."""
        of_principals = self._of_principals[upstream]
        of_principals[principal] -= 1
        if not of_principals[principal]:
            del of_principals[principal]

    def release(self, upstream: str, principal: Principal) -> None:
        """Take back the permit of a call."""
        self.unassign(upstream, principal)
        self.free_reserved(upstream, 1)

    def admit_paused_calls(self, upstream: str) -> None:
        """Give free permits to calls whose pause is over. Call it, too, once an upstream may run more calls than before."""
        returning = self._returning.get(upstream)
        while returning and self.count_free(upstream) > 0:
            if (found := self._find_returning(upstream, returning)) is None:
                return
            returning.remove(found)
            self.reserve(upstream, 1)
            self.assign(upstream, found.principal)
            found.admitted.set_result(None)

    def _find_returning(self, upstream: str, returning: "deque[_ReturningCall]") -> "_ReturningCall | None":
        """The one that waits longest of those whose principal may have one more permit."""
        of_principals, count_max = self.count_of_principals(upstream), self.count_each(upstream)
        return next(
            (
                each
                for each in returning
                if not each.admitted.done() and of_principals.get(each.principal, 0) < count_max
            ),
            None,
        )

    async def reacquire_permit(
        self, upstream: str, principal: Principal, *, give_back: Callable[[str, Principal], None]
    ) -> None:
        """Acquire a permit after a pause, once one is free. `give_back` gets the one that comes with a cancellation."""
        returning = _ReturningCall(principal, asyncio.get_running_loop().create_future())
        self._returning[upstream].append(returning)
        self.admit_paused_calls(upstream)
        try:
            await returning.admitted
        except asyncio.CancelledError:
            if returning.admitted.cancelled():
                self._returning[upstream].remove(returning)
            else:
                give_back(upstream, principal)
            raise

    def may_pause(self, upstream: str, principal: Principal) -> bool:
        """Whether a call of the principal may wait without a permit."""
        paused = self._paused[upstream]
        if paused.total() >= PAUSED_CALLS_MAX:
            return False
        return principal in paused or len(paused) < WAITING_PRINCIPALS_MAX

    def begin_pause(self, upstream: str, principal: Principal) -> None:
        self._paused[upstream][principal] += 1

    def end_pause(self, upstream: str, principal: Principal) -> None:
        self._paused[upstream][principal] -= 1
        if not self._paused[upstream][principal]:
            del self._paused[upstream][principal]

    def is_held(self, upstream: str, principal: Principal) -> bool:
        """Whether so many calls of the principal wait that its queued ones stay in the queue."""
        return principal in self.list_held(upstream)

    def list_held(self, upstream: str) -> Sequence[Principal]:
        paused = self._paused.get(upstream)
        if not paused:
            return []
        paused_max = max(1, self._get_capacity().get(upstream, 0) // PAUSED_DIVISOR)
        return [principal for principal, calls in paused.items() if calls >= paused_max]


@dataclass(frozen=True, slots=True, eq=False)
class _ReturningCall:
    """A call that waits for a permit after its pause."""

    principal: Principal
    admitted: asyncio.Future[None]


class CallPermit:
    """The permit of one running call."""

    def __init__(
        self,
        permits: Permits,
        call: Call,
        *,
        give_back: Callable[[str, Principal], None],
        on_pause_end: Callable[[], None],
        leave_to_others: Callable[[], None],
    ) -> None:
        """`give_back` gives the principal's permit of the upstream to another call.

        `leave_to_others` keeps calls of the principal in the queue, for other nodes.
        """
        self.leave_to_others = leave_to_others
        self._permits = permits
        self._upstream = call.upstream
        self._principal = call.principal
        self._give_back = give_back
        self._on_pause_end = on_pause_end
        self._is_held = True
        self._is_paused = False
        self._has_ended = False

    def release(self) -> None:
        """Give the permit back for good: the execution of the call has ended. Its transport may wait a moment longer."""
        self._has_ended = True
        self._release_if_held()
        self._end_pause()

    @asynccontextmanager
    async def given_back(self) -> AsyncGenerator[None]:
        """Give the permit back during the block, and wait for another one after it; not if the block raises.

        It is kept if too many calls wait already.
        """
        if not self._permits.may_pause(self._upstream, self._principal):
            yield
            return
        self._is_paused = True
        self._permits.begin_pause(self._upstream, self._principal)
        try:
            self._release_if_held()
            yield
            await self._permits.reacquire_permit(self._upstream, self._principal, give_back=self._give_back)
            self._is_held = True
            if self._has_ended:
                self._release_if_held()
        finally:
            self._end_pause()

    def _end_pause(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self._permits.end_pause(self._upstream, self._principal)
            self._on_pause_end()

    def _release_if_held(self) -> None:
        if self._is_held:
            self._is_held = False
            self._give_back(self._upstream, self._principal)
