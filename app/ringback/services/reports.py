"""Reports: calls that run elsewhere, told by whoever runs them.

    first report of a key ──▶ a call, and its callback ──▶ progress … ──▶ the end
                              parked: no runner takes it        or its deadline: `unknown`

Every report says the whole truth as its reporter knows it, so any of them may be the first, be repeated, or be the only one.
What a later report leaves out is as the first one said; what it says otherwise is a conflict.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, Final

from ringback.domain import jsontext
from ringback.domain.call import (
    Call,
    CallCompletion,
    CallOutcome,
    CallStatus,
    Progress,
    completion_from_result,
    completion_from_upstream_error,
    compute_request_hash,
    failed_completion,
)
from ringback.domain.call_completion import mark_reported
from ringback.domain.call_rows import CallFilter
from ringback.domain.clock import seconds
from ringback.domain.errors import CallEnded, CallExpired, Forbidden, IdempotencyConflict, InvalidRequest
from ringback.domain.ids import CallId, IdGenerator
from ringback.domain.meta import without_reserved_meta
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Caller, Principal, Scope
from ringback.domain.tool_result import ERROR_BYTES_MAX, is_call_tool_result, is_storable_error
from ringback.domain.upstreams import UPSTREAM_NAME_PATTERN
from ringback.domain.webhook import Webhook
from ringback.notifier.recorder import CompletionRequest, Recorder
from ringback.notifier.resume_tokens import CallResumeTokens
from ringback.services.calls import TIMEOUT_SECONDS_DEFAULT, check_timeout
from ringback.services.lifecycle import Lifecycle
from ringback.services.quotas import QuotaEnforcer
from ringback.services.registrations import WebhookRegistration, WebhookRegistrations
from ringback.services.started_call import StartedCall, build_started_call

REPORTED_RESULT_BYTES_MAX: Final = 4 * 1024 * 1024
"""As much as a request body may have by default; a result that comes in another way is held to the same."""
_REPORT_KEY_PREFIX: Final = "report\n"
"""Before a reporter's key. No Idempotency-Key header holds a line break, so reports and starts cannot meet in one key."""
_REPORTER_DIED_COMPLETION: Final = failed_completion(
    CallOutcome.UNKNOWN, "The server that ran this call died before it told the end. The tool may have done its work."
)
GIVE_UP_BATCH_SIZE: Final = 500
"""Calls looked at in one transaction while a dead reporter's are given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallReport:
    """What a reporter tells of a call. `key` is its own name for the call, the same in every report of it."""

    key: str
    upstream: str
    tool: str
    arguments: dict[str, Any] | None = field(default=None, repr=False)
    client_session_id: str | None = None
    correlation_id: str | None = None
    callback: WebhookRegistration | None = None
    timeout_seconds: float = TIMEOUT_SECONDS_DEFAULT
    """From the first report on."""
    progress: Progress | None = None
    completion: CallCompletion | None = None
    """None while it runs."""


class CallReports:
    def __init__(
        self,
        *,
        store: Store,
        ids: IdGenerator,
        recorder: Recorder,
        tokens: CallResumeTokens,
        registrations: WebhookRegistrations,
        quotas: QuotaEnforcer,
        lifecycle: Lifecycle,
    ) -> None:
        self._store = store
        self._ids = ids
        self._recorder = recorder
        self._tokens = tokens
        self._registrations = registrations
        self._quotas = quotas
        self._lifecycle = lifecycle

    async def record_report(self, caller: Caller, report: CallReport) -> StartedCall:
        """Write down what is told, and ring whoever hears it; what this has answered is not lost.

        The same report again changes nothing, and neither does progress after the end. Raises `CallEnded` when the call has
        ended in another way, `IdempotencyConflict` when the key names a call that was told of differently.
        """
        _require_allowed(caller, report)
        _check_report(report)
        known = await self._store.read(lambda tx: self._find_reported_call(tx, caller.principal, report))
        secret, callback = (None, None) if known else await self._prepare_new_call(caller, report)
        return await self._store.write(lambda tx: self._record_report(tx, caller.principal, report, callback, secret))

    async def give_up_calls(self, caller: Caller, *, key_prefix: str) -> int:
        """End as `unknown` whatever was reported under such keys and has no end: its reporter died. How many there were."""
        caller.require_scope(Scope.ADOPT)
        given_up, before = 0, None
        while True:
            page = await self._store.read(partial(_list_working_calls, principal=caller.principal, position=before))
            lost = [
                call.id for call in page if (call.idempotency_key or "").startswith(_REPORT_KEY_PREFIX + key_prefix)
            ]
            given_up += await self._store.write(partial(self._finish_lost_calls, call_ids=lost))
            if len(page) < GIVE_UP_BATCH_SIZE:
                return given_up
            before = page[-1].id

    async def _prepare_new_call(self, caller: Caller, report: CallReport) -> tuple[str | None, Webhook | None]:
        """What a new call needs before it can be written: room, an open door, and a callback that may be called."""
        self._lifecycle.require_running()
        self._quotas.acquire_start(caller.principal)
        return await self._registrations.prepare_callback(caller, report.callback)

    async def _record_report(
        self, tx: Transaction, principal: Principal, report: CallReport, callback: Webhook | None, secret: str | None
    ) -> StartedCall:
        existing = await self._find_reported_call(tx, principal, report)
        call = existing or await self._insert_call(tx, principal, report, callback)
        updated = await self._apply_report(tx, call, report)
        return await build_started_call(
            tx, self._tokens, updated, created=existing is None, secret=None if existing else secret
        )

    async def _find_reported_call(self, tx: Transaction, principal: Principal, report: CallReport) -> Call | None:
        key = _REPORT_KEY_PREFIX + report.key
        found = await tx.calls.find_by_idempotency_key(principal, key)
        if found is None:
            if await tx.tombstones.get(principal, call_id=None, key=key):
                raise CallExpired("The call of this key has ended and expired. Nothing was written; use a new key.")
            return None
        if not _matches_call(report, found):
            raise IdempotencyConflict(
                "Another call was reported under this key. Send what the first report said, or leave it out; or use a new key."
            )
        return await tx.calls.get(found.id)

    async def _insert_call(
        self, tx: Transaction, principal: Principal, report: CallReport, callback: Webhook | None
    ) -> Call:
        await self._quotas.require_call_quota(tx, principal)
        call = mark_reported(self._new_call(principal, report, now=tx.now()))
        await self._registrations.insert_callback(tx, callback, call)  # first, because it may be refused
        await tx.calls.insert(call)
        return call

    def _new_call(self, principal: Principal, report: CallReport, *, now: datetime) -> Call:
        return Call(
            id=self._ids.new_call_id(),
            principal=principal,
            upstream=report.upstream,
            tool=report.tool,
            arguments=report.arguments or {},
            client_session_id=report.client_session_id,
            correlation_id=report.correlation_id,
            idempotency_key=_REPORT_KEY_PREFIX + report.key,
            request_hash=_report_hash(report, report.arguments or {}),
            created_at=now,
            updated_at=now,
            deadline_at=now + seconds(report.timeout_seconds),
        )

    async def _apply_report(self, tx: Transaction, call: Call, report: CallReport) -> Call:
        """The call after what is new in this report has been written down."""
        if call.is_final:
            if report.completion is not None:
                await _require_same_completion(tx, call, report.completion)
            return call
        updated = call if report.progress is None else replace(call, progress=report.progress, updated_at=tx.now())
        if report.completion is not None:
            return await self._recorder.finish_call(tx, updated, report.completion, lease_token=None) or updated
        if updated.progress != call.progress:
            await self._recorder.record_reported_progress(tx, updated)
        return updated

    async def _finish_lost_calls(self, tx: Transaction, *, call_ids: Sequence[CallId]) -> int:
        """End those that still have no end, as they are by now: they were found in an earlier transaction."""
        found = [await tx.calls.get(call_id) for call_id in call_ids]
        requests = [
            CompletionRequest(call=call, completion=_REPORTER_DIED_COMPLETION, lease_token=None)
            for call in found
            if call is not None and not call.is_final
        ]
        return sum(ended is not None for ended in await self._recorder.finish_calls(tx, requests))


def parse_result_completion(result: dict[str, Any]) -> CallCompletion:
    """The end of a call that answered so; raises `InvalidRequest` for what is no CallToolResult, or cannot be kept."""
    if not is_call_tool_result(result):
        raise InvalidRequest(
            'result: this is no CallToolResult. It looks like this: {"content": [{"type": "text", "text": "…"}]}'
        )
    try:
        body = jsontext.dumps(without_reserved_meta(result))
    except TypeError:
        raise InvalidRequest("result: it cannot be kept: integers beyond 64 bits, or too deeply nested.") from None
    if len(body) > REPORTED_RESULT_BYTES_MAX:
        raise InvalidRequest(
            f"result: it is larger than {REPORTED_RESULT_BYTES_MAX} bytes. Send large things by reference."
        )
    return completion_from_result(body, is_error=result.get("isError") is True)


def parse_error_completion(error: dict[str, Any]) -> CallCompletion:
    """The end of a call that failed with this JSON-RPC error object; raises `InvalidRequest` when it is too large."""
    if not is_storable_error(error):
        raise InvalidRequest(f"error: it is larger than {ERROR_BYTES_MAX} bytes.")
    return completion_from_upstream_error(error)


def _require_allowed(caller: Caller, report: CallReport) -> None:
    caller.require_scope(Scope.ADOPT)
    if report.callback is not None:
        caller.require_scope(Scope.WEBHOOKS)
    if not caller.may_use_upstream(report.upstream):
        raise Forbidden(f"This key may not report calls of an upstream '{report.upstream}'. It is limited to others.")


def _check_report(report: CallReport) -> None:
    if not UPSTREAM_NAME_PATTERN.fullmatch(report.upstream):
        raise InvalidRequest("upstream: names are 1 to 24 of a-z, 0-9 and '-'. It need not be configured.")
    check_timeout(report.timeout_seconds)


def _matches_call(report: CallReport, call: Call) -> bool:
    """Whether the report is of this call. It may leave out everything but key, upstream and tool."""
    expected = {"upstream": report.upstream, "tool": report.tool} | _given_labels(report)
    if any(getattr(call, name) != value for name, value in expected.items()):
        return False
    arguments = call.arguments if report.arguments is None else report.arguments
    if report.callback is not None:
        return _report_hash(report, arguments) == call.request_hash
    return jsontext.dumps_canonical(arguments) == jsontext.dumps_canonical(call.arguments)


def _given_labels(report: CallReport) -> dict[str, str]:
    labels = {"client_session_id": report.client_session_id, "correlation_id": report.correlation_id}
    return {name: label for name, label in labels.items() if label is not None}


def _report_hash(report: CallReport, arguments: dict[str, Any]) -> str:
    return compute_request_hash(
        upstream=report.upstream,
        tool=report.tool,
        arguments=arguments,
        callback_url=report.callback.url if report.callback else None,
    )


async def _require_same_completion(tx: Transaction, call: Call, completion: CallCompletion) -> None:
    stored = await tx.calls.get_result(call.id)
    if (completion.outcome, completion.error) != (call.outcome, call.error) or not _is_same_json(
        completion.result, stored
    ):
        raise CallEnded(
            f"The call has ended as {call.status} ({call.outcome}), and stays so. This report of its end came too late.",
            call_id=call.id,
            call_status=str(call.status),
        )


def _is_same_json(one: bytes | None, other: bytes | None) -> bool:
    if one is None or other is None:
        return one is other
    return one == other or jsontext.dumps_canonical(jsontext.loads(one)) == jsontext.dumps_canonical(
        jsontext.loads(other)
    )


async def _list_working_calls(tx: Transaction, *, principal: Principal, position: str | None) -> Sequence[Call]:
    return await tx.calls.list_page(
        principal, CallFilter(status=CallStatus.WORKING), position=position, limit=GIVE_UP_BATCH_SIZE
    )
