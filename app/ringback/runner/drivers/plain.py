"""The plain driver: one tools/call, and whatever comes back.

It knows no handle, so nothing of it survives this process: a call whose upstream was lost is `unknown`, and stays so.
"""

from typing import Any, Final

from ringback.domain.call import CANCELLED, Call, Ending
from ringback.runner.drivers.base import Desk, Session
from ringback.runner.drivers.questions import while_answering
from ringback.runner.drivers.results import ending_of_failure, ending_of_result, progress_into
from ringback.runner.failures import RequestFailed

PLAIN: Final = "plain"


class PlainDriver:
    async def run(self, session: Session, desk: Desk) -> Ending:
        try:
            asked = session.request("tools/call", tool_params(desk.call), on_progress=progress_into(desk))
            result = await while_answering(session.stateful, desk, asked)
        except RequestFailed as failure:
            return ending_of_failure(failure)
        return result if isinstance(result, Ending) else ending_of_result(result)

    async def cancel(self, session: Session, call: Call) -> Ending:  # noqa: ARG002 - a Driver's names
        """Abandoning the request is the cancellation."""
        return CANCELLED


def tool_params(call: Call) -> dict[str, Any]:
    params: dict[str, Any] = {"name": call.tool, "arguments": call.arguments}
    return {**params, "_meta": call.meta} if call.meta else params
