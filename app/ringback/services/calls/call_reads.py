"""Reads a principal's call, and stored results. A large one is read beside the event loop, once for all that wait for it.

A result may have 16 MiB, and its read takes some twenty milliseconds. On the event loop, a hundred connections that request
results at once would delay all other requests by seconds. `Store.scan` gives principals turns on a few threads.

Each read copies the result while it holds Python's lock. With several at once, the event loop waits for one after the other
each time that it executes a statement (35 ms of a turn for 7 ms of its work, measured). So a principal has one at a time.
"""

from ringback.domain.call import Call
from ringback.domain.errors import Forbidden, NotFound
from ringback.domain.ids import CallId, is_well_formed_id
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Caller, Principal
from ringback.key_locks import KeyLocks
from ringback.services.calls.given_up_starts import require_not_gone
from ringback.services.limits.unread_responses import LARGE_RESPONSE_BYTES, ResponseMemory


async def get_own_call(tx: Transaction, principal: Principal, call_id: str) -> Call:
    """Return the principal's call; raise `NotFound` if it is unknown or foreign, `CallExpired` if it has been deleted."""
    if is_well_formed_id("call", call_id):
        call = await tx.calls.get(CallId(call_id))
        if call is not None and call.principal == principal:
            return call
        if call is None:
            require_not_gone(await tx.tombstones.get(principal, call_id=CallId(call_id), key=None))
    raise NotFound("No call of yours has this id. List yours: GET /v1/calls")


async def get_changeable_call(tx: Transaction, caller: Caller, call_id: str) -> Call:
    """As `get_own_call`, for a request that changes the call. Raises `Forbidden` if the key may not use its upstream."""
    call = await get_own_call(tx, caller.principal, call_id)
    if not caller.may_use_upstream(call.upstream):
        raise Forbidden(
            f"This key may read the call, but not change it: the call is at the upstream '{call.upstream}', and the key is "
            "limited to other upstreams. Use a key that may use this one.",
            upstream=call.upstream,
        )
    return call


class ResultReader:
    def __init__(self, *, store: Store) -> None:
        self._store = store
        self._large_reads = KeyLocks()

    async def read_result(self, call: Call, memory: ResponseMemory | None = None) -> bytes | None:
        """The stored CallToolResult as JSON; None if the call has none, or if it has been deleted."""
        if is_large(call):
            return await self.read_large_result(call, memory)
        return await self._store.read(lambda tx: tx.call_completions.get_result(call.id))

    async def read_large_result(self, call: Call, memory: ResponseMemory | None = None) -> bytes | None:
        """The same for a result that `is_large`. The other responses that send it now share one copy in `memory`.

        Raises `QuotaExceeded` or `Unavailable` before the read, if `memory` has no room for the result.
        """
        async with self._large_reads.hold(call.principal):
            if memory is not None and (held := memory.find_shared(call.principal, call)) is not None:
                return held
            result = await self._store.scan(call.principal, lambda tx: tx.call_completions.get_result(call.id))
            if memory is None or result is None:
                return result
            return memory.use_shared(call.principal, call, result)


def is_large(call: Call) -> bool:
    """Whether the call has a result that is not read on the event loop."""
    return (call.result_bytes or 0) >= LARGE_RESPONSE_BYTES
