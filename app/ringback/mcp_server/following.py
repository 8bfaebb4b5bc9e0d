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
from ringback.domain.signals import Waiter, call_changed_topic
from ringback.mcp_server.gateway import Gateway
from ringback.mcp_server.task_shapes import get_observable_state

CALL_REREAD_SECONDS: Final = 60.0
"""How long a lost ring can delay news. Ten thousand followed calls then cost 170 reads a second."""


class CallChanges:
    def __init__(self, gateway: Gateway, caller: Caller, call_id: CallId, waiter: Waiter) -> None:
        self._gateway = gateway
        self._caller = caller
        self._call_id = call_id
        self._waiter = waiter
        self._last_state: tuple[Any, ...] | None = None
        self._is_ended = False

    async def next_change(self) -> Call | None:
        """The call as soon as a task would show something new, and the first time at once.

        None when there will be no more news: it has ended or is gone.
        """
        while not self._is_ended:
            call = await self._read_call()
            if call is not None and get_observable_state(call) != self._last_state:
                self._last_state, self._is_ended = get_observable_state(call), call.is_final
                return call
            await self._waiter.wait(CALL_REREAD_SECONDS)
        return None

    async def _read_call(self) -> Call | None:
        try:
            return await self._gateway.calls.get_call(self._caller, self._call_id)
        except (NotFound, Gone, Forbidden):
            self._is_ended = True
        except Unavailable:
            pass  # the store is looked at again
        return None


@contextmanager
def subscribe_call_changes(gateway: Gateway, caller: Caller, call_id: CallId) -> Generator[CallChanges]:
    """From entering on nothing is missed. Whether the caller owns the call is checked by who enters."""
    with gateway.signals.listen(call_changed_topic(call_id)) as waiter:
        yield CallChanges(gateway, caller, call_id, waiter)
