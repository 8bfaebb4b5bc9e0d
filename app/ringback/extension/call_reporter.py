"""One call, as it is told of: that it runs, and how it ended."""

import json
from collections.abc import Mapping
from typing import Any, Final, TypeVar, cast

from mcp import MCPError
from mcp.server.context import HandlerResult
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, CallToolRequestParams, InputRequiredResult
from pydantic import BaseModel

from ringback.domain import jsontext
from ringback.domain.tool_result import is_call_tool_result
from ringback.extension.callback_request import CALLBACK_META_KEY, CallbackRequest
from ringback.extension.report_outbox import ReportChannel, ReportJson
from ringback.services.reports import REPORTED_RESULT_BYTES_MAX

R = TypeVar("R")

_RESULT_TOO_LARGE: Final = {
    "code": INTERNAL_ERROR,
    "message": f"The tool answered, with a result that cannot be kept: at most {REPORTED_RESULT_BYTES_MAX} bytes of JSON.",
}


class CallbackRefused(MCPError):
    """The callback that the client asks for may not be called; the tool was not run."""


class CallReporter:
    """One call, as it is told of."""

    def __init__(
        self, channel: ReportChannel, report: ReportJson, callback_request: CallbackRequest, *, waits_for_attempt: bool
    ) -> None:
        self._channel = channel
        self._report = report
        self._callback_request = callback_request
        self._waits_for_attempt = waits_for_attempt

    async def report_start(self) -> None:
        """Tell that it runs. Raises `CallbackRefused` when that is known at once."""
        await self._submit_report(self._report)
        if (
            self._waits_for_attempt
            and self._channel.rejection is not None
            and self._callback_request.callback is not None
        ):
            raise CallbackRefused(INVALID_PARAMS, f"_meta: {CALLBACK_META_KEY}: {self._channel.rejection}")

    async def report_end(self, outcome: Mapping[str, Any]) -> None:
        self._channel.close()
        await self._submit_report({**self._report, **outcome})

    def report_cancelled(self) -> None:
        """As `end`, at a moment when nothing may be waited for."""
        self._channel.close()
        self._channel.submit_report({**self._report, "status": "cancelled"})

    def close(self) -> None:
        """It goes on, and somebody else tells of its end, or nobody does."""
        self._channel.close()

    async def report_result(self, result: HandlerResult) -> HandlerResult:
        """The tool's answer with our ids, once it was told; a question is not the end, and neither is a task."""
        if isinstance(result, InputRequiredResult):
            self.close()
            return self._with_call_meta(with_report_key(result, self._report["key"]))
        serialized = _serialize_result(result)
        if serialized.get("resultType", "complete") != "complete" or not is_call_tool_result(serialized):
            self.close()
            return result
        await self.report_end({"result": serialized} if is_storable(serialized) else {"error": _RESULT_TOO_LARGE})
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


def _serialize_result(result: HandlerResult) -> dict[str, Any]:
    if isinstance(result, BaseModel):
        return result.model_dump(mode="json", by_alias=True, exclude_none=True)
    return result or {}


def is_storable(value: Any) -> bool:
    try:
        return len(jsontext.dumps(value)) <= REPORTED_RESULT_BYTES_MAX
    except TypeError:
        return False


# Questions in the middle of a call (2026-07-28): the client sends its request again with the answers, and it is one call.
#
#     tools/call ──▶ input_required, requestState: ours around the tool's ──▶ tools/call again, requestState ──▶ the result
#
# The client hands back the requestState as it came, and the SDK seals it on its way out and checks it on its way in, so what is
# in it can be believed.

_REQUEST_STATE_PREFIX: Final = "ringback:"


def pop_report_key(params: CallToolRequestParams) -> str | None:
    """The call that this request goes on with. The tool's own requestState is put back where the tool looks for it."""
    state = params.request_state
    if state is None or not state.startswith(_REQUEST_STATE_PREFIX):
        return None
    key, params.request_state = json.loads(state.removeprefix(_REQUEST_STATE_PREFIX))
    return str(key)


def with_report_key(result: InputRequiredResult, key: str) -> InputRequiredResult:
    state = _REQUEST_STATE_PREFIX + json.dumps([key, result.request_state])
    return result.model_copy(update={"request_state": state})
