"""Requests to erase a call, the calls of a client session, or all data of a principal (`domain.erasure`).

A request erases its first batches itself. If more is left, the janitor goes on, and the request's erasure shows how far it is.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from ringback.domain.call import LABEL_LENGTH_MAX
from ringback.domain.erasure import Erasure, ErasureKind, ErasureState
from ringback.domain.errors import CallRunning, Forbidden, InvalidRequest, NotFound
from ringback.domain.ids import CallId, ErasureId, IdGenerator, is_well_formed_id
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import ALL_PRINCIPALS, PRINCIPAL_LENGTH_MAX, Caller, Principal, Scope
from ringback.domain.upstream_logins import UpstreamTokens
from ringback.notifier.recorder import Recorder
from ringback.services.audit import record_change
from ringback.services.calls.call_reads import get_changeable_call
from ringback.services.erasure_batches import erase_batch, erase_identity, erase_session_links
from ringback.services.lifecycle import Lifecycle
from ringback.services.logins.login_tokens import REVOCATIONS_MAX, LoginRevocations

log = logging.getLogger(__name__)

INLINE_BATCHES_MAX: Final = 10
"""Batches of one request, some tens of milliseconds: enough for a usual call or session."""


class Erasures:
    def __init__(
        self,
        *,
        store: Store,
        ids: IdGenerator,
        recorder: Recorder,
        lifecycle: Lifecycle,
        revocations: LoginRevocations,
    ) -> None:
        self._store = store
        self._ids = ids
        self._recorder = recorder
        self._lifecycle = lifecycle
        self._revocations = revocations

    async def erase_call(self, caller: Caller, call_id: str, *, cancel: bool) -> Erasure:
        """Erase a call. Raises `CallRunning` if it has not ended, unless `cancel` cancels it first."""
        caller.require_scope(Scope.CALLS)

        async def request(tx: Transaction) -> Erasure:
            if (existing := await tx.erasures.find_open(caller.principal, ErasureKind.CALL, call_id)) is not None:
                return existing
            if not await _is_expired_only(tx, caller.principal, call_id):
                call = await get_changeable_call(tx, caller, call_id)
                if not call.is_final and not cancel:
                    raise CallRunning(
                        f"The call is still {call.status}. Wait for its end, or cancel and erase it: "
                        f"DELETE /v1/calls/{call.id}?cancel=true",
                        call_id=call.id,
                        call_status=str(call.status),
                    )
            return await self._insert(tx, caller, caller.principal, ErasureKind.CALL, call_id, cancel=cancel)

        return await self._request(caller.principal, request)

    async def erase_session(self, caller: Caller, client_session_id: str, *, cancel: bool) -> Erasure:
        """Erase the session's calls, its portal links and its webhooks; these need the scope `webhooks` too.

        Raises `Forbidden` for a key that is limited to upstreams: other keys of the principal may have added calls.
        """
        caller.require_scope(Scope.CALLS)
        _require_all_upstreams(
            caller,
            "a session's calls may belong",
            "Or erase the calls at your upstreams one by one: DELETE /v1/calls/{id}",
        )
        _require_name(client_session_id, LABEL_LENGTH_MAX, "client_session_id")

        async def request(tx: Transaction) -> Erasure:
            erasure = await self._request_many(
                tx, caller, caller.principal, ErasureKind.SESSION, client_session_id, cancel=cancel
            )
            if await tx.erased_rows.list_webhooks(erasure, limit=1):
                caller.require_scope(Scope.WEBHOOKS)
            await erase_session_links(tx, erasure)  # now, so that they do not show what is left
            return erasure

        return await self._request(caller.principal, request)

    async def erase_principal(self, caller: Caller, principal: str, *, cancel: bool) -> Erasure:
        """Erase everything of a principal, its API keys too, for a caller with the scope `admin`.

        Its logins to upstreams are revoked at their authorization servers.
        """
        caller.require_scope(Scope.ADMIN)
        _require_all_upstreams(caller, "a principal's data belongs")
        _require_name(principal, PRINCIPAL_LENGTH_MAX, "principal")
        if principal == ALL_PRINCIPALS:  # the hourly counts of the whole service have this name
            raise InvalidRequest(f"Name one principal instead of '{ALL_PRINCIPALS}'. Erase each one by itself.")
        owner = Principal(principal)

        async def request(tx: Transaction) -> Erasure:
            logins = await tx.upstream_tokens.list_all_owned(owner, limit=REVOCATIONS_MAX)
            erasure = await self._request_many(tx, caller, owner, ErasureKind.PRINCIPAL, principal, cancel=cancel)
            # Nothing has the tokens once this is committed, also if a batch of this request fails after it.
            tx.on_commit(partial(self._revoke_logins, logins))
            return erasure

        return await self._request(owner, request)

    def _revoke_logins(self, logins: Sequence[UpstreamTokens]) -> None:
        for tokens in logins:
            self._revocations.revoke_later(tokens)

    async def get_erasure(self, caller: Caller, erasure_id: str) -> Erasure:
        """An erasure of the caller's own data, or for an admin any other."""
        caller.require_scope(Scope.READ)
        if is_well_formed_id("era", erasure_id):
            erasure = await self._store.read(lambda tx: tx.erasures.get(ErasureId(erasure_id)))
            if erasure is not None and (erasure.principal == caller.principal or Scope.ADMIN in caller.scopes):
                return erasure
        raise NotFound("No erasure of yours has this id.")

    async def _request(self, principal: Principal, request: Callable[[Transaction], Awaitable[Erasure]]) -> Erasure:
        """Store the request, then erase its first batches."""
        self._lifecycle.require_running()
        erasure = await self._store.write_for(principal, request)
        for _ in range(INLINE_BATCHES_MAX):
            erasure = await self._store.write_for(principal, partial(self._run_batch, erasure.id))
            if erasure.state is not ErasureState.ERASING:
                break
        return erasure

    async def _run_batch(self, erasure_id: ErasureId, tx: Transaction) -> Erasure:
        erasure = await tx.erasures.get(erasure_id)
        if erasure is None:
            raise NotFound("The erasure has finished, and its own retention has ended.")
        return erasure if erasure.finished_at is not None else await erase_batch(tx, self._recorder, erasure)

    async def _request_many(
        self, tx: Transaction, caller: Caller, principal: Principal, kind: ErasureKind, target: str, *, cancel: bool
    ) -> Erasure:
        """The open erasure of this target if it erases all that this request means, or a new one.

        Raises `CallRunning` if a call has not ended, without `cancel`.
        """
        existing = await tx.erasures.find_open(principal, kind, target)
        if (
            existing is not None
            and (existing.cancels or not cancel)
            and not await tx.erased_rows.is_any_newer(existing)
        ):
            return existing
        erasure = await self._insert(tx, caller, principal, kind, target, cancel=cancel)
        if kind is ErasureKind.PRINCIPAL:
            await erase_identity(tx, erasure)
        erasure = await _include_newest_row(tx, erasure)
        if not cancel and (open_calls := await tx.erased_rows.list_open_calls(erasure, limit=1)):
            raise CallRunning(
                f"The {kind} has calls that have not ended, such as {open_calls[0]}. Wait for their ends, or cancel and erase "
                "them: send the same request with ?cancel=true",
                call_id=open_calls[0],
            )
        return erasure

    async def _insert(
        self, tx: Transaction, caller: Caller, principal: Principal, kind: ErasureKind, target: str, *, cancel: bool
    ) -> Erasure:
        erasure = Erasure(
            id=self._ids.new_erasure_id(),
            principal=principal,
            kind=kind,
            target=target,
            cancels=cancel,
            requested_by=(caller.operator or caller).principal,
            requested_at=tx.now(),
            head=await tx.event_log.get_head(principal),
            worked_at=tx.now(),
        )
        await tx.erasures.insert(erasure)
        await record_change(tx, caller, f"erase_{kind}", erasure.id, owner=principal)
        tx.on_commit(partial(_log_requested, erasure))
        return erasure


async def _include_newest_row(tx: Transaction, erasure: Erasure) -> Erasure:
    """Move the request to the time of the newest row that this transaction sees, and to the end of the log.

    By the clock of its node that row may be newer than the request, although its start was acknowledged before it. The keys of
    a principal are erased before this: later, they start nothing (`require_held_key`), and a start or registration that holds
    its key comes first.
    """
    newest = await tx.erased_rows.newest_row_at(erasure)
    moved = replace(
        erasure,
        requested_at=max(erasure.requested_at, newest or erasure.requested_at),
        head=await tx.event_log.get_head(erasure.principal),
    )
    if moved != erasure:
        await tx.erasures.update(moved)
    return moved


async def _is_expired_only(tx: Transaction, principal: Principal, call_id: str) -> bool:
    """Whether the call has expired and was not erased: events and deliveries of it may be left."""
    if not is_well_formed_id("call", call_id):
        return False
    tombstone = await tx.tombstones.get(principal, call_id=CallId(call_id), key=None)
    return tombstone is not None and not tombstone.erased


def _require_all_upstreams(caller: Caller, what: str, alternative: str = "") -> None:
    if caller.upstreams is not None:
        raise Forbidden(
            f"Your key may use only some upstreams, and {what} to all of them. Use a key that is limited to no upstream. "
            f"{alternative}".rstrip()
        )


def _require_name(name: str, length_max: int, what: str) -> None:
    if not name.isprintable() or not 0 < len(name) <= length_max:
        raise NotFound(f"{what} must be 1 to {length_max} printable characters.")


def _log_requested(erasure: Erasure) -> None:
    log.info(
        "erasure.requested",
        extra={
            "erasure_id": erasure.id,
            "kind": str(erasure.kind),
            "principal": erasure.principal,
            "by": erasure.requested_by,
            "cancel": erasure.cancels,
        },
    )
