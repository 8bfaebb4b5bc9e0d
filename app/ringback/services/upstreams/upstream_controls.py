"""Pause, drain and resume upstreams. The store keeps what an operator decided, so it holds for all nodes and after a restart.

paused      new calls are accepted and queued; no call is leased (the store sees to that in `CallQueue`), and one that waits
            unsent after HTTP 429 goes back to the queue (`runner.execution`)
draining    new calls are refused here; queued and running ones continue
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from ringback.domain.call import Call
from ringback.domain.clock import Clock
from ringback.domain.errors import StoreUnavailable, UpstreamDraining
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Caller, Scope
from ringback.domain.signals import CALL_QUEUED_TOPIC
from ringback.domain.upstream_pauses import waits_while_paused
from ringback.domain.upstream_rows import UpstreamControl, UpstreamIntake
from ringback.domain.upstreams import SkippedUpstream, ToolCatalog
from ringback.services.audit import record_change
from ringback.services.unserved_upstreams import find_skipped, make_not_found

log = logging.getLogger(__name__)

REREAD_SECONDS: Final = 1.0
"""How long another node may go on accepting calls of an upstream that is drained. Starting a call costs no query for it.

Texts about calls of a paused upstream may be out of date for as long."""


_OPERATIONS: Final = {
    UpstreamIntake.OPEN: "resume_upstream",
    UpstreamIntake.PAUSED: "pause_upstream",
    UpstreamIntake.DRAINING: "drain_upstream",
}


class UpstreamControls:
    def __init__(self, *, store: Store, clock: Clock, catalog: ToolCatalog) -> None:
        self._store = store
        self._clock = clock
        self._catalog = catalog
        self._intakes: Mapping[str, UpstreamIntake] = {}
        self._reread_at: float | None = None
        """By `Clock.monotonic`; None before the first reading."""
        self._is_rereading = False
        self._changes = 0
        """Changes of this node. A reading that began before the last one may be without it."""

    async def set_intake(self, caller: Caller, upstream: str, intake: UpstreamIntake) -> None:
        """Decide which calls the upstream takes, from the commit on. The caller needs the scope `admin`.

        Raises `NotFound` for an upstream that the caller's key may not use, and for one that is not configured and was never
        paused or drained.
        """
        caller.require_scope(Scope.ADMIN)

        async def save(tx: Transaction) -> Sequence[UpstreamControl]:
            if intake is UpstreamIntake.OPEN:
                await tx.upstream_controls.remove(upstream)
            else:
                await tx.upstream_controls.save(UpstreamControl(upstream=upstream, intake=intake, changed_at=tx.now()))
            await record_change(tx, caller, _OPERATIONS[intake], upstream)
            tx.notify(CALL_QUEUED_TOPIC)  # the runners lease what was queued meanwhile
            return await tx.upstream_controls.list_all()

        await self._require_upstream(caller, upstream)
        controls = await self._store.write(save)
        self._changes += 1
        self._store_controls(controls)
        log.info("upstream.intake_changed", extra={"upstream": upstream, "intake": str(intake), "by": caller.principal})

    def find_skipped(self, upstream: str) -> SkippedUpstream | None:
        """The entry of the configuration that would have this name and is not served."""
        return find_skipped(self._catalog, upstream)

    async def read_intakes(self) -> Mapping[str, UpstreamIntake]:
        """The upstreams that are not open."""
        changes = self._changes
        controls = await self._store.read(lambda tx: tx.upstream_controls.list_all())
        if changes == self._changes:
            self._store_controls(controls)
        return self._intakes

    async def require_not_draining(self, upstream: str) -> None:
        """Raise `UpstreamDraining` if the upstream takes no new calls, as read at most `REREAD_SECONDS` ago."""
        if self._is_outdated():
            await self.read_intakes()
        if self._intakes.get(upstream) is UpstreamIntake.DRAINING:
            raise UpstreamDraining(
                f"Upstream '{upstream}' is being drained by an operator: calls that it has continue, and new ones are refused. "
                "Nothing was started. Try again once it is resumed.",
                upstream=upstream,
            )

    async def is_paused(self, call: Call) -> bool:
        """Whether the call waits because an operator has paused its upstream, as read about `REREAD_SECONDS` ago. For texts.

        One caller at a time reads. The others, and all of them while the store does not respond, get what is known.
        """
        if not waits_while_paused(call):
            return False
        if self._is_outdated() and not self._is_rereading:
            await self._reread()
        return self._intakes.get(call.upstream) is UpstreamIntake.PAUSED

    async def _reread(self) -> None:
        self._is_rereading = True
        try:
            with suppress(StoreUnavailable):
                await self.read_intakes()
        finally:
            self._is_rereading = False

    def _is_outdated(self) -> bool:
        return self._reread_at is None or self._clock.monotonic() >= self._reread_at

    async def _require_upstream(self, caller: Caller, upstream: str) -> None:
        is_known = self._catalog.has_upstream(upstream) or upstream in await self.read_intakes()
        if not (is_known and caller.may_use_upstream(upstream)):
            raise make_not_found(self._catalog, caller, upstream)

    def _store_controls(self, controls: Sequence[UpstreamControl]) -> None:
        self._intakes = {each.upstream: each.intake for each in controls}
        self._reread_at = self._clock.monotonic() + REREAD_SECONDS
