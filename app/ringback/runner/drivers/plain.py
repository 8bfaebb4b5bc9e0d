"""The plain driver: one tools/call and its response.

It saves no handle, so nothing survives this process: a call whose upstream connection was lost ends as `unknown`.
"""

from typing import Any, Final

from ringback.domain.call import Call
from ringback.domain.call_outcome import CANCELLED_COMPLETION, CallCompletion
from ringback.protocol.errors import RequestFailed
from ringback.runner.drivers.completions import failure_to_completion, make_progress_callback, result_to_completion
from ringback.runner.drivers.driver import CallContext
from ringback.runner.drivers.legacy_elicitation import run_with_elicitations
from ringback.upstreams.session_ports import CallSessionPort

PLAIN_DRIVER: Final = "plain"


class PlainDriver:
    async def run_call(self, session: CallSessionPort, context: CallContext) -> CallCompletion:
        try:
            request = session.send_request(
                "tools/call", make_tool_call_params(context.call), on_progress=make_progress_callback(context)
            )
            result = await run_with_elicitations(lambda: session.legacy_session, context, request)
        except RequestFailed as failure:
            return failure_to_completion(failure)
        return result_to_completion(result)

    async def cancel_call(self, session: CallSessionPort, call: Call) -> CallCompletion:  # noqa: ARG002 - the names of Driver
        """Abandoning the request cancels it."""
        return CANCELLED_COMPLETION


def make_tool_call_params(call: Call) -> dict[str, Any]:
    if call.arguments is None:
        raise RuntimeError(f"{call.id} was read without its arguments.")
    params: dict[str, Any] = {"name": call.tool, "arguments": call.arguments}
    return {**params, "_meta": call.meta} if call.meta else params
