"""Starts that were given up: their clients were answered that no call was started, so none may start any more.

A legacy client that lost its stream may come back at another node while the first one still prepares its call, which can take
seconds. It is advised to send its request again; without more, the first start would be committed later, and the tool ran
twice.

    give_up_start           the call if it exists; otherwise a tombstone takes its id
    require_not_given_up    in the transaction of the start: refuses an id that a tombstone has

Each locks the id first, so the later one of the two reads what the earlier one has committed.
"""

from typing import Final

from ringback.domain.call import Call
from ringback.domain.call_rows import Tombstone
from ringback.domain.errors import CallExpired, Unavailable
from ringback.domain.ids import CallId
from ringback.domain.ports import Transaction
from ringback.domain.principal import Principal

_UNSTARTED: Final = "unstarted"
"""The request hash of such a tombstone. A hash has 64 digits."""


async def give_up_start(tx: Transaction, principal: Principal, call_id: CallId) -> Call | None:
    """Return the call if it was started; otherwise keep it from being started, and return None."""
    await tx.tombstones.lock_id(call_id)
    if (call := await tx.calls.get(call_id, lock=False)) is not None:
        return call
    if await tx.tombstones.get(principal, call_id=call_id, key=None) is None:
        await tx.tombstones.archive(
            Tombstone(
                call_id=call_id,
                principal=principal,
                idempotency_key=None,
                request_hash=_UNSTARTED,
                expired_at=tx.now(),
            )
        )
    return None


async def require_not_given_up(tx: Transaction, principal: Principal, call_id: CallId) -> None:
    """Raise `Unavailable` if the start of this call was given up."""
    await tx.tombstones.lock_id(call_id)
    if await tx.tombstones.get(principal, call_id=call_id, key=None) is not None:
        raise Unavailable(
            "The call took too long to start. Its client was answered meanwhile that nothing was started."
        )


def require_not_gone(tombstone: Tombstone | None) -> None:
    """Raise `CallExpired` if the tombstone is that of a call that existed."""
    if tombstone is None or tombstone.request_hash == _UNSTARTED:
        return
    detail = "The call was erased on request." if tombstone.erased else "The call has ended and its result has expired."
    raise CallExpired(detail, call_id=tombstone.call_id)
