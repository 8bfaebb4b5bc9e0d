"""The built-in tools, with which a model manages its calls when its client supports neither tasks nor webhooks.

The result of a tool precedes our own words, because many clients show their model only the first block. A call that failed, or
whose tool reports an error, is returned with `isError`, as the tool itself would return it.

Every error is a tool result with `isError` that says what to do: models read results, but JSON-RPC errors often never reach
them. Another principal's call is answered like an unknown one.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, Final, Protocol, cast

from pydantic import BaseModel, ValidationError

from ringback.domain import jsontext
from ringback.domain.call import Call, CallStatus
from ringback.domain.call_outcome import CallOutcome
from ringback.domain.call_resumes import ResumeSurface
from ringback.domain.call_rows import CallFilter
from ringback.domain.clock import format_iso
from ringback.domain.cursor import CursorList, decode_id_cursor, encode_cursor, encode_log_position
from ringback.domain.errors import NotFound, RingbackError
from ringback.domain.event import Event
from ringback.domain.principal import Caller, Scope
from ringback.mcp_server import meta
from ringback.mcp_server.builtin_tools.poll_limiter import PollLimiter
from ringback.mcp_server.builtin_tools.polled_waits import PolledWait
from ringback.mcp_server.builtin_tools.tool_schemas import (
    ARGUMENT_MODELS,
    TOOL_DEFINITIONS,
    AnswerCallArguments,
    BuiltinToolArguments,
    BuiltinToolName,
    CancelCallArguments,
    GetCallArguments,
    ListCallsArguments,
    ResumeCallArguments,
    WaitForCallArguments,
)
from ringback.mcp_server.call_text import describe_call, render_call_text, summarize_call
from ringback.mcp_server.gateway import BuiltinTool, Feature, Gateway
from ringback.mcp_server.jsonrpc_errors import build_error_result
from ringback.mcp_server.request_context import RequestContext
from ringback.mcp_server.single_responses import note_wait
from ringback.mcp_server.wait_windows import WaitWindows
from ringback.schemas.validation_errors import describe_validation_errors
from ringback.services.calls.calls import Calls
from ringback.services.calls.input_answers import InputAnswers
from ringback.services.calls.resume import CallResumption
from ringback.services.calls.resume_recorder import CallResumeRecorder
from ringback.services.limits.unread_responses import reserve_parsed_result

VALIDATION_ERRORS_MAX: Final = 5
"""The number of errors reported for one request; the first ones are enough to correct it."""
WAITING_TOOLS: Final = frozenset({BuiltinToolName.WAIT_FOR_CALL, BuiltinToolName.RESUME})
"""The tools whose client may give up while they wait."""
UNKNOWN_CALL_MESSAGE: Final = "No call of yours has this id. Find it with ringback_list_calls."


class ToolWait(Protocol):
    """How a tool waits for a call."""

    def choose_seconds(self, requested_seconds: float | None) -> float:
        """The seconds to wait; None if the model asks for none in particular."""
        ...

    async def wait_for_change(self, call: Call, *, wait_seconds: float) -> Call:
        """The call when its status changes, or as it is after this time."""
        ...


WaitForChange = Callable[[Call], Awaitable[Call]]
IsPaused = Callable[[Call], Awaitable[bool]]
"""Whether the call waits because an operator has paused its upstream."""
ReserveResult = Callable[[Call], None]
"""Reserves memory for the response with the result of this call. Raises if its client has left too much unread."""


def build_feature(gateway: Gateway, *, wait_windows: WaitWindows) -> Feature:
    tools = CallTools(
        calls=gateway.calls,
        input_answers=gateway.input_answers,
        call_resumption=gateway.call_resumption,
        call_resumes=gateway.call_resumes,
        poll_limiter=PollLimiter(),
        is_paused=gateway.upstream_controls.is_paused,
    )
    return Feature(builtin_tools=[_bind_tool(gateway, tools, name, wait_windows) for name in BuiltinToolName])


def _bind_tool(gateway: Gateway, tools: "CallTools", name: BuiltinToolName, wait_windows: WaitWindows) -> BuiltinTool:
    async def handle(context: RequestContext, arguments: Mapping[str, Any]) -> dict[str, Any]:
        waits = name in WAITING_TOOLS
        if waits:
            note_wait(context.asgi_state)
        if waits and context.is_resumed:
            wait_windows.forget_give_up(context)
        with wait_windows.observe_wait(context) if waits and not context.is_resumed else nullcontext():
            wait = PolledWait(gateway, context, wait_windows=wait_windows)
            reserve = partial(reserve_parsed_result, context.asgi_state, context.caller.principal)
            return await tools.call_tool(context.caller, name, arguments, wait=wait, reserve_result=reserve)

    return BuiltinTool(definition=TOOL_DEFINITIONS[name], handler=handle)


class CallTools:
    def __init__(
        self,
        *,
        calls: Calls,
        input_answers: InputAnswers,
        call_resumption: CallResumption,
        call_resumes: CallResumeRecorder,
        poll_limiter: PollLimiter,
        is_paused: IsPaused,
    ) -> None:
        self._call_resumes = call_resumes
        self._calls = calls
        self._input_answers = input_answers
        self._call_resumption = call_resumption
        self._poll_limiter = poll_limiter
        self._is_paused = is_paused

    async def call_tool(
        self,
        caller: Caller,
        name: BuiltinToolName,
        arguments: Mapping[str, Any],
        *,
        wait: ToolWait,
        reserve_result: ReserveResult,
    ) -> dict[str, Any]:
        """A CallToolResult, as JSON."""
        try:
            parsed = ARGUMENT_MODELS[name].model_validate(arguments)
            return await self._dispatch(caller, parsed, wait, reserve_result)
        except ValidationError as problem:
            return build_validation_result(problem, ARGUMENT_MODELS[name])
        except RingbackError as problem:
            return build_error_result(problem.detail)

    async def _dispatch(
        self, caller: Caller, arguments: BuiltinToolArguments, wait: ToolWait, reserve: ReserveResult
    ) -> dict[str, Any]:
        match arguments:
            case ListCallsArguments():
                return await self._list_calls(caller, arguments)
            case ResumeCallArguments():
                return await self._resume_call(caller, arguments, wait, reserve)
            case _:
                return await self._handle_call_tool(caller, arguments, wait, reserve)

    async def _handle_call_tool(
        self, caller: Caller, arguments: BuiltinToolArguments, wait: ToolWait, reserve: ReserveResult
    ) -> dict[str, Any]:
        try:
            match arguments:
                case GetCallArguments():
                    return await self._poll_call(caller, arguments.call_id, reserve)
                case WaitForCallArguments():
                    wait_for_change = partial(
                        wait.wait_for_change, wait_seconds=wait.choose_seconds(arguments.wait_seconds)
                    )
                    return await self._poll_call(caller, arguments.call_id, reserve, wait_for_change)
                case CancelCallArguments():
                    return await self._cancel_call(caller, arguments.call_id, reserve)
                case _:
                    return await self._answer_call(caller, cast("AnswerCallArguments", arguments))
        except NotFound:
            raise NotFound(UNKNOWN_CALL_MESSAGE) from None

    async def _poll_call(
        self, caller: Caller, call_id: str, reserve: ReserveResult, wait_for_change: WaitForChange | None = None
    ) -> dict[str, Any]:
        call = await self._calls.get_call(caller, call_id)
        if wait_for_change is not None and call.status is CallStatus.WORKING:
            call = await wait_for_change(call)
        self._call_resumes.record_read(call, ResumeSurface.TOOL)
        return await self._read_call_result(caller, call, reserve)

    async def _cancel_call(self, caller: Caller, call_id: str, reserve: ReserveResult) -> dict[str, Any]:
        call = await self._calls.cancel_call(caller, call_id)
        if call.result_bytes is not None and not caller.has_scope(Scope.READ):
            text = (
                f"Call {call.id} had ended as {call.status}. Only a key with the scope '{Scope.READ}' reads its result."
            )
            return meta.with_call_meta(_build_tool_result(text, describe_call(call, None)), call)
        # The cancellation was accepted, however the call ended.
        return {**await self._read_call_result(caller, call, reserve), "isError": False}

    async def _read_call_result(self, caller: Caller, call: Call, reserve: ReserveResult) -> dict[str, Any]:
        result = None
        if call.result_bytes is not None:
            reserve(call)
            call, result = await self._calls.get_result(caller, call.id)
        return await self._build_call_response(caller, call, result)

    async def _build_call_response(
        self, caller: Caller, call: Call, result: bytes | None, **extra: Any
    ) -> dict[str, Any]:
        is_paused = await self._is_paused(call)
        self._poll_limiter.record_poll(caller.principal, call)
        poll_limit_reached = self._poll_limiter.poll_limit_reached(caller.principal, call)
        described = describe_call(call, result, poll_limit_reached=poll_limit_reached, is_paused=is_paused)
        text = render_call_text(call, poll_limit_reached=poll_limit_reached, is_paused=is_paused)
        content = () if result is None else _read_content(result)
        return meta.with_call_meta(
            _build_tool_result(text, {**described, **extra}, preceding_content=content, is_error=_has_failed(call)),
            call,
        )

    async def _answer_call(self, caller: Caller, arguments: AnswerCallArguments) -> dict[str, Any]:
        answered = await self._input_answers.answer_input(caller, arguments.call_id, arguments.responses)
        is_paused = await self._is_paused(answered.call)
        lines = [render_call_text(answered.call, is_paused=is_paused)]
        if answered.ignored:
            lines.append(f"Ignored, because these keys have no open question: {', '.join(answered.ignored)}.")
        details = describe_call(answered.call, None, is_paused=is_paused)
        details |= {"accepted": list(answered.accepted), "ignored": list(answered.ignored)}
        return meta.with_call_meta(_build_tool_result("\n".join(lines), details), answered.call)

    async def _resume_call(
        self, caller: Caller, arguments: ResumeCallArguments, wait: ToolWait, reserve: ReserveResult
    ) -> dict[str, Any]:
        resumed = await self._call_resumption.resume_call(caller, arguments.resume_token, reserve=reserve)
        wait_seconds = wait.choose_seconds(arguments.wait_seconds)
        if wait_seconds > 0 and resumed.call.status is CallStatus.WORKING:
            await wait.wait_for_change(resumed.call, wait_seconds=wait_seconds)
            resumed = await self._call_resumption.resume_call(caller, arguments.resume_token, reserve=reserve)
        self._call_resumes.record_resume(resumed.call, ResumeSurface.TOOL)
        return await self._build_call_response(
            caller,
            resumed.call,
            resumed.result,
            events=[serialize_event(event) for event in resumed.events],
            truncated=resumed.is_truncated,
            resume_token=resumed.resume_token,
        )

    async def _list_calls(self, caller: Caller, arguments: ListCallsArguments) -> dict[str, Any]:
        where = CallFilter(
            client_session_id=arguments.client_session_id,
            correlation_id=arguments.correlation_id,
            status=arguments.status,
            upstream=arguments.upstream,
            tool=arguments.tool,
            started=arguments.started,
        )
        calls_page = await self._calls.list_calls(
            caller, where, position=decode_id_cursor(CursorList.CALLS, arguments.cursor), limit=arguments.limit
        )
        calls = [summarize_call(call) for call in calls_page]
        next_cursor = (
            None if calls_page.next_position is None else encode_cursor(CursorList.CALLS, calls_page.next_position)
        )
        page = {"calls": calls, "next_cursor": next_cursor}
        return _build_tool_result(jsontext.dumps(page).decode(), page)


def serialize_event(event: Event) -> dict[str, Any]:
    """The event as the structured content of a tool."""
    return {
        "eventId": event.id,
        "name": str(event.name),
        "timestamp": format_iso(event.timestamp),
        "cursor": encode_log_position(event.position),
        "data": dict(event.data),
    }


def _build_tool_result(
    text: str, structured: Mapping[str, Any], *, preceding_content: Sequence[Any] = (), is_error: bool = False
) -> dict[str, Any]:
    return {
        "content": [*preceding_content, {"type": "text", "text": text}],
        "structuredContent": dict(structured),
        "isError": is_error,
    }


def _read_content(stored_result: bytes) -> Sequence[Any]:
    """The tool's own content, unchanged, so that images stay images; its structured content if it has no other."""
    result = jsontext.loads(stored_result)
    if not result["content"] and "structuredContent" in result:
        return [{"type": "text", "text": jsontext.dumps(result["structuredContent"]).decode()}]
    content: Sequence[Any] = result["content"]
    return content


def _has_failed(call: Call) -> bool:
    return call.outcome is CallOutcome.TOOL_ERROR or call.status is CallStatus.FAILED


def build_validation_result(problem: ValidationError, model: type[BaseModel]) -> dict[str, Any]:
    """A CallToolResult, as JSON. `model` has the arguments that the tool knows."""
    reasons = "; ".join(describe_validation_errors(problem, errors_max=VALIDATION_ERRORS_MAX, model=model))
    end = "" if reasons.endswith((".", "?")) else "."
    return build_error_result(
        f"The arguments are invalid: {reasons}{end} Nothing was done. Correct them and call the tool again."
    )
