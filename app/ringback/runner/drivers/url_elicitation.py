"""Pages that a user has to open before a legacy upstream takes a call (2025-11-25, URL mode elicitation, error -32042).

    tools/call ──▶ -32042, elicitations ──▶ parked …the user opens the page… ──▶ tools/call ──▶ its result, or -32042

The error says that the tool has not run, and the specification lets its client send the request again. 2026-07-28 has retired
the error: an upstream asks there with a result, as `mrtr` reads it. So the pages become questions of the call, which clients of
both eras, REST and callbacks know. The handle is that of `mrtr`, because a parked call is one whose upstream holds nothing.
"""

from collections.abc import Mapping
from typing import Any, Final, cast

from mcp_types import URL_ELICITATION_REQUIRED

from ringback.domain.call import MRTR_DRIVER, Call, Handle
from ringback.domain.call_outcome import CallCompletion, CallOutcome, failed_completion
from ringback.domain.inputs import ELICITATION_METHOD, INPUT_ROUNDS_MAX, check_input_requests
from ringback.runner.drivers.driver import CallContext, Driver, ParkedCall
from ringback.upstreams.session_ports import CallSessionPort

ROUNDS_MAX: Final = 10
"""A client that answers before its user is done is asked again, and not for ever."""
_ROUND: Final = "url_round"
_REFUSED: Final = "The tool needs a page that its user has refused to open. It has not run."


def is_url_round(call: Call) -> bool:
    """Whether the call waits, or has waited, for its user to open a page."""
    return _get_round(call) > 0


class UrlElicitationDriver:
    """Runs a call as `driver` does, and parks it when the upstream wants a page to be opened first."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    async def run_call(self, session: CallSessionPort, context: CallContext) -> CallCompletion | ParkedCall:
        number = _get_round(context.call)
        if number:
            answers = context.call.input_responses.values()
            if any(answer.get("action") != "accept" for answer in answers):
                return failed_completion(CallOutcome.UPSTREAM_ERROR, _REFUSED)
            await context.mark_answers_sent(context.call.input_responses)
            if not context.call.rerun_allowed:
                await context.save_handle(None)
        ended = await self._driver.run_call(session, context)
        requests = find_url_requests(ended) if isinstance(ended, CallCompletion) else None
        if requests is None or number >= ROUNDS_MAX or context.call.input_round >= INPUT_ROUNDS_MAX:
            return ended
        handle = Handle(driver=MRTR_DRIVER, data={"request_state": None, "round": number + 1, _ROUND: number + 1})
        return ParkedCall(handle=handle, input_requests=requests)

    async def cancel_call(self, session: CallSessionPort, call: Call) -> CallCompletion | None:
        return await self._driver.cancel_call(session, call)


def find_url_requests(completion: CallCompletion) -> Mapping[str, Mapping[str, Any]] | None:
    """The pages that this error names, as questions by their elicitationIds; None for another error, or an invalid one."""
    match completion.error:
        case {"code": code, "data": {"elicitations": [_, *_] as listed}} if code == URL_ELICITATION_REQUIRED:
            pass
        case _:
            return None
    requests: dict[str, Mapping[str, Any]] = {}
    for each in cast("list[Any]", listed):
        match each:
            case {"elicitationId": str() as elicitation_id, "url": str(), "message": str()} if elicitation_id:
                requests[elicitation_id] = {"method": ELICITATION_METHOD, "params": {**each, "mode": "url"}}
            case _:
                return None
    try:
        check_input_requests(requests)
    except ValueError:
        return None
    return requests


def _get_round(call: Call) -> int:
    is_parked = call.handle is not None and call.handle.driver == MRTR_DRIVER
    return call.handle.data.get(_ROUND, 0) if is_parked and call.handle is not None else 0
