"""Calls: start one, look at it, wait for it, take its result, cancel it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from ringback.admission import AdmissionGate
from ringback.domain.call import CANCELLED_COMPLETION, Call, RerunPolicy, compute_request_hash, has_no_upstream_state
from ringback.domain.call_rows import CallChange, CallFilter, Tombstone
from ringback.domain.clock import Clock, seconds
from ringback.domain.cursor import Page
from ringback.domain.errors import CallEnded, CallExpired, IdempotencyConflict, InvalidRequest, NotFound, ResultNotReady
from ringback.domain.ids import CallId, IdGenerator, is_well_formed_id
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Caller, Principal, Scope
from ringback.domain.signals import CALL_QUEUED_TOPIC, call_cancel_topic, call_changed_topic
from ringback.domain.upstreams import ToolCatalog
from ringback.domain.webhook import Webhook
from ringback.notifier.recorder import Recorder
from ringback.notifier.resume_tokens import CallResumeTokens
from ringback.post_commit import CallHandoff, CallLeases
from ringback.services.lifecycle import Lifecycle
from ringback.services.long_polling import poll_until
from ringback.services.quotas import QuotaEnforcer
from ringback.services.registrations import WebhookRegistration, WebhookRegistrations
from ringback.services.started_call import StartedCall, build_started_call

TIMEOUT_SECONDS_DEFAULT: Final = 7 * 24 * 3600.0
TIMEOUT_SECONDS_MAX: Final = 30 * 24 * 3600.0


class JoinMode(StrEnum):
    ANY = "any"
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartCallRequest:
    """What a client asks for when it starts a call."""

    upstream: str
    tool: str
    arguments: dict[str, Any] = field(default_factory=dict[str, Any], repr=False)
    client_session_id: str | None = None
    correlation_id: str | None = None
    idempotency_key: str | None = None
    callback: WebhookRegistration | None = None
    meta: dict[str, Any] = field(default_factory=dict[str, Any], repr=False)
    """`_meta` for the upstream. No part of what makes two requests the same: traces differ from one sending to the next."""
    wait_seconds: float = 0.0
    """For so long the client stays to take the plain result itself."""
    timeout_seconds: float = TIMEOUT_SECONDS_DEFAULT
    accepts_input: bool = False
    rerun_policy: RerunPolicy = RerunPolicy.NEVER

    def compute_hash(self) -> str:
        return compute_request_hash(
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
        ids: IdGenerator,
        catalog: ToolCatalog,
        recorder: Recorder,
        tokens: CallResumeTokens,
        registrations: WebhookRegistrations,
        quotas: QuotaEnforcer,
        lifecycle: Lifecycle,
        post_commit: CallHandoff,
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
        self._post_commit = post_commit
        self._admission = admission

    async def start_call(self, caller: Caller, request: StartCallRequest) -> StartedCall:
        """Store the call and answer; it runs from then on whatever becomes of the client.

        The same idempotency key with the same request gives the same call, whatever its state by then. A callback is a webhook,
        so it takes the scope of one too.
        """
        caller.require_scope(Scope.CALLS)
        if request.callback is not None:
            caller.require_scope(Scope.WEBHOOKS)
        self._lifecycle.require_running()
        if request.idempotency_key is not None:
            existing = await self._store.read(lambda tx: self._find_idempotent_call(tx, caller.principal, request))
            if existing is not None:
                return existing
        self._quotas.acquire_start(caller.principal)
        await self._check_request(caller, request)
        secret, callback = await self._registrations.prepare_callback(caller, request.callback)
        prepare_leases = self._post_commit.consumer
        leases = prepare_leases() if prepare_leases is not None else None
        with self._admission.admit_call():  # and not before: a look-up of the callback's host may take seconds
            return await self._store.write(
                lambda tx: self._insert_call(tx, caller.principal, request, callback, secret, leases)
            )

    async def get_call(self, caller: Caller, call_id: str, *, wait_seconds: float = 0.0) -> Call:
        """The call; with `wait_seconds`, as soon as its status changes or that time is over."""
        caller.require_scope(Scope.READ)
        first = await self._store.read(lambda tx: get_own_call(tx, caller.principal, call_id))
        if wait_seconds <= 0 or first.is_final:
            return first
        return await self._poll_call(caller, first, wait_seconds, until_final=False)

    async def get_for_waiting(self, caller: Caller, call_id: str) -> Call:
        """A call of before, for whoever may start calls: to wait for it again."""
        caller.require_scope(Scope.CALLS)
        return await self._store.read(lambda tx: get_own_call(tx, caller.principal, call_id))

    async def mark_unattended(self, caller: Caller, call_id: str) -> None:
        """The client that stayed for the plain result has gone: what is told from now on is news to it."""
        caller.require_scope(Scope.CALLS)

        async def leave(tx: Transaction) -> None:
            call = await get_own_call(tx, caller.principal, call_id)
            if not call.is_final:
                left = replace(call, attended_until=None)
                await tx.calls.update(left, CallChange.UNATTENDED, expected=call.status, lease_token=None)

        await self._store.write(leave)

    async def acknowledge_inline(self, call: Call) -> None:
        """The call's end was written to the client that stayed for it: `detached` webhooks are spared what it knows."""
        if call.answered_inline and await self._store.read(lambda tx: tx.call_deliveries.has_unsent(call.id)):
            await self._store.write(lambda tx: tx.call_deliveries.cancel_detached(call.id))

    async def wait_for_call(
        self, caller: Caller, call: Call, *, wait_seconds: float, until_final: bool = True
    ) -> tuple[Call, bytes | None]:
        """The call that was just started at its end, with its result if it has one; or as it is when the time is over.

        With `until_final` off, also as soon as its status is another than in `call`. Whoever may start a call may wait for it:
        after the start, a missing scope to read must not become an error.
        """
        caller.require_scope(Scope.CALLS)
        if wait_seconds > 0 and not call.is_final:
            call = await self._poll_call(caller, call, wait_seconds, until_final=until_final)
        if not call.is_final:
            return call, None
        return call, await self._store.read(lambda tx: tx.calls.get_result(call.id))

    async def join_calls(
        self, caller: Caller, call_ids: Sequence[str], mode: JoinMode, *, wait_seconds: float
    ) -> tuple[Sequence[Call], bool]:
        """These calls, and whether any or all of them have ended: as soon as that is so, or when the time is over."""
        caller.require_scope(Scope.READ)
        is_satisfied = any if mode is JoinMode.ANY else all

        async def read_calls(tx: Transaction) -> Sequence[Call]:
            return [await get_own_call(tx, caller.principal, call_id) for call_id in call_ids]

        def is_done(calls: Sequence[Call]) -> bool:
            return is_satisfied(call.is_final for call in calls)

        calls = await poll_until(
            lambda: self._store.read(read_calls),
            is_done,
            signals=self._store.signals,
            topics=[call_changed_topic(CallId(call_id)) for call_id in call_ids],
            wait_seconds=wait_seconds,
            clock=self._clock,
            lifecycle=self._lifecycle,
        )
        return calls, is_done(calls)

    async def list_calls(
        self, caller: Caller, call_filter: CallFilter, *, position: str | None, limit: int
    ) -> Page[Call, str]:
        caller.require_scope(Scope.READ)
        return await self._store.scan(
            caller.principal,
            lambda tx: tx.calls.list_page(caller.principal, call_filter, position=position, limit=limit),
        )

    async def get_result(self, caller: Caller, call_id: str) -> tuple[Call, bytes]:
        """The call and its stored CallToolResult, as JSON."""
        caller.require_scope(Scope.READ)

        async def read(tx: Transaction) -> tuple[Call, bytes]:
            call = await get_own_call(tx, caller.principal, call_id)
            result = await tx.calls.get_result(call.id)
            if result is None:
                raise ResultNotReady(_no_result_detail(call), call_id=call.id, call_status=str(call.status))
            return call, result

        return await self._store.read(read)

    async def cancel_call(self, caller: Caller, call_id: str) -> Call:
        """Ask for the call's end; idempotent, and too late once it has ended.

        A call that was not dispatched ends at once, and so does one for which its upstream holds nothing. One that runs, here
        or elsewhere, is asked to stop, and tells by itself how it ended.
        """
        caller.require_scope(Scope.CALLS)

        async def cancel(tx: Transaction) -> Call:
            call = await get_own_call(tx, caller.principal, call_id)
            if call.is_final:
                return call
            tx.notify(call_cancel_topic(call.id))
            if has_no_upstream_state(call):
                cancelled = replace(call, cancel_requested=True)
                return await self._recorder.finish_call(tx, cancelled, CANCELLED_COMPLETION, lease_token=None) or call
            return await _request_cancellation(tx, call)

        return await self._store.write(cancel)

    async def cancel_immediately(self, caller: Caller, call_id: str) -> Call:
        """End the call as cancelled, now, whatever its upstream still does: it is only told to stop. Raises `CallEnded`.

        For clients to which a cancellation is final (the tasks of MCP 2025-11-25); all others learn how the call really ended.
        """
        caller.require_scope(Scope.CALLS)

        async def cancel(tx: Transaction) -> Call:
            call = await get_own_call(tx, caller.principal, call_id)
            if call.is_final:
                raise CallEnded(f"The call has ended as {call.status}.", call_id=call.id)
            tx.notify(call_cancel_topic(call.id))
            return (
                await self._recorder.finish_call(
                    tx, replace(call, cancel_requested=True), CANCELLED_COMPLETION, lease_token=None
                )
                or call
            )

        return await self._store.write(cancel)

    # -- starting --

    async def _check_request(self, caller: Caller, request: StartCallRequest) -> None:
        check_timeout(request.timeout_seconds)
        await self._catalog.check_call(
            request.upstream, request.tool, request.arguments, visible_upstreams=caller.upstreams
        )

    async def _insert_call(
        self,
        tx: Transaction,
        principal: Principal,
        request: StartCallRequest,
        callback: Webhook | None,
        secret: str | None,
        leases: CallLeases | None,
    ) -> StartedCall:
        if existing := await self._find_idempotent_call(tx, principal, request):
            return existing
        await self._quotas.require_call_quota(tx, principal)
        call = self._new_call(principal, request, now=tx.now())
        await self._registrations.insert_callback(tx, callback, call)  # first, because it may be refused
        leased = await leases.lease_new(tx, call) if leases is not None else None
        await tx.calls.insert(leased or call)
        if leased is None and not (
            leases is not None and call.id in {each.id for each in await leases.lease_queued(tx, call.upstream)}
        ):
            tx.notify(CALL_QUEUED_TOPIC)
        return await build_started_call(tx, self._tokens, call, created=True, secret=secret)

    def _new_call(self, principal: Principal, request: StartCallRequest, *, now: datetime) -> Call:
        return Call(
            id=self._ids.new_call_id(),
            principal=principal,
            upstream=request.upstream,
            tool=request.tool,
            arguments=request.arguments,
            meta=request.meta,
            client_session_id=request.client_session_id,
            correlation_id=request.correlation_id,
            idempotency_key=request.idempotency_key,
            request_hash=request.compute_hash(),
            accepts_input=request.accepts_input,
            rerun_policy=request.rerun_policy,
            rerun_allowed=self._is_rerun_allowed(request),
            attended_until=now + seconds(request.wait_seconds) if request.wait_seconds > 0 else None,
            created_at=now,
            updated_at=now,
            deadline_at=now + seconds(request.timeout_seconds),
        )

    def _is_rerun_allowed(self, request: StartCallRequest) -> bool:
        """Judged once: what a tool says of itself later is no word about this call."""
        match request.rerun_policy:
            case RerunPolicy.NEVER:
                return False
            case RerunPolicy.IF_SAFE:
                return self._catalog.is_repeatable(request.upstream, request.tool)
            case RerunPolicy.ALWAYS:
                return True

    async def _find_idempotent_call(
        self, tx: Transaction, principal: Principal, request: StartCallRequest
    ) -> StartedCall | None:
        """What the idempotency key already names: the same call, a conflict, or the memory of one that has expired."""
        key = request.idempotency_key
        if key is None:
            return None
        call = await tx.calls.find_by_idempotency_key(principal, key)
        existing = call or await tx.tombstones.get(principal, call_id=None, key=key)
        if existing is None:
            return None
        if existing.request_hash != request.compute_hash():
            raise IdempotencyConflict(
                "This Idempotency-Key was used for another request. Send the same request, or a new key."
            )
        if call is None:
            raise CallExpired("The call of this Idempotency-Key has expired. Nothing was started; use a new key.")
        return await build_started_call(tx, self._tokens, call, created=False, secret=None)

    # -- waiting --

    async def _poll_call(self, caller: Caller, previous: Call, wait_seconds: float, *, until_final: bool) -> Call:
        def is_done(call: Call) -> bool:
            return call.is_final or (not until_final and call.status is not previous.status)

        return await poll_until(
            lambda: self._store.read(lambda tx: get_own_call(tx, caller.principal, previous.id)),
            is_done,
            signals=self._store.signals,
            topics=[call_changed_topic(previous.id)],
            wait_seconds=wait_seconds,
            clock=self._clock,
            lifecycle=self._lifecycle,
        )


def check_timeout(timeout_seconds: float) -> None:
    """Raises `InvalidRequest` for a time in which no call is to end."""
    if not 0 < timeout_seconds <= TIMEOUT_SECONDS_MAX:
        raise InvalidRequest(f"timeout_seconds must be above 0 and at most {TIMEOUT_SECONDS_MAX:.0f}.")


async def get_own_call(tx: Transaction, principal: Principal, call_id: str) -> Call:
    """The principal's call of this id; `NotFound` when unknown or foreign, `CallExpired` when it has gone."""
    if is_well_formed_id("call", call_id):
        call = await tx.calls.get(CallId(call_id))
        if call is not None and call.principal == principal:
            return call
        if call is None:
            _raise_if_expired(await tx.tombstones.get(principal, call_id=CallId(call_id), key=None))
    raise NotFound("No call of yours has this id. List yours: GET /v1/calls")


def _raise_if_expired(tombstone: Tombstone | None) -> None:
    if tombstone is not None:
        raise CallExpired("The call has ended and its result has expired.", call_id=tombstone.call_id)


async def _request_cancellation(tx: Transaction, call: Call) -> Call:
    asked = replace(call, cancel_requested=True, updated_at=tx.now())
    await tx.calls.update(asked, CallChange.CANCELLING, expected=call.status, lease_token=None)
    tx.notify(call_changed_topic(call.id))
    return asked


def _no_result_detail(call: Call) -> str:
    if not call.is_final:
        return f"The call is still {call.status}. Wait for it: GET /v1/calls/{call.id}?wait_seconds=60"
    return (
        f"The call ended as {call.status} ({call.outcome}) and has no result. Its error is in GET /v1/calls/{call.id}"
    )
