"""Calls followed for clients: each change that a task would show, as long as somebody listens.

Rings are hints and the store is the truth, so changes that come quickly are told as one, and a client that reads slowly is
told the latest state instead of all of them.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final

from ringback.domain.call import Call
from ringback.domain.errors import Forbidden, Gone, NotFound, Unavailable
from ringback.domain.ids import CallId
from ringback.domain.principal import Caller
from ringback.domain.signals import Bell, changed
from ringback.mcp_server.gateway import Gateway
from ringback.mcp_server.task_shapes import observable

LOOK_AGAIN_SECONDS: Final = 60.0
"""How long a lost ring can delay news. Ten thousand followed calls then cost 170 reads a second."""


class Following:
    def __init__(self, gateway: Gateway, caller: Caller, call_id: CallId, bell: Bell) -> None:
        self._gateway = gateway
        self._caller = caller
        self._call_id = call_id
        self._bell = bell
        self._seen: tuple[Any, ...] | None = None
        self._over = False

    async def next(self) -> Call | None:
        """The call as soon as a task would show something new, and the first time at once.

        None when there will be no more news: it has ended or is gone.
        """
        while not self._over:
            call = await self._look()
            if call is not None and observable(call) != self._seen:
                self._seen, self._over = observable(call), call.final
                return call
            await self._bell.wait(LOOK_AGAIN_SECONDS)
        return None

    async def _look(self) -> Call | None:
        try:
            return await self._gateway.calls.get(self._caller, self._call_id)
        except (NotFound, Gone, Forbidden):
            self._over = True
        except Unavailable:
            pass  # the store is looked at again
        return None


@contextmanager
def following(gateway: Gateway, caller: Caller, call_id: CallId) -> Generator[Following]:
    """From entering on nothing is missed. Whether the caller owns the call is checked by who enters."""
    with gateway.signals.listen(changed(call_id)) as bell:
        yield Following(gateway, caller, call_id, bell)
