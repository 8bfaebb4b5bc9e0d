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
from ringback.domain.call import Call, Ending, Outcome, Progress, Status, answered, failed, refused, request_hash
from ringback.domain.call_rows import CallFilter
from ringback.domain.clock import seconds
from ringback.domain.errors import CallEnded, CallExpired, Forbidden, IdempotencyConflict, InvalidRequest
from ringback.domain.ids import CallId, Ids
from ringback.domain.meta import without_reserved_meta
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Caller, Principal, Scope
from ringback.domain.reported import as_reported
from ringback.domain.results import ERROR_BYTES_MAX, can_be_kept, is_call_tool_result
from ringback.domain.upstreams import UPSTREAM_NAME
from ringback.domain.webhook import Webhook
from ringback.notifier.record import End, Recorder
from ringback.notifier.resume_tokens import CallTokens
from ringback.services.calls import TIMEOUT_SECONDS_DEFAULT, check_timeout
from ringback.services.lifecycle import Lifecycle
from ringback.services.quotas import QuotaKeeper
from ringback.services.registrations import Registration, Registrations
from ringback.services.started import Started, started

RESULT_BYTES_MAX: Final = 4 * 1024 * 1024
"""As much as a request body may have by default; a result that comes in another way is held to the same."""
_NAMESPACE: Final = "report\n"
"""Before a reporter's key. No Idempotency-Key header holds a line break, so reports and starts cannot meet in one key."""
_REPORTER_DIED: Final = failed(
    Outcome.UNKNOWN, "The server that ran this call died before it told the end. The tool may have done its work."
)
_BATCH: Final = 500
"""Calls looked at in one transaction while a dead reporter's are given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a reporter tells of a call. `key` is its own name for the call, the same in every report of it."""

    key: str
    upstream: str
    tool: str
    arguments: dict[str, Any] | None = field(default=None, repr=False)
    client_session_id: str | None = None
    correlation_id: str | None = None
    callback: Registration | None = None
    timeout_seconds: float = TIMEOUT_SECONDS_DEFAULT
    """From the first report on."""
    progress: Progress | None = None
    ending: Ending | None = None
    """None while it runs."""


class Reports:
    def __init__(
        self,
        *,
        store: Store,
        ids: Ids,
        recorder: Recorder,
        tokens: CallTokens,
        registrations: Registrations,
        quotas: QuotaKeeper,
        lifecycle: Lifecycle,
    ) -> None:
        self._store = store
        self._ids = ids
        self._recorder = recorder
        self._tokens = tokens
        self._registrations = registrations
        self._quotas = quotas
        self._lifecycle = lifecycle

    async def report(self, caller: Caller, report: Report) -> Started:
        """Write down what is told, and ring whoever hears it; what this has answered is not lost.

        The same report again changes nothing, and neither does progress after the end. Raises `CallEnded` when the call has
        ended in another way, `IdempotencyConflict` when the key names a call that was told of differently.
        """
        _require_allowed(caller, report)
        _check(report)
        known = await self._store.read(lambda tx: self._known(tx, caller.principal, report))
        secret, callback = (None, None) if known else await self._prepare(caller, report)
        return await self._store.write(lambda tx: self._record(tx, caller.principal, report, callback, secret))

    async def give_up(self, caller: Caller, *, key_prefix: str) -> int:
        """End as `unknown` whatever was reported under such keys and has no end: its reporter died. How many there were."""
        caller.require(Scope.ADOPT)
        given_up, before = 0, None
        while True:
            page = await self._store.read(partial(_page, principal=caller.principal, before=before))
            lost = [call.id for call in page if (call.idempotency_key or "").startswith(_NAMESPACE + key_prefix)]
            given_up += await self._store.write(partial(self._end_all, call_ids=lost))
            if len(page) < _BATCH:
                return given_up
            before = page[-1].id

    async def _prepare(self, caller: Caller, report: Report) -> tuple[str | None, Webhook | None]:
        """What a new call needs before it can be written: room, an open door, and a callback that may be called."""
        self._lifecycle.require_open()
        self._quotas.count_start(caller.principal)
        return await self._registrations.prepare_callback(caller, report.callback)

    async def _record(
        self, tx: Transaction, principal: Principal, report: Report, callback: Webhook | None, secret: str | None
    ) -> Started:
        known = await self._known(tx, principal, report)
        call = known or await self._insert(tx, principal, report, callback)
        told = await self._tell(tx, call, report)
        return await started(tx, self._tokens, told, created=known is None, secret=None if known else secret)

    async def _known(self, tx: Transaction, principal: Principal, report: Report) -> Call | None:
        key = _NAMESPACE + report.key
        found = await tx.calls.by_idempotency_key(principal, key)
        if found is None:
            if await tx.tombstones.get(principal, call_id=None, key=key):
                raise CallExpired("The call of this key has ended and expired. Nothing was written; use a new key.")
            return None
        if not _tells_of(report, found):
            raise IdempotencyConflict(
                "Another call was reported under this key. Send what the first report said, or leave it out; or use a new key."
            )
        return await tx.calls.get(found.id)

    async def _insert(self, tx: Transaction, principal: Principal, report: Report, callback: Webhook | None) -> Call:
        await self._quotas.require_room_for_call(tx, principal)
        call = as_reported(self._new_call(principal, report, now=tx.now()))
        await self._registrations.insert_callback(tx, callback, call)  # first, because it may be refused
        await tx.calls.insert(call)
        return call

    def _new_call(self, principal: Principal, report: Report, *, now: datetime) -> Call:
        return Call(
            id=self._ids.call(),
            principal=principal,
            upstream=report.upstream,
            tool=report.tool,
            arguments=report.arguments or {},
            client_session_id=report.client_session_id,
            correlation_id=report.correlation_id,
            idempotency_key=_NAMESPACE + report.key,
            request_hash=_hash(report, report.arguments or {}),
            created_at=now,
            updated_at=now,
            deadline_at=now + seconds(report.timeout_seconds),
        )

    async def _tell(self, tx: Transaction, call: Call, report: Report) -> Call:
        """The call after what is new in this report has been written down."""
        if call.final:
            if report.ending is not None:
                await _require_same_end(tx, call, report.ending)
            return call
        told = call if report.progress is None else replace(call, progress=report.progress, updated_at=tx.now())
        if report.ending is not None:
            return await self._recorder.finish(tx, told, report.ending, lease_token=None) or told
        if told.progress != call.progress:
            await self._recorder.told_progress(tx, told)
        return told

    async def _end_all(self, tx: Transaction, *, call_ids: Sequence[CallId]) -> int:
        """End those that still have no end, as they are by now: they were found in an earlier transaction."""
        found = [await tx.calls.get(call_id) for call_id in call_ids]
        ends = [
            End(call=call, ending=_REPORTER_DIED, lease_token=None)
            for call in found
            if call is not None and not call.final
        ]
        return sum(ended is not None for ended in await self._recorder.finish_all(tx, ends))


def ending_of_result(result: dict[str, Any]) -> Ending:
    """The end of a call that answered so; raises `InvalidRequest` for what is no CallToolResult, or cannot be kept."""
    if not is_call_tool_result(result):
        raise InvalidRequest(
            'result: this is no CallToolResult. It looks like this: {"content": [{"type": "text", "text": "…"}]}'
        )
    try:
        body = jsontext.dumps(without_reserved_meta(result))
    except TypeError:
        raise InvalidRequest("result: it cannot be kept: integers beyond 64 bits, or too deeply nested.") from None
    if len(body) > RESULT_BYTES_MAX:
        raise InvalidRequest(f"result: it is larger than {RESULT_BYTES_MAX} bytes. Send large things by reference.")
    return answered(body, is_error=result.get("isError") is True)


def ending_of_error(error: dict[str, Any]) -> Ending:
    """The end of a call that failed with this JSON-RPC error object; raises `InvalidRequest` when it is too large."""
    if not can_be_kept(error):
        raise InvalidRequest(f"error: it is larger than {ERROR_BYTES_MAX} bytes.")
    return refused(error)


def _require_allowed(caller: Caller, report: Report) -> None:
    caller.require(Scope.ADOPT)
    if report.callback is not None:
        caller.require(Scope.WEBHOOKS)
    if not caller.may_use(report.upstream):
        raise Forbidden(f"This key may not report calls of an upstream '{report.upstream}'. It is limited to others.")


def _check(report: Report) -> None:
    if not UPSTREAM_NAME.fullmatch(report.upstream):
        raise InvalidRequest("upstream: names are 1 to 24 of a-z, 0-9 and '-'. It need not be configured.")
    check_timeout(report.timeout_seconds)


def _tells_of(report: Report, call: Call) -> bool:
    """Whether the report is of this call. It may leave out everything but key, upstream and tool."""
    said = {"upstream": report.upstream, "tool": report.tool} | _given(report)
    if any(getattr(call, name) != value for name, value in said.items()):
        return False
    arguments = call.arguments if report.arguments is None else report.arguments
    if report.callback is not None:
        return _hash(report, arguments) == call.request_hash
    return jsontext.canonical(arguments) == jsontext.canonical(call.arguments)


def _given(report: Report) -> dict[str, str]:
    labels = {"client_session_id": report.client_session_id, "correlation_id": report.correlation_id}
    return {name: label for name, label in labels.items() if label is not None}


def _hash(report: Report, arguments: dict[str, Any]) -> str:
    return request_hash(
        upstream=report.upstream,
        tool=report.tool,
        arguments=arguments,
        callback_url=report.callback.url if report.callback else None,
    )


async def _require_same_end(tx: Transaction, call: Call, ending: Ending) -> None:
    stored = await tx.calls.result(call.id)
    if (ending.outcome, ending.error) != (call.outcome, call.error) or not _same_json(ending.result, stored):
        raise CallEnded(
            f"The call has ended as {call.status} ({call.outcome}), and stays so. This report of its end came too late.",
            call_id=call.id,
            call_status=str(call.status),
        )


def _same_json(one: bytes | None, other: bytes | None) -> bool:
    if one is None or other is None:
        return one is other
    return one == other or jsontext.canonical(jsontext.loads(one)) == jsontext.canonical(jsontext.loads(other))


async def _page(tx: Transaction, *, principal: Principal, before: str | None) -> Sequence[Call]:
    return await tx.calls.page(principal, CallFilter(status=Status.WORKING), before=before, limit=_BATCH)
