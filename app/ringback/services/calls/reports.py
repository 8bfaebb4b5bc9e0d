"""Reports: calls that run elsewhere, recorded as their servers report them.

    first report of a key ──▶ a call, and its callback ──▶ progress … ──▶ the end
                              parked: no runner leases it      or its deadline: `unknown`

Each report carries the complete state of the call, so any report can be the first, a repetition, or the only one. A member that
a later report leaves out keeps the value of the first report; a different value is a conflict.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from ringback.domain import jsontext
from ringback.domain.call import Call, CallStatus, Progress, count_argument_bytes
from ringback.domain.call_completion import REPORTED_KEY_PREFIX, mark_reported
from ringback.domain.call_outcome import (
    CallCompletion,
    CallOutcome,
    completion_from_result,
    completion_from_upstream_error,
    failed_completion,
)
from ringback.domain.call_rows import CallFilter
from ringback.domain.errors import CallEnded, CallExpired, Forbidden, IdempotencyConflict, InvalidRequest
from ringback.domain.ids import CallId
from ringback.domain.meta import without_reserved_meta
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Caller, Principal, Scope
from ringback.domain.tool_result import ERROR_BYTES_MAX, is_call_tool_result, is_storable_error
from ringback.notifier.call_ends import CompletionRequest
from ringback.notifier.recorder import Recorder
from ringback.protocol.upstream_logins import UPSTREAM_NAME_PATTERN
from ringback.services.access.api_keys import require_held_key
from ringback.services.calls.new_calls import CallRequest, NewCallWriter, StartedCall
from ringback.services.lifecycle import Lifecycle
from ringback.services.limits.quotas import QuotaEnforcer
from ringback.services.webhooks.registrations import BuiltWebhook

REPORTED_RESULT_BYTES_MAX: Final = 4 * 1024 * 1024
"""The default limit of a request body. Results that arrive in another way have the same limit."""
_REPORTER_DIED_COMPLETION: Final = failed_completion(
    CallOutcome.UNKNOWN,
    "The server that ran this call died before it reported the end. The tool may have done its work.",
)
GIVE_UP_BATCH_SIZE: Final = 500
"""Calls per transaction when the calls of a dead reporter are ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallReport(CallRequest):
    """One report of a call. `timeout_seconds` counts from the first report of the key."""

    key: str
    """The reporter's own name for the call, the same in every report of it."""
    arguments: dict[str, Any] | None = field(default=None, repr=False)
    progress: Progress | None = None
    completion: CallCompletion | None = None
    """None while the call runs."""


class CallReports:
    def __init__(
        self,
        *,
        store: Store,
        recorder: Recorder,
        new_calls: NewCallWriter,
        quotas: QuotaEnforcer,
        lifecycle: Lifecycle,
    ) -> None:
        self._store = store
        self._recorder = recorder
        self._new_calls = new_calls
        self._quotas = quotas
        self._lifecycle = lifecycle

    async def record_report(self, caller: Caller, report: CallReport) -> StartedCall:
        """Record the report and create its events and deliveries, durably before the return.

        Repeating a report, or reporting progress after the end, changes nothing. Raises `CallEnded` if the call has another
        end, and `IdempotencyConflict` if the key names a call with other values.
        """
        _require_allowed(caller, report)
        _check_report(report)
        known = await self._store.read(lambda tx: self._find_reported_call(tx, caller.principal, report))
        callback = None if known else await self._prepare_new_call(caller, report)
        return await self._store.write_for(
            caller.principal, lambda tx: self._record_report(tx, caller, report, callback)
        )

    async def give_up_calls(self, caller: Caller, *, key_prefix: str) -> int:
        """End as `unknown` all working calls of a dead reporter, found by the prefix of their keys. Return their number."""
        caller.require_scope(Scope.ADOPT)
        given_up, position = 0, None
        while True:
            page = await self._store.read(partial(_list_working_calls, principal=caller.principal, position=position))
            lost = [
                call.id for call in page if (call.idempotency_key or "").startswith(REPORTED_KEY_PREFIX + key_prefix)
            ]
            given_up += await self._store.write_for(caller.principal, partial(self._finish_lost_calls, call_ids=lost))
            if len(page) < GIVE_UP_BATCH_SIZE:
                return given_up
            position = page[-1].id

    async def _prepare_new_call(self, caller: Caller, report: CallReport) -> BuiltWebhook | None:
        """Check what a new call needs before its transaction: a running service, the rate of starts, and a valid callback."""
        self._lifecycle.require_running()
        self._quotas.acquire_start(caller.principal, key_id=caller.key_id)
        return await self._new_calls.prepare_callback(caller, report)

    async def _record_report(
        self, tx: Transaction, caller: Caller, report: CallReport, callback: BuiltWebhook | None
    ) -> StartedCall:
        if (existing := await self._find_reported_call(tx, caller.principal, report)) is not None:
            updated = await self._apply_report(tx, existing, report)
            return await self._new_calls.build_known_call(tx, updated, report)
        call, secret = await self._insert_call(tx, caller, report, callback)
        updated = await self._apply_report(tx, call, report)
        return await self._new_calls.build_started_call(tx, updated, is_new=True, secret=secret)

    async def _find_reported_call(self, tx: Transaction, principal: Principal, report: CallReport) -> Call | None:
        key = REPORTED_KEY_PREFIX + report.key
        found = await tx.calls.find_by_idempotency_key(principal, key)
        if found is None:
            if await tx.tombstones.get(principal, call_id=None, key=key):
                raise CallExpired("The call of this key has ended and expired. Nothing was written; use a new key.")
            return None
        if not await _matches_call(tx, report, found):
            raise IdempotencyConflict(
                "Another call was reported under this key. Send what the first report said, or leave it out; or use a new key."
            )
        return await tx.calls.get(found.id)

    async def _insert_call(
        self, tx: Transaction, caller: Caller, report: CallReport, callback: BuiltWebhook | None
    ) -> tuple[Call, str | None]:
        """The call, and the secret that was generated for its callback."""
        await require_held_key(tx, caller)
        arguments = report.arguments or {}
        call = self._new_calls.build_call(
            caller.principal,
            report,
            now=tx.now(),
            arguments=arguments,
            idempotency_key=REPORTED_KEY_PREFIX + report.key,
            request_hash=report.hash_with_arguments(arguments),
        )
        call = mark_reported(call)
        argument_bytes = count_argument_bytes(arguments, call.meta)
        await self._quotas.require_call_quota(tx, caller.principal, argument_bytes=argument_bytes)
        secret = await self._new_calls.insert_callback(tx, call, callback)
        await tx.calls.insert(call)
        return call, secret

    async def _apply_report(self, tx: Transaction, call: Call, report: CallReport) -> Call:
        """Record what is new in this report, and return the call."""
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
        """Read the calls again, because an earlier transaction found them, and end those that are still working."""
        found = [await tx.calls.get(call_id) for call_id in sorted(call_ids)]
        requests = [
            CompletionRequest(call=call, completion=_REPORTER_DIED_COMPLETION, lease_token=None)
            for call in found
            if call is not None and not call.is_final
        ]
        return sum(finished is not None for finished in await self._recorder.finish_calls(tx, requests))


def parse_result_completion(result: dict[str, Any]) -> CallCompletion:
    """Return the end of a call with this result. Raises `InvalidRequest` unless it is a CallToolResult that can be stored."""
    if not is_call_tool_result(result):
        raise InvalidRequest(
            "result: this is not a CallToolResult. A CallToolResult looks like this: "
            '{"content": [{"type": "text", "text": "…"}]}'
        )
    try:
        body = jsontext.dumps(without_reserved_meta(result))
    except TypeError:
        raise InvalidRequest(
            f"result: it cannot be stored: it has integers of more than {jsontext.INTEGER_DIGITS_MAX} digits, or too many "
            "levels. The tool has run: report a result without them, and do not run it again for that reason."
        ) from None
    if len(body) > REPORTED_RESULT_BYTES_MAX:
        raise InvalidRequest(
            f"result: it is larger than {REPORTED_RESULT_BYTES_MAX} bytes. Send large data by reference."
        )
    return completion_from_result(body, is_error=result.get("isError") is True)


def parse_error_completion(error: dict[str, Any]) -> CallCompletion:
    """Return the end of a call with this JSON-RPC error. Raises `InvalidRequest` if it is too large."""
    if not is_storable_error(error):
        raise InvalidRequest(f"error: it is larger than {ERROR_BYTES_MAX} bytes, or has thousands of values.")
    return completion_from_upstream_error(error)


def _require_allowed(caller: Caller, report: CallReport) -> None:
    report.require_allowed(caller, Scope.ADOPT)
    if not caller.may_use_upstream(report.upstream):
        raise Forbidden(
            f"This key may not report calls of an upstream '{report.upstream}'. It is limited to other upstreams. Use a key "
            "that may use this one."
        )


def _check_report(report: CallReport) -> None:
    if not UPSTREAM_NAME_PATTERN.fullmatch(report.upstream):
        raise InvalidRequest("upstream: names are 1 to 24 of a-z, 0-9 and '-'. It need not be configured.")
    report.require_valid_timeout()


async def _matches_call(tx: Transaction, report: CallReport, call: Call) -> bool:
    """Whether the report has the call's values. It can leave out all members except key, upstream and tool."""
    expected = {"upstream": report.upstream, "tool": report.tool} | _given_labels(report)
    if any(getattr(call, name) != value for name, value in expected.items()):
        return False
    if report.arguments is None and report.callback is None:
        return True
    whole = await tx.calls.get_whole(call.id)
    stored = (None if whole is None else whole.arguments) or {}
    arguments = stored if report.arguments is None else report.arguments
    if report.callback is not None:
        return report.hash_with_arguments(arguments) == call.request_hash
    return jsontext.dumps_canonical(arguments) == jsontext.dumps_canonical(stored)


def _given_labels(report: CallReport) -> dict[str, str]:
    labels = {"client_session_id": report.client_session_id, "correlation_id": report.correlation_id}
    return {name: label for name, label in labels.items() if label is not None}


async def _require_same_completion(tx: Transaction, call: Call, completion: CallCompletion) -> None:
    stored = await tx.call_completions.get_result(call.id)
    if (completion.outcome, completion.error) != (call.outcome, call.error) or not _is_same_json(
        completion.result, stored
    ):
        raise CallEnded(
            f"The call has already ended as {call.status} ({call.outcome}). This report has another end and is rejected.",
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
