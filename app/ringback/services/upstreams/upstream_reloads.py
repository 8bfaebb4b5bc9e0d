"""Reads the configuration of upstreams again, for an operator or a signal, and lets the calls go on that it unblocks.

Restarts the connections of one node to an upstream, for an operator: its command hangs, for example.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace

from ringback.domain.errors import Forbidden
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Caller, Scope
from ringback.domain.signals import CALL_QUEUED_TOPIC
from ringback.domain.upstreams import Reloaded, Restarted, ToolCatalog, UpstreamConfiguration, UpstreamConnections
from ringback.services.audit import record_change
from ringback.services.logins.login_waits import resume_orphans
from ringback.services.logins.unused_logins import mark_unused_logins
from ringback.services.unserved_upstreams import make_not_found

log = logging.getLogger(__name__)


class UpstreamReloads:
    def __init__(
        self,
        *,
        store: Store,
        configuration: UpstreamConfiguration,
        catalog: ToolCatalog,
        connections: UpstreamConnections,
    ) -> None:
        self._store = store
        self._configuration = configuration
        self._catalog = catalog
        self._connections = connections

    async def reload_upstreams(self, caller: Caller | None = None) -> Reloaded:
        """Read the configuration of upstreams again. A caller needs the scope `admin`; None stands for the process itself.

        Raises `InvalidConfiguration`, and then changes nothing; `Forbidden` for a key that may use only some upstreams.
        """
        if caller is not None:
            caller.require_scope(Scope.ADMIN)
            if caller.upstreams is not None:
                raise Forbidden("Your key may use only some upstreams, and the configuration is that of all of them.")
        reloaded = self._configuration.reload_configuration()
        await self.resume_waiting_calls()
        if caller is not None:
            await self._store.write_for(caller.principal, lambda tx: record_change(tx, caller, "reload_upstreams"))
        return replace(reloaded, queued_calls=await self._count_queued_without_upstream(reloaded))

    async def _count_queued_without_upstream(self, reloaded: Reloaded) -> Mapping[str, int]:
        """Count the calls that wait for an entry which is gone, and log them: nothing else says so before their deadlines."""
        unserved = {*reloaded.removed, *(each.name for each in reloaded.skipped)} - {
            each.name for each in self._catalog.list_upstreams()
        }
        if not unserved:
            return {}
        queued = await self._store.scan(None, lambda tx: tx.usage.count_queued())
        waiting = {upstream: queued[upstream] for upstream in sorted(unserved & queued.keys())}
        for upstream, count in waiting.items():
            log.warning("upstream.calls_left_queued", extra={"upstream": upstream, "queued_calls": count})
        return waiting

    async def resume_waiting_calls(self) -> None:
        """Let the calls go on that the present configuration unblocks. Call it also at the start, when it may be a new one.

        Calls of an upstream that is configured again are in the queue. Calls that wait for a login that is not used any more
        are queued by the janitor. Tokens for an upstream that is not configured any more are removed after a while.
        """
        credentials = {each.name: each.credentials for each in self._catalog.list_upstreams()}
        skipped = {each.name for each in self._catalog.list_skipped()}

        async def resume(tx: Transaction) -> None:
            for upstream, of_upstream in credentials.items():
                await resume_orphans(tx, upstream, of_upstream)
            await mark_unused_logins(tx, credentials.keys() | skipped)
            tx.notify(CALL_QUEUED_TOPIC)

        await self._store.write(resume)

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
