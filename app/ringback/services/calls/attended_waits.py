"""The wait of an open request for the call that it has started."""

from collections.abc import MutableMapping
from functools import partial
from typing import Any, Self

from ringback.attended_calls import AttendedCalls
from ringback.domain.call import Call
from ringback.domain.ports import Store
from ringback.services.response_hooks import on_response_written


class AttendedWait:
    """The context from the start of a call to the response. Its end removes what this process keeps in memory for the wait.

    It does so however the wait ends: most calls end later, because their clients get a pending result, a task or a question.
    """

    def __init__(self, call: Call, *, store: Store, attended_calls: AttendedCalls) -> None:
        self._call_id = call.id
        self._store = store
        self._attended_calls = attended_calls

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._attended_calls.forget_call(self._call_id)

    def has_outcome(self) -> bool:
        """Whether the upstream of this call, which this process runs, has responded; the end may not be committed yet."""
        return self._attended_calls.has_outcome(self._call_id)

    def acknowledge_with_response(self, state: MutableMapping[str, Any], call: Call) -> None:
        """The response to the request with this ASGI state carries the end of the call: `detached` webhooks need no callback.

        Their deliveries are cancelled after the response was written, if there may be any.
        """
        end = self._attended_calls.find_end(call.id)
        if call.answered_inline and (end is None or end.has_deliveries):
            on_response_written(state, partial(_cancel_detached_deliveries, self._store, call))


async def _cancel_detached_deliveries(store: Store, call: Call) -> None:
    if await store.read(lambda tx: tx.call_deliveries.has_unsent(call.id)):
        await store.write_for(call.principal, lambda tx: tx.call_deliveries.cancel_detached(call.id))
