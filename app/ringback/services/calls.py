"""Calls: start one, look at it, wait for it, take its result, cancel it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from ringback.admission import AdmissionGate
from ringback.domain.call import CANCELLED, Call, RerunPolicy, left_nothing, request_hash
from ringback.domain.call_rows import CallFilter, Change, Tombstone
from ringback.domain.clock import Clock, seconds
from ringback.domain.errors import CallEnded, CallExpired, IdempotencyConflict, InvalidRequest, NotFound, ResultNotReady
from ringback.domain.ids import CallId, Ids, looks_like
from ringback.domain.pages import Page
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Caller, Principal, Scope
from ringback.domain.signals import QUEUED, cancelling, changed
from ringback.domain.upstreams import Catalog
from ringback.domain.webhook import Webhook
from ringback.notifier.record import Recorder
from ringback.notifier.resume_tokens import CallTokens
from ringback.services.births import Births, LeaseQueued
from ringback.services.lifecycle import Lifecycle
from ringback.services.quotas import QuotaKeeper
from ringback.services.registrations import Registration, Registrations
from ringback.services.started import Started, started
from ringback.services.waiting import look_until

TIMEOUT_SECONDS_DEFAULT: Final = 7 * 24 * 3600.0
TIMEOUT_SECONDS_MAX: Final = 30 * 24 * 3600.0


class JoinMode(StrEnum):
    ANY = "any"
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartCall:
    """What a client asks for when it starts a call."""

    upstream: str
    tool: str
    arguments: dict[str, Any] = field(default_factory=dict[str, Any], repr=False)
    client_session_id: str | None = None
    correlation_id: str | None = None
    idempotency_key: str | None = None
    callback: Registration | None = None
    meta: dict[str, Any] = field(default_factory=dict[str, Any], repr=False)
    """`_meta` for the upstream. No part of what makes two requests the same: traces differ from one sending to the next."""
    wait_seconds: float = 0.0
    """For so long the client stays to take the plain result itself."""
    timeout_seconds: float = TIMEOUT_SECONDS_DEFAULT
    accepts_input: bool = False
    rerun_policy: RerunPolicy = RerunPolicy.NEVER

    def hash(self) -> str:
        return request_hash(
            upstream=self.upstream,
            tool=self.tool,
            arguments=self.arguments,
            callback_url=self.callback.url if self.callback else None,
        )


class Calls:
    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        ids: Ids,
        catalog: Catalog,
        recorder: Recorder,
        tokens: CallTokens,
        registrations: Registrations,
        quotas: QuotaKeeper,
        lifecycle: Lifecycle,
        births: Births,
        admission: AdmissionGate,
    ) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._catalog = catalog
        self._recorder = recorder
        self._tokens = tokens
        self._registrations = registrations
        self._quotas = quotas
        self._lifecycle = lifecycle
        self._births = births
        self._admission = admission

    async def start(self, caller: Caller, request: StartCall) -> Started:
        """Store the call and answer; it runs from then on whatever becomes of the client.

        The same idempotency key with the same request gives the same call, whatever its state by then. A callback is a webhook,
        so it takes the scope of one too.
        """
        caller.require(Scope.CALLS)
        if request.callback is not None:
            caller.require(Scope.WEBHOOKS)
        self._lifecycle.require_open()
        if request.idempotency_key is not None:
            repeated = await self._store.read(lambda tx: self._repeated(tx, caller.principal, request))
            if repeated is not None:
                return repeated
        self._quotas.count_start(caller.principal)
        await self._check(caller, request)
        secret, callback = await self._registrations.prepare_callback(caller, request.callback)
        lease = self._births.prepare()
        with self._admission.admitting():  # and not before: a look-up of the callback's host may take seconds
            return await self._store.write(
                lambda tx: self._insert(tx, caller.principal, request, callback, secret, lease)
            )

    async def get(self, caller: Caller, call_id: str, *, wait_seconds: float = 0.0) -> Call:
        """The call; with `wait_seconds`, as soon as its status changes or that time is over."""
        caller.require(Scope.READ)
        first = await self._store.read(lambda tx: own_call(tx, caller.principal, call_id))
        if wait_seconds <= 0 or first.final:
            return first
        return await self._watch(caller, first, wait_seconds, until_final=False)

    async def started(self, caller: Caller, call_id: str) -> Call:
        """A call of before, for whoever may start calls: to wait for it again."""
        caller.require(Scope.CALLS)
        return await self._store.read(lambda tx: own_call(tx, caller.principal, call_id))

    async def leave(self, caller: Caller, call_id: str) -> None:
        """The client that stayed for the plain result has gone: what is told from now on is news to it."""
        caller.require(Scope.CALLS)

        async def leave(tx: Transaction) -> None:
            call = await own_call(tx, caller.principal, call_id)
            if not call.final:
                left = replace(call, attended_until=None)
                await tx.calls.update(left, Change.UNATTENDED, expected=call.status, lease_token=None)

        await self._store.write(leave)

    async def told(self, call: Call) -> None:
        """The call's end was written to the client that stayed for it: `detached` webhooks are spared what it knows."""
        if call.answered_inline and await self._store.read(lambda tx: tx.call_deliveries.waits(call.id)):
            await self._store.write(lambda tx: tx.call_deliveries.spare(call.id))

    async def wait(
        self, caller: Caller, call: Call, *, wait_seconds: float, until_final: bool = True
    ) -> tuple[Call, bytes | None]:
        """The call that was just started at its end, with its result if it has one; or as it is when the time is over.

        With `until_final` off, also as soon as its status is another than in `call`. Whoever may start a call may wait for it:
        after the start, a missing scope to read must not become an error.
        """
        caller.require(Scope.CALLS)
        if wait_seconds > 0 and not call.final:
            call = await self._watch(caller, call, wait_seconds, until_final=until_final)
        if not call.final:
            return call, None
        return call, await self._store.read(lambda tx: tx.calls.result(call.id))

    async def join(
        self, caller: Caller, call_ids: Sequence[str], mode: JoinMode, *, wait_seconds: float
    ) -> tuple[Sequence[Call], bool]:
        """These calls, and whether any or all of them have ended: as soon as that is so, or when the time is over."""
        caller.require(Scope.READ)
        enough = any if mode is JoinMode.ANY else all

        async def look(tx: Transaction) -> Sequence[Call]:
            return [await own_call(tx, caller.principal, call_id) for call_id in call_ids]

        def done(calls: Sequence[Call]) -> bool:
            return enough(call.final for call in calls)

        calls = await look_until(
            lambda: self._store.read(look),
            done,
            signals=self._store.signals,
            topics=[changed(CallId(call_id)) for call_id in call_ids],
            wait_seconds=wait_seconds,
            clock=self._clock,
            lifecycle=self._lifecycle,
        )
        return calls, done(calls)

    async def page(self, caller: Caller, where: CallFilter, *, before: str | None, limit: int) -> Page[Call, str]:
        caller.require(Scope.READ)
        return await self._store.scan(
            caller.principal, lambda tx: tx.calls.page(caller.principal, where, before=before, limit=limit)
        )

    async def result(self, caller: Caller, call_id: str) -> tuple[Call, bytes]:
        """The call and its stored CallToolResult, as JSON."""
        caller.require(Scope.READ)

        async def read(tx: Transaction) -> tuple[Call, bytes]:
            call = await own_call(tx, caller.principal, call_id)
            result = await tx.calls.result(call.id)
            if result is None:
                raise ResultNotReady(_why_no_result(call), call_id=call.id, call_status=str(call.status))
            return call, result

        return await self._store.read(read)

    async def cancel(self, caller: Caller, call_id: str) -> Call:
        """Ask for the call's end; idempotent, and too late once it has ended.

        A call that was not dispatched ends at once, and so does one for which its upstream holds nothing. One that runs, here
        or elsewhere, is asked to stop, and tells by itself how it ended.
        """
        caller.require(Scope.CALLS)

        async def cancel(tx: Transaction) -> Call:
            call = await own_call(tx, caller.principal, call_id)
            if call.final:
                return call
            tx.ring(cancelling(call.id))
            if left_nothing(call):
                asked = replace(call, cancel_requested=True)
                return await self._recorder.finish(tx, asked, CANCELLED, lease_token=None) or call
            return await _ask_to_cancel(tx, call)

        return await self._store.write(cancel)

    async def cancel_for_good(self, caller: Caller, call_id: str) -> Call:
        """End the call as cancelled, now, whatever its upstream still does: it is only told to stop. Raises `CallEnded`.

        For clients to which a cancellation is final (the tasks of MCP 2025-11-25); all others learn how the call really ended.
        """
        caller.require(Scope.CALLS)

        async def cancel(tx: Transaction) -> Call:
            call = await own_call(tx, caller.principal, call_id)
            if call.final:
                raise CallEnded(f"The call has ended as {call.status}.", call_id=call.id)
            tx.ring(cancelling(call.id))
            return (
                await self._recorder.finish(tx, replace(call, cancel_requested=True), CANCELLED, lease_token=None)
                or call
            )

        return await self._store.write(cancel)

    # -- starting --

    async def _check(self, caller: Caller, request: StartCall) -> None:
        check_timeout(request.timeout_seconds)
        await self._catalog.check(request.upstream, request.tool, request.arguments, visible=caller.upstreams)

    async def _insert(
        self,
        tx: Transaction,
        principal: Principal,
        request: StartCall,
        callback: Webhook | None,
        secret: str | None,
        lease: LeaseQueued,
    ) -> Started:
        if repeated := await self._repeated(tx, principal, request):
            return repeated
        await self._quotas.require_room_for_call(tx, principal)
        call = self._new_call(principal, request, now=tx.now())
        await self._registrations.insert_callback(tx, callback, call)  # first, because it may be refused
        leased = await lease.at_birth(tx, call)
        await tx.calls.insert(leased or call)
        if leased is None and call.id not in [each.id for each in await lease(tx, call.upstream)]:
            tx.ring(QUEUED)
        return await started(tx, self._tokens, call, created=True, secret=secret)

    def _new_call(self, principal: Principal, request: StartCall, *, now: datetime) -> Call:
        return Call(
            id=self._ids.call(),
            principal=principal,
            upstream=request.upstream,
            tool=request.tool,
            arguments=request.arguments,
            meta=request.meta,
            client_session_id=request.client_session_id,
            correlation_id=request.correlation_id,
            idempotency_key=request.idempotency_key,
            request_hash=request.hash(),
            accepts_input=request.accepts_input,
            rerun_policy=request.rerun_policy,
            rerun_allowed=self._may_rerun(request),
            attended_until=now + seconds(request.wait_seconds) if request.wait_seconds > 0 else None,
            created_at=now,
            updated_at=now,
            deadline_at=now + seconds(request.timeout_seconds),
        )

    def _may_rerun(self, request: StartCall) -> bool:
        """Judged once: what a tool says of itself later is no word about this call."""
        match request.rerun_policy:
            case RerunPolicy.NEVER:
                return False
            case RerunPolicy.IF_SAFE:
                return self._catalog.may_repeat(request.upstream, request.tool)
            case RerunPolicy.ALWAYS:
                return True

    async def _repeated(self, tx: Transaction, principal: Principal, request: StartCall) -> Started | None:
        """What the idempotency key already names: the same call, a conflict, or the memory of one that has expired."""
        key = request.idempotency_key
        if key is None:
            return None
        call = await tx.calls.by_idempotency_key(principal, key)
        known = call or await tx.tombstones.get(principal, call_id=None, key=key)
        if known is None:
            return None
        if known.request_hash != request.hash():
            raise IdempotencyConflict(
                "This Idempotency-Key was used for another request. Send the same request, or a new key."
            )
        if call is None:
            raise CallExpired("The call of this Idempotency-Key has expired. Nothing was started; use a new key.")
        return await started(tx, self._tokens, call, created=False, secret=None)

    # -- waiting --

    async def _watch(self, caller: Caller, seen: Call, wait_seconds: float, *, until_final: bool) -> Call:
        def settled(call: Call) -> bool:
            return call.final or (not until_final and call.status is not seen.status)

        return await look_until(
            lambda: self._store.read(lambda tx: own_call(tx, caller.principal, seen.id)),
            settled,
            signals=self._store.signals,
            topics=[changed(seen.id)],
            wait_seconds=wait_seconds,
            clock=self._clock,
            lifecycle=self._lifecycle,
        )


def check_timeout(timeout_seconds: float) -> None:
    """Raises `InvalidRequest` for a time in which no call is to end."""
    if not 0 < timeout_seconds <= TIMEOUT_SECONDS_MAX:
        raise InvalidRequest(f"timeout_seconds must be above 0 and at most {TIMEOUT_SECONDS_MAX:.0f}.")


async def own_call(tx: Transaction, principal: Principal, call_id: str) -> Call:
    """The principal's call of this id; `NotFound` when unknown or foreign, `CallExpired` when it has gone."""
    if looks_like("call", call_id):
        call = await tx.calls.get(CallId(call_id))
        if call is not None and call.principal == principal:
            return call
        if call is None:
            _raise_if_expired(await tx.tombstones.get(principal, call_id=CallId(call_id), key=None))
    raise NotFound("No call of yours has this id. List yours: GET /v1/calls")


def _raise_if_expired(tombstone: Tombstone | None) -> None:
    if tombstone is not None:
        raise CallExpired("The call has ended and its result has expired.", call_id=tombstone.call_id)


async def _ask_to_cancel(tx: Transaction, call: Call) -> Call:
    asked = replace(call, cancel_requested=True, updated_at=tx.now())
    await tx.calls.update(asked, Change.CANCELLING, expected=call.status, lease_token=None)
    tx.ring(changed(call.id))
    return asked


def _why_no_result(call: Call) -> str:
    if not call.final:
        return f"The call is still {call.status}. Wait for it: GET /v1/calls/{call.id}?wait_seconds=60"
    return (
        f"The call ended as {call.status} ({call.outcome}) and has no result. Its error is in GET /v1/calls/{call.id}"
    )
