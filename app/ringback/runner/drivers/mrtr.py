"""The driver for upstreams of 2026-07-28 without tasks: rounds of questions and answers, and the result of the last one."""

from ringback.domain.call import CANCELLED, Call, Ending
from ringback.runner.drivers.base import Desk, Parked, Session
from ringback.runner.drivers.results import ending_of_result
from ringback.runner.drivers.rounds import call_tool, elicitation_of


class MrtrDriver:
    async def run(self, session: Session, desk: Desk) -> Ending | Parked:
        result = await call_tool(session, desk, declare=elicitation_of(desk.call))
        return ending_of_result(result) if isinstance(result, dict) else result

    async def cancel(self, session: Session, call: Call) -> Ending:  # noqa: ARG002 - a Driver's names
        """Abandoning the round under way is the cancellation; between two rounds the upstream holds nothing."""
        return CANCELLED
