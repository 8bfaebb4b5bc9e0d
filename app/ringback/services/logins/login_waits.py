"""Parks calls until the owner of their credentials signs in, and queues them again after the login, or as a check.

    park     lock the owner's logins ▸ compare the tokens ▸ the call: parked, with an event ▸ its row in login_waits
    login    tokens written ▸ lock the owner's logins ▸ the first batch of calls: queued ▸ a resumption, if there are more
    reload   the owners whose logins are not used any more ▸ a resumption for each
    janitor  a resumption ▸ lock ▸ the next batch ▸ … ▸ no resumption
    check    one call, sent again without a login (`domain.login_checks`) ▸ accepted: a resumption of the others

A call that parks while its user signs in either finds the new tokens and is queued at once, or has a row that the login finds.
A login queues each call once: the row keeps the version of the tokens that were refused, and a call that the upstream refuses
with the new tokens too waits for the next login.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from ringback.domain.call import Call, CallPhase, enter_phase
from ringback.domain.call_rows import CallChange
from ringback.domain.login_checks import first_check, next_check
from ringback.domain.login_urls import login_page_url
from ringback.domain.login_waits import (
    ANY_VERSION,
    NO_TOKENS_VERSION,
    LoginResumption,
    awaits_login,
    park_for_login,
    resume_after_login,
    still_requires_login,
)
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Principal
from ringback.domain.signals import CALL_QUEUED_TOPIC, call_changed_topic
from ringback.domain.upstream_logins import SHARED_OWNER, CredentialsScope, UpstreamTokens
from ringback.notifier.recorder import Recorder

T = TypeVar("T")

RESUMED_BATCH_SIZE: Final = 50
"""Calls that one transaction queues: some milliseconds. The rest follows in the janitor's transactions."""
CANDIDATES_MAX: Final = 10
"""Waiting calls that one check looks at. Those of earlier checks that still run come after the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedCall:
    """A leased call whose request the upstream refused for want of a login. `call` is its row, read in this transaction."""

    call: Call
    owner: Principal
    """Whose tokens the call uses."""
    tokens_version: int | None
    """The tokens that did not suffice; None if there were none."""
    lease_token: str


class LoginWaits:
    def __init__(self, *, recorder: Recorder, public_url: str) -> None:
        self._recorder = recorder
        self._public_url = public_url

    async def park_call(self, tx: Transaction, refused: RefusedCall) -> Call:
        """Park the call and append its event. If the tokens have changed meanwhile, queue the call.

        The caller has locked the owner's logins (`LoginWaitRows.lock`) before the row of the call.
        """
        call = refused.call
        login_url = login_page_url(self._public_url, call.upstream)
        parked = park_for_login(call, login_url=login_url, now=tx.now())
        stored = await tx.upstream_tokens.list_owned([call.upstream], [refused.owner])
        if not still_requires_login(stored[0] if stored else None, refused_version=refused.tokens_version):
            return await _queue_call(
                tx, call, resume_after_login(parked, now=tx.now()), lease_token=refused.lease_token
            )
        await self._recorder.record_input_requests(tx, call, parked, lease_token=refused.lease_token)
        await tx.login_checks.add(first_check(call.upstream, refused.owner, now=tx.now()))
        await tx.login_waits.add(
            call.id, call.upstream, refused.owner, tokens_version=refused.tokens_version or NO_TOKENS_VERSION
        )
        return parked

    async def park_again(self, tx: Transaction, call: Call, *, lease_token: str) -> Call:
        """Park a call that was checked without reaching its upstream, or queue it if there was a login meanwhile.

        As for `park_call`, the caller has locked the owner's logins.
        """
        parked = park_for_login(call, login_url=login_page_url(self._public_url, call.upstream), now=tx.now())
        if not await tx.login_checks.is_waiting(call.id):
            return await _queue_call(tx, call, resume_after_login(parked, now=tx.now()), lease_token=lease_token)
        await self._recorder.record_input_requests(tx, call, parked, lease_token=lease_token)
        return parked

    async def resume_calls(self, tx: Transaction, tokens: UpstreamTokens) -> None:
        """Queue the calls that wait for this login: some now, the others soon after. Call it after the tokens are written."""
        resumption = LoginResumption(
            upstream=tokens.upstream, owner=tokens.owner, tokens_version=tokens.version, worked_at=tx.now()
        )
        if await resume_batch(tx, resumption):
            await tx.login_waits.save_resumption(resumption)


async def note_login_accepted(tx: Transaction, call: Call) -> None:
    """The upstream accepted a call that waited for a login: it asks for none any more. The others that wait are queued soon."""
    if awaits_login(call):
        await tx.login_checks.resume_others([call.id], now=tx.now())
        await tx.login_waits.remove([call.id])


async def write_for_owner(store: Store, owner: Principal, work: Callable[[Transaction], Awaitable[T]]) -> T:
    """Run a unit that locks the owner's tokens or logins. Units of all principals wait for those of the shared owner."""
    return await (store.write(work) if owner == SHARED_OWNER else store.write_for(owner, work))


async def resume_batch(tx: Transaction, resumption: LoginResumption, *, limit: int = RESUMED_BATCH_SIZE) -> bool:
    """Queue a batch of the calls that wait for this login. Return whether more may wait."""
    upstream, owner = resumption.upstream, resumption.owner
    await tx.login_waits.lock(upstream, owner)
    call_ids = await tx.login_waits.list_waiting(upstream, owner, tokens_version=resumption.tokens_version, limit=limit)
    for call in await tx.calls.get_many(call_ids):
        if call.phase is CallPhase.PARKED and awaits_login(call):
            await _queue_call(tx, call, resume_after_login(call, now=tx.now()), lease_token=None)
    await tx.login_waits.remove(call_ids)
    return len(call_ids) == limit


async def resume_orphans(tx: Transaction, upstream: str, credentials: CredentialsScope | None) -> None:
    """Let the janitor queue the calls that wait for a login that the upstream's configuration does not use now.

    `credentials` says whose logins it uses; None: it uses none. A call that is refused again waits for its present owner.
    """
    for owners in CredentialsScope:
        if owners is not credentials:
            await tx.login_waits.resume_orphans(upstream, owners, now=tx.now())


async def continue_resumption(tx: Transaction, *, limit: int = RESUMED_BATCH_SIZE) -> bool:
    """Queue the next batch of the login that was worked on longest ago. Return whether more may wait."""
    resumption = await tx.login_waits.find_next_resumption()
    if resumption is None:
        return False
    if await resume_batch(tx, resumption, limit=limit):
        await tx.login_waits.save_resumption(replace(resumption, worked_at=tx.now()))
    else:
        await tx.login_waits.remove_resumption(resumption)
    return True


async def _queue_call(tx: Transaction, call: Call, queued: Call, *, lease_token: str | None) -> Call:
    await tx.calls.update(queued, CallChange.QUEUED, expected=call.status, lease_token=lease_token)
    tx.notify(CALL_QUEUED_TOPIC, call_changed_topic(call.id))
    return queued


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
