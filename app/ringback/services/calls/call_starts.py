"""Starts calls: the checks before the transaction, and the transaction's part for each call.

    prepare_call   the checks that need an upstream or a name server: the arguments, the callback's URL
    insert_call    in the transaction of the caller: the call, its callback and its lease

`Calls` starts one call in a transaction, or a batch of them.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from ringback.attended_calls import AttendedCalls
from ringback.domain.call import Call, CallPhase, RerunPolicy, count_argument_bytes
from ringback.domain.clock import seconds
from ringback.domain.errors import (
    CallExpired,
    Conflict,
    Gone,
    IdempotencyConflict,
    InvalidRequest,
    NotFound,
    QuotaExceeded,
    UpstreamDraining,
)
from ringback.domain.ports import Transaction
from ringback.domain.principal import Caller, Principal, Scope
from ringback.domain.signals import CALL_QUEUED_TOPIC
from ringback.domain.upstreams import CheckWork, ToolCatalog
from ringback.post_commit import CallLeases
from ringback.services.access.api_keys import require_held_key
from ringback.services.calls.given_up_starts import require_not_given_up
from ringback.services.calls.new_calls import CallRequest, NewCallWriter, StartedCall
from ringback.services.limits.quotas import QuotaEnforcer
from ringback.services.limits.schema_checks import ARGUMENTS_REFUSED, SchemaCheckLimiter
from ringback.services.upstreams.upstream_controls import UpstreamControls
from ringback.services.webhooks.registrations import BuiltWebhook

START_DELAY_MAX: Final = timedelta(days=30)
"""How far ahead a call may start: as long as the longest time-out, and as an idempotency key is remembered."""
BATCH_SIZE_MAX: Final = 100
"""Calls in one batch: as many as one request can wait for."""
CALLS_BETWEEN_PAUSES: Final = 16
"""Calls of a batch inserted between two turns of the event loop: some 5 ms, at 300 µs each with its callback."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartCallRequest(CallRequest):
    arguments: dict[str, Any] = field(default_factory=dict[str, Any], repr=False)
    idempotency_key: str | None = None
    meta: dict[str, Any] = field(default_factory=dict[str, Any], repr=False)
    """`_meta` for the upstream. The request hash leaves it out, because traces differ between two sendings of one request."""
    wait_seconds: float = 0.0
    """How long the client keeps its request open for the plain result."""
    not_before: datetime | None = None
    """When the call is queued, at the earliest. The request hash leaves it out, as it does the deadline."""
    accepts_input: bool = False
    webhook_id: str | None = None
    """A registered webhook that receives the events of this call, whatever it filters by, beside those that match."""
    rerun_policy: RerunPolicy | None = None
    """None selects the configured policy of the tool."""
    is_cancelled: bool = False
    """Whether its client has cancelled it already. The call then ends in the transaction that stores it, and never runs."""
    may_be_given_up: bool = False
    """Whether another node may give the start up meanwhile (`given_up_starts`)."""
    wants_log_messages: bool = False
    """Whether the caller subscribes to log messages of the call. The request to the upstream names their level, so it is sent
    only after the caller has gone on from the start."""
    wants_receipt: bool = True
    """Whether the client is shown a resume token and the webhooks of the call. Without, `StartedCall` has neither."""

    def compute_hash(self) -> str:
        return self.hash_with_arguments(self.arguments)

    def require_valid_start(self, now: datetime) -> None:
        if self.not_before is not None and self.not_before - now > START_DELAY_MAX:
            raise InvalidRequest(
                f"not_before: a call may start at most {START_DELAY_MAX.days} days from now, by the clock of the service "
                f"({now:%Y-%m-%dT%H:%M:%SZ})."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedCall:
    """A request whose checks outside the transaction have passed."""

    request: StartCallRequest
    callback: BuiltWebhook | None = None
    argument_bytes: int = 0
    """As `count_argument_bytes`. 0 if the call was known already."""


class CallStarter:
    def __init__(
        self,
        *,
        catalog: ToolCatalog,
        new_calls: NewCallWriter,
        quotas: QuotaEnforcer,
        attended_calls: AttendedCalls,
        upstream_controls: UpstreamControls,
        check_limiter: SchemaCheckLimiter,
        wait_seconds_max: float,
    ) -> None:
        self._catalog = catalog
        self._new_calls = new_calls
        self._quotas = quotas
        self._attended_calls = attended_calls
        self._upstream_controls = upstream_controls
        self._check_limiter = check_limiter
        self._wait_seconds_max = wait_seconds_max

    def require_allowed(self, caller: Caller, request: StartCallRequest) -> None:
        """Raise `Forbidden` without the scope. A webhook that the call names needs the scope `webhooks`, too."""
        request.require_allowed(caller, Scope.CALLS)
        if request.webhook_id is not None:
            caller.require_scope(Scope.WEBHOOKS)

    async def prepare_call(
        self, caller: Caller, request: StartCallRequest, *, now: datetime, work: CheckWork | None = None
    ) -> PreparedCall:
        """Check everything that must not be checked inside a transaction, because it can take seconds."""
        request.require_valid_timeout()
        request.require_valid_start(now)
        await self._catalog.check_call(
            request.upstream,
            request.tool,
            request.arguments,
            principal=caller.principal,
            visible_upstreams=caller.upstreams,
            accepts_input=request.accepts_input,
            work=work,
            measure=partial(self._check_limiter.measure_check, caller.principal, ARGUMENTS_REFUSED),
        )
        await self._upstream_controls.require_not_draining(request.upstream)
        callback = await self._new_calls.prepare_callback(caller, request)
        argument_bytes = count_argument_bytes(request.arguments, request.meta)
        return PreparedCall(request=request, callback=callback, argument_bytes=argument_bytes)

    async def find_started_call(
        self, tx: Transaction, principal: Principal, request: StartCallRequest
    ) -> StartedCall | None:
        """Return the call of the idempotency key; None for a new key. Raises as `find_known_call`."""
        call = await self.find_known_call(tx, principal, request)
        return None if call is None else await self._new_calls.build_known_call(tx, call, request)

    async def find_known_call(self, tx: Transaction, principal: Principal, request: StartCallRequest) -> Call | None:
        """Return the call of the idempotency key. Raise for another request or for an expired call; None for a new key."""
        key = request.idempotency_key
        if key is None:
            return None
        call = await tx.calls.find_by_idempotency_key(principal, key)
        tombstone = None if call else await tx.tombstones.get(principal, call_id=None, key=key)
        existing = call or tombstone
        if existing is None:
            return None
        if tombstone is not None and tombstone.erased:
            raise CallExpired("The call of this Idempotency-Key was erased. Nothing was started; use a new key.")
        if existing.request_hash != request.compute_hash():
            raise IdempotencyConflict(
                "This Idempotency-Key was used for another request. Send the same request, or a new key."
            )
        if call is None:
            raise CallExpired("The call of this Idempotency-Key has expired. Nothing was started; use a new key.")
        return call

    async def insert_batch(
        self, tx: Transaction, caller: Caller, batch: Sequence[PreparedCall], *, new_count: int
    ) -> Sequence[StartedCall]:
        """Insert all of these calls, or find them by their keys. `new_count` of them are expected to be new.

        The runner leases them after the commit, in turns with the calls of other principals.
        """
        await require_held_key(tx, caller)
        await self._require_batch_quota(tx, caller.principal, batch, new_count=new_count)
        started: list[StartedCall] = []
        for index, prepared in enumerate(batch):
            if index and not index % CALLS_BETWEEN_PAUSES:
                await tx.pause()
            with naming_call(index):
                existing = await self.find_started_call(tx, caller.principal, prepared.request)
                started.append(existing or await self._insert_new_call(tx, caller.principal, prepared, leases=None))
        return started

    async def _require_batch_quota(
        self, tx: Transaction, principal: Principal, batch: Sequence[PreparedCall], *, new_count: int
    ) -> None:
        try:
            await self._quotas.require_call_quota(
                tx, principal, count=new_count, argument_bytes=_sum_argument_bytes(batch)
            )
        except QuotaExceeded:
            # The same batch, sent twice at once, may have been stored meanwhile. Counted only now: each call is a query.
            new = await self._find_new_calls(tx, principal, batch)
            if len(new) == new_count:
                raise
            await self._quotas.require_call_quota(
                tx, principal, count=len(new), argument_bytes=_sum_argument_bytes(new)
            )

    async def _find_new_calls(
        self, tx: Transaction, principal: Principal, batch: Sequence[PreparedCall]
    ) -> Sequence[PreparedCall]:
        new: list[PreparedCall] = []
        for index, prepared in enumerate(batch):
            with naming_call(index):
                if await self.find_known_call(tx, principal, prepared.request) is None:
                    new.append(prepared)
        return new

    async def insert_call(
        self, tx: Transaction, caller: Caller, prepared: PreparedCall, *, leases: CallLeases | None
    ) -> StartedCall:
        """Insert the call, or find it by its key."""
        await require_held_key(tx, caller)
        if existing := await self.find_started_call(tx, caller.principal, prepared.request):
            return existing
        await self._quotas.require_call_quota(tx, caller.principal, argument_bytes=prepared.argument_bytes)
        return await self._insert_new_call(tx, caller.principal, prepared, leases=leases)

    async def _insert_new_call(
        self, tx: Transaction, principal: Principal, prepared: PreparedCall, *, leases: CallLeases | None
    ) -> StartedCall:
        request, callback = prepared.request, prepared.callback
        if request.may_be_given_up and request.call_id is not None:
            await require_not_given_up(tx, principal, request.call_id)
        call = self._build_call(principal, request, now=tx.now())
        secret = await self._new_calls.insert_callback(tx, call, callback, webhook_id=request.webhook_id)
        await self._insert_leased_or_queued(tx, call, request, leases)
        if not request.wants_receipt:
            return StartedCall(call=call, resume_token="", webhooks=(), is_new=True)
        return await self._new_calls.build_started_call(tx, call, is_new=True, secret=secret)

    async def _insert_leased_or_queued(
        self, tx: Transaction, call: Call, request: StartCallRequest, leases: CallLeases | None
    ) -> None:
        if call.phase is CallPhase.SCHEDULED:
            leases = None  # from the notification the runner knows when to queue the call
        # Until the wait is over, no response has named the call, so no client expects it to be queued again after a crash.
        may_dispatch = request.wait_seconds > 0
        leased = (
            await leases.lease_new(tx, call, may_dispatch=may_dispatch, starter_goes_first=request.wants_log_messages)
            if leases is not None
            else None
        )
        await tx.calls.insert(leased or call)
        if leased is not None and request.wait_seconds > 0:
            tx.on_commit(partial(self._attended_calls.expect_end, call))
        if leased is None and not (
            leases is not None
            and call.id in {each.id for each in await leases.lease_queued(tx, call.upstream, starter=call.principal)}
        ):
            tx.notify(CALL_QUEUED_TOPIC)

    def _build_call(self, principal: Principal, request: StartCallRequest, *, now: datetime) -> Call:
        wait_seconds = min(request.wait_seconds, self._wait_seconds_max)
        configured_policy = self._catalog.get_tool_config(request.upstream, request.tool).rerun_policy
        rerun_policy = configured_policy if request.rerun_policy is None else request.rerun_policy
        return self._new_calls.build_call(
            principal,
            request,
            now=now,
            not_before=request.not_before,
            arguments=request.arguments,
            meta=request.meta,
            idempotency_key=request.idempotency_key,
            request_hash=request.compute_hash(),
            accepts_input=request.accepts_input,
            rerun_policy=rerun_policy,
            rerun_allowed=self._is_rerun_allowed(principal, request, rerun_policy),
            attended_until=now + seconds(wait_seconds) if wait_seconds > 0 else None,
        )

    def _is_rerun_allowed(self, principal: Principal, request: StartCallRequest, policy: RerunPolicy) -> bool:
        """Decide once, at the start: later annotations of the tool do not apply to this call."""
        match policy:
            case RerunPolicy.NEVER:
                return False
            case RerunPolicy.IF_SAFE:
                return self._catalog.is_repeatable(request.upstream, request.tool, principal=principal)
            case RerunPolicy.ALWAYS:
                return True


def _sum_argument_bytes(batch: Sequence[PreparedCall]) -> int:
    return sum(each.argument_bytes for each in batch)


@contextmanager
def naming_call(index: int) -> Generator[None]:
    """An error of one call of a batch names this call, and says that the whole batch was refused."""
    try:
        yield
    except (Conflict, Gone, InvalidRequest, NotFound, QuotaExceeded, UpstreamDraining) as error:
        stop = "" if error.detail.endswith((".", "?", "!")) else "."  # a hint ends with a path or a URL
        error.detail = f"calls[{index}]: {error.detail}{stop} No call of the batch was started."
        error.extra["index"] = index
        raise
