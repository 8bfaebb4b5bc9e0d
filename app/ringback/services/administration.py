"""Upkeep: what an operator does to a service that runs."""

from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Caller, Scope
from ringback.domain.signals import CALL_QUEUED_TOPIC
from ringback.domain.upstreams import Reloaded, UpstreamConfiguration


class Administration:
    def __init__(self, *, store: Store, configuration: UpstreamConfiguration) -> None:
        self._store = store
        self._configuration = configuration

    async def reload_upstreams(self, caller: Caller | None = None) -> Reloaded:
        """Read the upstreams' configuration again; takes the scope `admin`, unless it is the process that is told (None).

        Raises `InvalidConfiguration`; then everything is as it was.
        """
        if caller is not None:
            caller.require_scope(Scope.ADMIN)
        reloaded = self._configuration.reload_configuration()
        await self._store.write(_notify_runners)
        return reloaded


async def _notify_runners(tx: Transaction) -> None:
    """Calls of an upstream that is there again may have been queued for long."""
    tx.notify(CALL_QUEUED_TOPIC)
