"""Sends one of the calls again that wait for a login, from time to time (`domain.login_checks`)."""

from typing import Final

from ringback.domain.call import CallPhase, enter_phase
from ringback.domain.call_rows import CallChange
from ringback.domain.login_checks import next_check
from ringback.domain.login_waits import ANY_VERSION, awaits_login
from ringback.domain.ports import Transaction
from ringback.domain.signals import CALL_QUEUED_TOPIC

CANDIDATES_MAX: Final = 10
"""Waiting calls that one check looks at. Those of earlier checks that still run come after the others."""


async def check_next_login(tx: Transaction) -> bool:
    """Queue one call of the check that has been due longest. Return whether there was one. The call stays as clients see it."""
    check = await tx.login_checks.find_due(now=tx.now())
    if check is None:
        return False
    await tx.login_waits.lock(check.upstream, check.owner)
    call_ids = await tx.login_waits.list_waiting(
        check.upstream, check.owner, tokens_version=ANY_VERSION, limit=CANDIDATES_MAX
    )
    if not call_ids:
        await tx.login_checks.remove(check.upstream, check.owner)
        return True
    await tx.login_checks.replace(next_check(check, now=tx.now()))
    for call in await tx.calls.get_many(call_ids):
        if call.phase is CallPhase.PARKED and awaits_login(call):
            queued = enter_phase(call, CallPhase.QUEUED, now=tx.now())
            await tx.calls.update(queued, CallChange.QUEUED, expected=call.status, lease_token=None)
            tx.notify(CALL_QUEUED_TOPIC)
            break
    return True
