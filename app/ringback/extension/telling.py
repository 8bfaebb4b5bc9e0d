"""One call, as it is told of: that it runs, and how it ended."""

from collections.abc import Mapping
from typing import Any, Final, TypeVar, cast

from mcp import MCPError
from mcp.server.context import HandlerResult
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, InputRequiredResult
from pydantic import BaseModel

from ringback.domain import jsontext
from ringback.domain.results import is_call_tool_result
from ringback.extension import rounds
from ringback.extension.asking import CALLBACK, Asking
from ringback.extension.outbox import Line, Report
from ringback.services.reports import RESULT_BYTES_MAX

R = TypeVar("R")

_TOO_LARGE: Final = {
    "code": INTERNAL_ERROR,
    "message": f"The tool answered, with a result that cannot be kept: at most {RESULT_BYTES_MAX} bytes of JSON.",
}


class CallbackRefused(MCPError):
    """The callback that the client asks for may not be called; the tool was not run."""


class Telling:
    """One call, as it is told of."""

    def __init__(self, line: Line, report: Report, asking: Asking, *, waits: bool) -> None:
        self._line = line
        self._report = report
        self._asking = asking
        self._waits = waits

    async def begin(self) -> None:
        """Tell that it runs. Raises `CallbackRefused` when that is known at once."""
        await self._tell(self._report)
        if self._waits and self._line.refusal is not None and self._asking.callback is not None:
            raise CallbackRefused(INVALID_PARAMS, f"_meta: {CALLBACK}: {self._line.refusal}")

    async def end(self, ending: Mapping[str, Any]) -> None:
        self._line.close()
        await self._tell({**self._report, **ending})

    def cancelled(self) -> None:
        """As `end`, at a moment when nothing may be waited for."""
        self._line.close()
        self._line.tell({**self._report, "status": "cancelled"})

    def leave(self) -> None:
        """It goes on, and somebody else tells of its end, or nobody does."""
        self._line.close()

    async def answer(self, result: HandlerResult) -> HandlerResult:
        """The tool's answer with our ids, once it was told; a question is not the end, and neither is a task."""
        if isinstance(result, InputRequiredResult):
            self.leave()
            return self._with_ids(rounds.with_key(result, self._report["key"]))
        shown = _as_json(result)
        if shown.get("resultType", "complete") != "complete" or not is_call_tool_result(shown):
            self.leave()
            return result
        await self.end({"result": shown} if can_be_kept(shown) else {"error": _TOO_LARGE})
        return self._with_ids(result)

    async def _tell(self, report: Report) -> None:
        self._line.tell(report)
        if self._waits:
            await self._line.tried()

    def _with_ids(self, result: R) -> R:
        ids = self._asking.ids(self._line.call_id)
        if isinstance(result, BaseModel):
            return result.model_copy(update={"meta": {**(getattr(result, "meta", None) or {}), **ids}})
        wire = cast("dict[str, Any]", result)
        return cast("R", {**wire, "_meta": {**(wire.get("_meta") or {}), **ids}})


def _as_json(result: HandlerResult) -> dict[str, Any]:
    if isinstance(result, BaseModel):
        return result.model_dump(mode="json", by_alias=True, exclude_none=True)
    return result or {}


def can_be_kept(value: Any) -> bool:
    try:
        return len(jsontext.dumps(value)) <= RESULT_BYTES_MAX
    except TypeError:
        return False
