"""The driver for upstreams of 2026-07-28 without tasks: rounds of questions and answers, and the result of the last one."""

from ringback.domain.call import CANCELLED_COMPLETION, Call, CallCompletion
from ringback.runner.drivers.base import CallContext, ParkedCall, CallSessionPort
from ringback.runner.drivers.results import result_to_completion
from ringback.runner.drivers.rounds import call_tool_in_rounds, get_client_capabilities


class MrtrDriver:
    async def run_call(self, session: CallSessionPort, context: CallContext) -> CallCompletion | ParkedCall:
        result = await call_tool_in_rounds(session, context, client_capabilities=get_client_capabilities(context.call))
        return result_to_completion(result) if isinstance(result, dict) else result

    async def cancel_call(self, session: CallSessionPort, call: Call) -> CallCompletion:  # noqa: ARG002 - a Driver's names
        """Abandoning the round under way is the cancellation; between two rounds the upstream holds nothing."""
        return CANCELLED_COMPLETION
