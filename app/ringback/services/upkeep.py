"""Upkeep: what an operator does to a service that runs."""

from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Caller, Scope
from ringback.domain.signals import QUEUED
from ringback.domain.upstreams import Configured, Reloaded


class Upkeep:
    def __init__(self, *, store: Store, configured: Configured) -> None:
        self._store = store
        self._configured = configured

    async def reload_upstreams(self, caller: Caller | None = None) -> Reloaded:
        """Read the upstreams' configuration again; takes the scope `admin`, unless it is the process that is told (None).

        Raises `InvalidConfiguration`; then everything is as it was.
        """
        if caller is not None:
            caller.require(Scope.ADMIN)
        reloaded = self._configured.reload()
        await self._store.write(_wake_runners)
        return reloaded


async def _wake_runners(tx: Transaction) -> None:
    """Calls of an upstream that is there again may have been queued for long."""
    tx.ring(QUEUED)
