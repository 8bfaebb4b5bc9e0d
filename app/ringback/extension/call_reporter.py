"""Reports the start and the end of one call."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar, cast

from mcp import MCPError
from mcp.server.context import HandlerResult, ServerRequestContext
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, CallToolRequestParams, InputRequiredResult
from pydantic import BaseModel

from ringback.domain import jsontext
from ringback.domain.meta import CALLBACK_META_KEY
from ringback.domain.tool_result import is_call_tool_result, is_storable_error
from ringback.extension.callback_request import CallbackRequest
from ringback.extension.embedded_backend import REPORT_KEY_PREFIX
from ringback.extension.report_outbox import ReportChannel, ReportJson
from ringback.services.calls.reports import REPORTED_RESULT_BYTES_MAX

R = TypeVar("R")
SdkContext = ServerRequestContext[Any, Any]

_END_UNKNOWN_HERE: Final = {
    "code": INTERNAL_ERROR,
    "message": "The server continues this call as a task, whose end it does not report here. Read the task.",
}
"""Another extension made a task of the call. Without a report, the callback of the call would say `unknown`, after a day."""

_END_NOT_STORABLE: Final = {
    "code": INTERNAL_ERROR,
    "message": f"The end of the call cannot be stored: it must be at most {REPORTED_RESULT_BYTES_MAX} bytes of JSON.",
}
_ERROR_MESSAGE_LENGTH_MAX: Final = 1000
"""Characters of an error that is too large to be reported as it is."""


class CallbackRefused(MCPError):
    """The client's callback is not allowed; the tool was not run."""


class CallReporter:
    """Reports one call through its channel."""

    def __init__(
        self, channel: ReportChannel, report: ReportJson, callback_request: CallbackRequest, *, waits_for_attempt: bool
    ) -> None:
        self._channel = channel
        self._report = fit_report(report) or report
        self._callback_request = callback_request
        self._waits_for_attempt = waits_for_attempt

    async def report_start(self) -> None:
        """Report the start. Raises `CallbackRefused` if the callback is refused before the tool runs."""
        await self._submit_report(self._report)
        if (
            self._waits_for_attempt
            and self._channel.rejection is not None
            and self._callback_request.callback is not None
        ):
            raise CallbackRefused(INVALID_PARAMS, f"_meta: {CALLBACK_META_KEY}: {self._channel.rejection}")

    async def report_end(self, outcome: Mapping[str, Any]) -> None:
        """Report `result` or `error`; an error instead of an end that no report can carry, so that callbacks are sent."""
        self._channel.close()
        report = fit_report({**self._report, **outcome})
        await self._submit_report(report or {**self._report, "error": _END_NOT_STORABLE})

    async def report_error(self, problem: MCPError) -> None:
        await self.report_end({"error": _serialize_error(problem)})

    def report_cancelled(self) -> None:
        """Report a cancellation without waiting."""
        self._channel.close()
        self._channel.submit_report({**self._report, "status": "cancelled"})

    def close(self) -> None:
        """Close the channel without an end: a later request reports the end, or none does."""
        self._channel.close()

    async def report_result(self, result: HandlerResult) -> HandlerResult:
        """The tool's result with our ids, after the end is reported. A question is no end."""
        if isinstance(result, InputRequiredResult):
            self.close()
            return self._with_call_meta(with_report_key(result, self._report["key"]))
        serialized = _serialize(result)
        if serialized is not None and not _is_complete_result(serialized):
            await self.report_end({"error": _END_UNKNOWN_HERE})
            return result
        await self.report_end({"error": _END_NOT_STORABLE} if serialized is None else {"result": serialized})
        return self._with_call_meta(result)

    async def _submit_report(self, report: ReportJson) -> None:
        self._channel.submit_report(report)
        if self._waits_for_attempt:
            await self._channel.wait_for_attempt()

    def _with_call_meta(self, result: R) -> R:
        ids = self._callback_request.response_meta(self._channel.call_id)
        if isinstance(result, BaseModel):
            return result.model_copy(update={"meta": {**(getattr(result, "meta", None) or {}), **ids}})
        wire = cast("dict[str, Any]", result)
        return cast("R", {**wire, "_meta": {**(wire.get("_meta") or {}), **ids}})


def _is_complete_result(result: Mapping[str, Any]) -> bool:
    return result.get("resultType", "complete") == "complete" and is_call_tool_result(result)


def _serialize(value: BaseModel | dict[str, Any] | None) -> dict[str, Any] | None:
    """None for a model that holds what is no JSON."""
    if not isinstance(value, BaseModel):
        return value or {}
    try:
        return value.model_dump(mode="json", by_alias=True, exclude_none=True)
    except ValueError:  # pydantic's own errors are such
        return None


def _serialize_error(problem: MCPError) -> dict[str, Any]:
    """The error; its code and the beginning of its message if it is too large, or holds what is no JSON."""
    error = _serialize(problem.error)
    if error is not None and is_storable_error(error):
        return error
    return {"code": problem.error.code, "message": problem.error.message[:_ERROR_MESSAGE_LENGTH_MAX]}


def fit_report(report: ReportJson) -> ReportJson | None:
    """The report as it can be sent; without the arguments, which the first one has, if it is too large with them.

    None if it cannot be sent in either form.
    """
    return _make_storable(report) or _make_storable({key: report[key] for key in report if key != "arguments"})


def _make_storable(value: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The value as JSON; None if it cannot be stored, or is larger than a request's body may be.

    The SDK accepts NaN and infinities, which are no JSON: they become null, or the whole report could not be sent.
    """
    try:
        text = jsontext.dumps(value)
    except TypeError:
        return None
    if len(text) > REPORTED_RESULT_BYTES_MAX:
        return None
    return cast("Mapping[str, Any]", jsontext.loads(text)) if b"null" in text else value


# Input rounds (modern): the client repeats its request with the answers, and all rounds are one call.
#
#     tools/call ──▶ input_required, requestState: ours around the tool's ──▶ tools/call again, requestState ──▶ the result
#
# The client returns the requestState unchanged. The SDK seals it and verifies it, so its content can be trusted. A server can
# switch that off; then a client may send anything, and must not name a call that was reported in another way.

_REQUEST_STATE_PREFIX: Final = "ringback:"


def pop_report_key(params: CallToolRequestParams, ctx: SdkContext) -> tuple[str | None, SdkContext]:
    """The report key of the call that this request continues, and the request with the tool's own requestState.

    The SDK's tools read the state from `params`, FastMCP's from the context. Raises -32602 for a state that begins as ours and
    is not.
    """
    state = params.request_state
    if state is None or not state.startswith(_REQUEST_STATE_PREFIX):
        return None, ctx
    key, params.request_state = _parse_request_state(state.removeprefix(_REQUEST_STATE_PREFIX))
    return key, replace(ctx, params={**(ctx.params or {}), "requestState": params.request_state})


def _parse_request_state(text: str) -> tuple[str, str | None]:
    try:
        match json.loads(text):
            case [str() as key, str() | None as state] if key.startswith(REPORT_KEY_PREFIX):
                return key, state
            case _:
                pass
    except (ValueError, RecursionError):
        pass
    raise MCPError(INVALID_PARAMS, "Unknown requestState. Send it unchanged, with the same request.")


def with_report_key(result: InputRequiredResult, key: str) -> InputRequiredResult:
    state = _REQUEST_STATE_PREFIX + json.dumps([key, result.request_state])
    return result.model_copy(update={"request_state": state})
