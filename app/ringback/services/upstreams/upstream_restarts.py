"""Restarts the connections of one node to an upstream, for an operator: its command hangs, for example."""

from ringback.domain.ports import Store
from ringback.domain.principal import Caller, Scope
from ringback.domain.upstreams import Restarted, ToolCatalog, UpstreamConnections
from ringback.services.audit import record_change
from ringback.services.unserved_upstreams import make_not_found


class UpstreamRestarts:
    def __init__(self, *, store: Store, catalog: ToolCatalog, connections: UpstreamConnections) -> None:
        self._store = store
        self._catalog = catalog
        self._connections = connections

    async def restart_upstream(self, caller: Caller, upstream: str) -> Restarted:
        """End this node's connections to the upstream and open them again. The caller needs the scope `admin`.

        Raises `NotFound` for an upstream that the caller's key may not use, and for one that is not served. The audit log has
        the restart before it happens.
        """
        caller.require_scope(Scope.ADMIN)
        self._require_served(caller, upstream)
        await self._store.write_for(
            caller.principal, lambda tx: record_change(tx, caller, "restart_upstream", upstream)
        )
        self._require_served(caller, upstream)  # a reload may have removed it meanwhile
        return self._connections.restart_connections(upstream)

    def _require_served(self, caller: Caller, upstream: str) -> None:
        if not (caller.may_use_upstream(upstream) and self._catalog.has_upstream(upstream)):
            raise make_not_found(self._catalog, caller, upstream)
