"""Insights: read models that every surface shares."""

from collections.abc import Sequence

from ringback.domain.errors import NotFound
from ringback.domain.ports import Catalog, Store, ToolInfo, Transaction, UpstreamInfo
from ringback.domain.principal import Caller, Scope
from ringback.services.lifecycle import Lifecycle


class Insights:
    def __init__(self, *, store: Store, catalog: Catalog, lifecycle: Lifecycle) -> None:
        self._store = store
        self._catalog = catalog
        self._lifecycle = lifecycle

    def upstreams(self, caller: Caller) -> Sequence[UpstreamInfo]:
        caller.require(Scope.READ)
        return [info for info in self._catalog.upstreams() if caller.may_use(info.name)]

    async def tools(self, caller: Caller, upstream: str) -> Sequence[ToolInfo]:
        if upstream not in {info.name for info in self.upstreams(caller)}:
            raise NotFound(f"There is no upstream '{upstream}'. List them: GET /v1/upstreams")
        return await self._catalog.tools(upstream)

    async def require_ready(self) -> None:
        """Raise unless the service takes work: it is not shutting down, and its store answers."""
        self._lifecycle.require_open()
        await self._store.write(_nothing)


async def _nothing(_tx: Transaction) -> None:
    """A transaction that changes nothing: it succeeds where a real one could."""
