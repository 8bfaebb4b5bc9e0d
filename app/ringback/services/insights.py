"""Insights: read models that every surface shares."""

from collections.abc import Sequence
from dataclasses import dataclass

from ringback.domain.clock import Clock
from ringback.domain.errors import NotFound
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Caller, Scope
from ringback.domain.upstreams import Catalog, ToolInfo, UpstreamInfo
from ringback.domain.usage import Totals
from ringback.services.lifecycle import Lifecycle
from ringback.services.quotas import QuotaKeeper
from ringback.services.readiness import WriteCheck


@dataclass(frozen=True, slots=True, kw_only=True)
class Vitals:
    totals: Totals
    oldest_due_age_seconds: float
    """How long the delivery that has waited longest is overdue; 0 when none is."""
    upstreams: Sequence[UpstreamInfo]
    open_streams: int


class Insights:
    def __init__(
        self, *, store: Store, clock: Clock, catalog: Catalog, quotas: QuotaKeeper, lifecycle: Lifecycle
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._quotas = quotas
        self._lifecycle = lifecycle
        self._write_check = WriteCheck(store=store, clock=clock)

    def upstreams(self, caller: Caller) -> Sequence[UpstreamInfo]:
        caller.require(Scope.READ)
        return [info for info in self._catalog.upstreams() if caller.may_use(info.name)]

    async def tools(self, caller: Caller, upstream: str) -> Sequence[ToolInfo]:
        if upstream not in {info.name for info in self.upstreams(caller)}:
            raise NotFound(f"There is no upstream '{upstream}'. List them: GET /v1/upstreams")
        return await self._catalog.tools(upstream)

    async def vitals(self, caller: Caller) -> Vitals:
        """How the whole service is doing. It tells of all principals, so it takes the scope `admin`."""
        caller.require(Scope.ADMIN)

        async def look(tx: Transaction) -> tuple[Totals, float]:
            due = await tx.delivery_queue.next_due()
            age = 0.0 if due is None else max(0.0, (tx.now() - due).total_seconds())
            return await tx.usage.totals(), age

        totals, age = await self._store.scan(caller.principal, look)
        return Vitals(
            totals=totals,
            oldest_due_age_seconds=age,
            upstreams=self._catalog.upstreams(),
            open_streams=self._quotas.open_streams,
        )

    async def require_ready(self) -> None:
        """Raise unless the service takes work: it is not shutting down, and its store would keep a call."""
        self._lifecycle.require_open()
        await self._write_check.require()
