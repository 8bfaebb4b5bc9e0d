"""DurableCaller: request a tool call, forget it, and join it later from anywhere."""

import asyncio
import hashlib
import json
import secrets
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime
from typing import Any, Final, Self

from ringback.client.arguments import check_json, list_items
from ringback.client.client import RingbackClient
from ringback.client.durable.call_runner import CallRunner
from ringback.client.durable.clock import DurableClock, SystemDurableClock
from ringback.client.durable.errors import (
    CallNotStarted,
    IdempotencyConflict,
    NotRejoinable,
    StartUnknown,
    UnknownHandle,
)
from ringback.client.durable.handle import CallHandle
from ringback.client.durable.joins import OnProgress, emit_progress, join_several, wait_for_end
from ringback.client.durable.journal import CallJournal
from ringback.client.durable.local_call import LEASE_SECONDS, LocalCall
from ringback.client.durable.mcp_target import McpCommandTarget, McpTarget
from ringback.client.durable.outcomes import CallSnapshot, JoinedCall, get_result, make_snapshot
from ringback.client.durable.record import CallRecord, CallRequest, Completion
from ringback.client.durable.ringback_target import RingbackTarget
from ringback.client.durable.runner_registry import RunnerRegistry
from ringback.client.durable.state import MemoryRequestState, RequestStateManager
from ringback.client.durable.target import CallTarget
from ringback.client.options import CallbackOptions
from ringback.client.problems import ClientError, InvalidArgument

START_TIMEOUT_SECONDS: Final = 5.0
"""How long a request waits for what finds the call again. Servers that can send it do so at once."""
KEEP_SECONDS: Final = 7 * 24 * 3600.0
"""How long the state of a call is kept after its time limit: as long as the service keeps a result."""
TIME_LIMIT_SECONDS_DEFAULT: Final = 7 * 24 * 3600.0
"""The service's time limit of a call without `timeout_seconds`. On an MCP server such a call has no limit."""
TIME_LIMIT_SECONDS_MAX: Final = 366 * 24 * 3600.0
"""What counts of a longer time limit: a state must be able to store the sum."""
_ID_BYTES: Final = 16
_ID_PREFIX: Final = "req_"

Target = str | RingbackClient | RingbackTarget | McpTarget | McpCommandTarget


class DurableCaller:
    """Requests tool calls that outlive this process, and joins them here or elsewhere.

        caller = DurableCaller("http://127.0.0.1:8090", state=SQLiteRequestState("calls.db"))
        handle = await caller.request_call_tool("count_primes", {"below": 10**6}, upstream="demo")
        result = await caller.join_call_tool(handle, timeout_seconds=5, on_progress=print)   # None: not yet

    `target` is a Ringback or an MCP server. A URL without a path is a Ringback, any other URL an MCP server: a Ringback below
    a path is `RingbackTarget(url, api_key=…)`. `McpTarget` takes other headers and an HTTP transport, and `McpCommandTarget` is
    a server that is a command. Use a caller in one event loop. `aclose`, or the end of an `async with`, stops waiting; only
    calls that cannot be rejoined end with it.
    """

    def __init__(
        self,
        target: Target,
        *,
        api_key: str | None = None,
        state: RequestStateManager | None = None,
        keep_seconds: float = KEEP_SECONDS,
        clock: DurableClock | None = None,
    ) -> None:
        """`api_key` is sent to the URL as a bearer token; any other target has its own. Raises ValueError for both.

        Without `state`, only this process can join. `keep_seconds` is how long the state keeps a call after its time limit,
        which is seven days without `timeout_seconds`. After that a join raises `UnknownHandle`, and starts nothing. A state is
        of one principal: each caller that has it lists and joins all of its calls, also with another API key.
        """
        self._owns_target = not isinstance(target, RingbackTarget | McpTarget | McpCommandTarget)
        self._target = _make_target(target, api_key)
        self._journal = CallJournal(state or MemoryRequestState())
        self._keep_seconds = keep_seconds
        self._clock = clock or SystemDurableClock()
        self._runners = RunnerRegistry(self._target, self._journal, self._clock, holder=secrets.token_hex(_ID_BYTES))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop waiting for calls, and close the target unless it was passed to the constructor."""
        await self._runners.stop_all()
        if self._owns_target:
            await self._target.aclose()

    # -- request --

    async def request_call_tool(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        upstream: str | None = None,
        client_session_id: str | None = None,
        correlation_id: str | None = None,
        callback: CallbackOptions | None = None,
        idempotency_key: str | None = None,
        timeout_seconds: float | None = None,
        accepts_input: bool = False,
        start_timeout_seconds: float = START_TIMEOUT_SECONDS,
        cancel_if_not_resumable: bool = False,
    ) -> CallHandle:
        """Start a tool call and return its handle, which is durable by then. The tool goes on without this process.

        `upstream` names the server behind a Ringback. `callback` needs a Ringback, too, and a `secret` of yours: no handle has
        one that the service makes. The same `idempotency_key` with the same request returns the same call: at a Ringback for 30
        days, on an MCP server while the state keeps the call, which then would run again. `accepts_input` says that you can
        answer the tool's questions. `timeout_seconds` limits the whole call. A Ringback ends it by itself; on an MCP server the
        process that follows the call does.

        `start_timeout_seconds` limits the wait for what finds the call again: a task, or the first event of a stream. A call
        without that gets a handle with `rejoinable=False`. With `cancel_if_not_resumable` it is cancelled instead, or not even
        sent, and `NotRejoinable` is raised. Raises also `CallNotStarted`, `StartUnknown` and `IdempotencyConflict`.
        """
        # Before anything is stored: a state has null in the place of NaN, so a join would start the call with other arguments.
        check_json({"arguments": arguments or {}, "callback": callback, "timeout_seconds": timeout_seconds})
        if idempotency_key == "":
            raise InvalidArgument("The idempotency key is empty.")
        request = CallRequest(
            upstream=upstream,
            tool=tool,
            arguments=dict(arguments or {}),
            client_session_id=client_session_id,
            correlation_id=correlation_id,
            callback=None if callback is None else dict(callback),
            idempotency_key=idempotency_key or secrets.token_hex(_ID_BYTES),
            timeout_seconds=timeout_seconds,
            accepts_input=accepts_input,
        )
        self._target.check_request(request)
        record, is_new = await self._create_record(request, is_repeatable=idempotency_key is not None)
        with self._runners.use_runner(record) as runner:
            is_starting = runner.is_running and runner.call.record.position is None
            if not is_starting and (is_new or await self._may_start(runner)):
                runner.call.is_first_start = is_new
                runner.call.requires_rejoin = cancel_if_not_resumable
                await self._start_call(runner, start_timeout_seconds)
            elif is_starting:  # by another request of the same key, whose start may be refused
                await self._wait_for_start(runner, start_timeout_seconds)
                if runner.failure is not None:
                    raise runner.failure
        return runner.call.handle

    async def _may_start(self, runner: CallRunner) -> bool:
        """Whether a repeated request starts the call: an earlier one has not, or the target runs a key only once."""
        call = runner.call
        if call.record.position is not None or call.record.completion is not None or runner.is_running:
            return False
        return self._target.may_repeat_start or await call.acquire_lease()

    async def _create_record(self, request: CallRequest, *, is_repeatable: bool) -> tuple[CallRecord, bool]:
        """The record of the request, and whether it is new."""
        record = self._make_record(request, is_repeatable=is_repeatable)
        stored: CallRecord | None = None
        while stored is None:  # again if another process has deleted it meanwhile, because its start was refused
            if await self._journal.create(record):
                return record, True
            stored = await self._journal.read(record.handle.id)
        if stored.fingerprint != request.fingerprint():
            raise IdempotencyConflict(
                f"The idempotency key belongs to another request, of {stored.request.tool!r}. Use another key, or the same "
                "tool and arguments."
            )
        return stored, False

    def _make_record(self, request: CallRequest, *, is_repeatable: bool) -> CallRecord:
        seed = json.dumps([self._target.url, request.idempotency_key]).encode()
        now = self._clock.now()
        handle = CallHandle(
            id=_ID_PREFIX
            + (hashlib.sha256(seed).hexdigest()[: 2 * _ID_BYTES] if is_repeatable else secrets.token_hex(_ID_BYTES)),
            target=self._target.url,
            kind="ringback" if isinstance(self._target, RingbackTarget) else "plain",
            rejoinable=False,
            state_is_shared=self._journal.is_shared,
            upstream=request.upstream,
            tool=request.tool,
            client_session_id=request.client_session_id,
            correlation_id=request.correlation_id,
            created_at=datetime.fromtimestamp(now, UTC),
        )
        return CallRecord(
            handle=handle,
            request=request,
            fingerprint=request.fingerprint(),
            lease_holder=self._runners.holder,
            lease_until=now + LEASE_SECONDS,
            expires_at=now + _find_time_limit(request) + self._keep_seconds,
        )

    async def _start_call(self, runner: CallRunner, start_timeout_seconds: float) -> None:
        call = runner.call
        runner.ensure_running()
        await self._wait_for_start(runner, start_timeout_seconds)
        if isinstance(runner.failure, CallNotStarted | NotRejoinable):
            await self._delete_unsent(call)
        if runner.failure is not None:
            raise runner.failure
        if call.requires_rejoin and not call.handle.rejoinable and call.has_lease:
            await runner.stop()
            await self._delete_unsent(call)
            raise NotRejoinable(
                f"The server does not keep calls of {call.handle.tool!r} for another connection, so the call was cancelled."
            )

    async def _wait_for_start(self, runner: CallRunner, start_timeout_seconds: float) -> None:
        """Wait until the start has been confirmed or has failed. Raises `StartUnknown`."""
        call = runner.call
        try:
            async with asyncio.timeout(start_timeout_seconds):
                await call.started.wait()
        except TimeoutError:
            if self._target.may_repeat_start and call.record.position is None:
                raise StartUnknown(
                    f"The service did not confirm the start within {start_timeout_seconds:g} s. Join the handle: that "
                    "repeats the start, which runs the tool once.",
                    call.handle,
                ) from None

    async def _delete_unsent(self, call: LocalCall) -> None:
        """Delete the state of a call that has no effect, unless another process has taken over its start."""
        with suppress(UnknownHandle):
            if await call.acquire_lease():
                await self._journal.delete(call.handle.id)

    # -- join --

    async def join_call_tool(
        self,
        handle: CallHandle | str,
        *,
        timeout_seconds: float | None = None,
        on_progress: OnProgress | None = None,
        forget_on_timeout: bool = False,
    ) -> Mapping[str, Any] | None:
        """Wait for the result, a CallToolResult in wire form; None if the time is over. Then join again, also elsewhere.

        `on_progress` gets the newest stored progress first, which an earlier join may have had, and then live progress, which
        only rises and may leave out values in between; it may be async. A timeout of 0 reads only the state.
        `forget_on_timeout` makes this the last join: after a timeout `forget_call` deletes the state of the call.
        Raises `CallFailed`, `InputRequired`, `UnknownHandle` or `NotRejoinable`, and errors of the target.
        """
        async with self._runners.using(handle) as runner:
            with runner.call.join() as join:
                await emit_progress(join, on_progress)
                if await wait_for_end(runner, join, timeout_seconds, on_progress):
                    return get_result(runner)
        if forget_on_timeout:
            await self.forget_call(runner.call.handle)
        return None

    async def join_any(
        self, handles: Sequence[CallHandle | str], *, timeout_seconds: float | None = None
    ) -> Sequence[JoinedCall]:
        """Wait until one of the calls is settled or the time is over, and return all in the given order.

        Raises `UnknownHandle` for an id that the state does not hold; of such a handle it is the `error`.
        """
        return await self._join_several(handles, timeout_seconds, asyncio.FIRST_COMPLETED)

    async def join_all(
        self, handles: Sequence[CallHandle | str], *, timeout_seconds: float | None = None
    ) -> Sequence[JoinedCall]:
        """Wait until all calls are settled or the time is over, and return them in the given order.

        Raises as `join_any` does.
        """
        return await self._join_several(handles, timeout_seconds, asyncio.ALL_COMPLETED)

    async def _join_several(
        self, handles: Sequence[CallHandle | str], timeout_seconds: float | None, until: str
    ) -> Sequence[JoinedCall]:
        found = list_items(handles, "handles")
        async with AsyncExitStack() as stack:
            known = [await self._find_handle(handle, stack) for handle in found]
            return await join_several(known, self._join_one, timeout_seconds, until)

    async def _find_handle(self, handle: CallHandle | str, stack: AsyncExitStack) -> CallHandle:
        """The newest handle of the call, whose runner is used until the end of the stack."""
        try:
            return (await stack.enter_async_context(self._runners.using(handle))).call.handle
        except UnknownHandle:
            if isinstance(handle, str):
                raise
            return handle  # its join says so, beside the results of the others

    async def _join_one(self, handle: CallHandle) -> JoinedCall:
        try:
            return JoinedCall(handle=handle, result=await self.join_call_tool(handle))
        except ClientError as error:
            return JoinedCall(handle=handle, error=error)

    # -- answer, cancel, list, forget --

    async def answer_call_tool(self, handle: CallHandle | str, responses: Mapping[str, Mapping[str, Any]]) -> None:
        """Answer the tool's requests for input with ElicitResults, by the keys of `InputRequired.input_requests`."""
        async with self._runners.using(handle) as runner:
            check_json({"responses": dict(responses)})
            record = runner.call.record
            if unknown := sorted(set(responses) - set(record.input_requests)):
                asked = ", ".join(sorted(record.input_requests)) or "nothing"
                raise ValueError(f"The call does not ask for {', '.join(unknown)}. It asks for: {asked}.")
            await self._target.answer_call(runner.call, responses)
            if runner.call.record.input_responses:
                runner.ensure_running()  # the next round begins now, and not with the next join

    async def cancel_call_tool(self, handle: CallHandle | str) -> bool:
        """Cancel a call. False if that came too late: the call had ended otherwise. May be repeated.

        True means that it is cancelled, or that the target was asked to: a tool may still end with a result.
        """
        async with self._runners.using(handle) as runner:
            call = runner.call
            needs_this_process = call.has_lease and runner.is_running and not self._target.may_repeat_start
            if call.record.completion is None and needs_this_process:
                await call.complete(Completion(outcome="cancelled"))  # before the task stops: joins read why it does
            elif call.record.completion is None:
                await self._target.cancel_call(call)
            if call.record.completion is not None:
                await runner.stop()
        completion = call.record.completion
        return completion is None or completion.outcome == "cancelled"

    async def list_calls(
        self, *, client_session_id: str | None = None, correlation_id: str | None = None
    ) -> Sequence[CallSnapshot]:
        """The calls of this target in the state, newest first: finds a call by your own ids.

        Each is as it was when it was last started or joined: a call that shows `working` may have ended since.
        """
        found = [
            make_snapshot(record)
            async for record in self._journal.iterate_records()
            if record.handle.target == self._target.url
            and client_session_id in {None, record.handle.client_session_id}
            and correlation_id in {None, record.handle.correlation_id}
        ]
        return sorted(found, key=lambda snapshot: snapshot.handle.created_at, reverse=True)

    async def forget_call(self, handle: CallHandle | str) -> None:
        """Delete the state of a call. The call goes on, unless it needs this process; no process can join it any more."""
        call_id = handle if isinstance(handle, str) else handle.id
        if (runner := self._runners.get(call_id)) is not None:
            await runner.stop()
        await self._journal.delete(call_id)


def _find_time_limit(request: CallRequest) -> float:
    given = TIME_LIMIT_SECONDS_DEFAULT if request.timeout_seconds is None else request.timeout_seconds
    return min(given, TIME_LIMIT_SECONDS_MAX)


def _make_target(target: Target, api_key: str | None) -> CallTarget:
    if not isinstance(target, str):
        if api_key is not None:
            raise ValueError("This target has its own API key or headers: pass the key there, not to DurableCaller.")
        return RingbackTarget(client=target) if isinstance(target, RingbackClient) else target
    has_path = bool(target.partition("://")[2].partition("/")[2])
    if not has_path:
        return RingbackTarget(target, api_key=api_key)
    return McpTarget(target, headers=None if api_key is None else {"Authorization": f"Bearer {api_key}"})
