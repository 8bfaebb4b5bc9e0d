"""Leasing what is queued, in whatever unit of work it is asked for: the runner's own, or one that starts a call.

lease ──committed──▶ begun: its place is taken until it is left
  └─────undone─────▶ its place is free again

Whoever finds no room for all that is queued leaves a note, so that a place which becomes free is offered to the queue only
where somebody may be waiting: a call that ends on an idle upstream costs no look at the store.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ringback.domain.call import Call, CallPhase
from ringback.domain.clock import Clock, seconds
from ringback.domain.ids import IdGenerator
from ringback.domain.ports import Transaction
from ringback.services.births import LeaseQueued

BeginCall = Callable[[Call, float], None]
"""Take a leased call, and until when (by `Clock.monotonic`) its lease is trusted. Must not fail."""


class CallLeasing:
    def __init__(
        self,
        *,
        ids: IdGenerator,
        clock: Clock,
        owner: str,
        lease_seconds: float,
        trust_window_seconds: float,
        capacity: Callable[[], Mapping[str, int]],
        begin_call: BeginCall,
    ) -> None:
        self.capacity_freed = asyncio.Event()
        """Set when a place has become free for which somebody may be waiting."""
        self._ids = ids
        self._clock = clock
        self._owner = owner
        self._lease_seconds = lease_seconds
        self._trust_seconds = trust_window_seconds
        self._capacity = capacity
        self._begin_call = begin_call
        self._in_use: Counter[str] = Counter()
        """Places of calls that run here, or will once their lease is committed."""
        self._possibly_queued: set[str] = set()
        """Upstreams for which more may be queued than there was room for."""

    def find_upstreams_with_capacity(self) -> Sequence[str]:
        """Upstreams that take more calls now. For the others more may be queued, which nobody looks for until they do."""
        upstreams = self._capacity()
        with_room = [upstream for upstream in upstreams if self._free_capacity(upstream) > 0]
        self._possibly_queued.update(set(upstreams).difference(with_room))
        return with_room

    def prepare_lease(self) -> LeaseQueued:
        """For one unit of work that begins after this: the store counts from its beginning, the holder from now."""
        return _Leases(self, self._clock.monotonic() + self._trust_seconds)

    def release_capacity(self, upstream: str) -> None:
        """A call that was begun runs no more."""
        self._in_use[upstream] -= 1
        if upstream in self._possibly_queued:
            self.capacity_freed.set()

    async def lease(self, tx: Transaction, upstream: str, *, trusted_until: float) -> Sequence[Call]:
        if (free := self._free_capacity(upstream)) <= 0:
            self._possibly_queued.add(upstream)
            return []
        leased = await tx.call_queue.lease_queued(
            upstream,
            owner=self._owner,
            token=self._ids.new_lease_token(),
            until=tx.now() + seconds(self._lease_seconds),
            limit=free,
        )
        self._in_use[upstream] += len(leased)
        tx.on_end(partial(self._on_transaction_end, upstream, leased, trusted_until))
        if len(leased) < free:
            self._possibly_queued.discard(upstream)
        else:
            self._possibly_queued.add(upstream)
        return leased

    async def lease_new(self, tx: Transaction, call: Call, *, trusted_until: float) -> Call | None:
        """As `LeaseQueued.at_birth`: in place of inserting the call, looking for it, changing it and reading it again."""
        upstream = call.upstream
        if self._free_capacity(upstream) <= 0 or not await tx.call_queue.take_turn(upstream, call.principal):
            return None
        leased = replace(
            call,
            phase=CallPhase.RUNNING,
            lease_owner=self._owner,
            lease_token=self._ids.new_lease_token(),
            lease_until=tx.now() + seconds(self._lease_seconds),
        )
        self._in_use[upstream] += 1
        self._possibly_queued.discard(upstream)
        tx.on_end(partial(self._on_transaction_end, upstream, [leased], trusted_until))
        return leased

    def _on_transaction_end(self, upstream: str, leased: Sequence[Call], trusted_until: float, committed: bool) -> None:  # noqa: FBT001 - what `at_end` tells
        if not committed:
            self._in_use[upstream] -= len(leased)
            self._possibly_queued.add(upstream)
            return
        for call in leased:
            self._begin_call(call, trusted_until)

    def _free_capacity(self, upstream: str) -> int:
        return self._capacity().get(upstream, 0) - self._in_use[upstream]


@dataclass(frozen=True, slots=True)
class _Leases:
    """Implements `services.births.LeaseQueued`."""

    leasing: CallLeasing
    trusted_until: float

    async def __call__(self, tx: Transaction, upstream: str, /) -> Sequence[Call]:
        return await self.leasing.lease(tx, upstream, trusted_until=self.trusted_until)

    async def at_birth(self, tx: Transaction, call: Call, /) -> Call | None:
        return await self.leasing.lease_new(tx, call, trusted_until=self.trusted_until)
