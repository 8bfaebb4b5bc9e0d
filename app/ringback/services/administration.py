"""Operator actions on a running service."""

from ringback.domain.errors import Forbidden
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Caller, Scope
from ringback.domain.signals import CALL_QUEUED_TOPIC
from ringback.domain.upstreams import Reloaded, UpstreamConfiguration


class Administration:
    def __init__(self, *, store: Store, configuration: UpstreamConfiguration) -> None:
        self._store = store
        self._configuration = configuration

    async def reload_upstreams(self, caller: Caller | None = None) -> Reloaded:
        """Read the configuration of upstreams again. A caller needs the scope `admin`; None stands for the process itself.

        Raises `InvalidConfiguration`, and then changes nothing; `Forbidden` for a key that may use only some upstreams.
        """
        if caller is not None:
            caller.require_scope(Scope.ADMIN)
            if caller.upstreams is not None:
                raise Forbidden("Your key may use only some upstreams, and the configuration is that of all of them.")
        reloaded = self._configuration.reload_configuration()
        await self._store.write(_notify_runners)
        return reloaded


async def _notify_runners(tx: Transaction) -> None:
    """Wake the runners: calls of an upstream that is configured again can be in the queue."""
    tx.notify(CALL_QUEUED_TOPIC)
