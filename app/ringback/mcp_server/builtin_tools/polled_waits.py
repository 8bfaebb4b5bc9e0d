"""The wait of a built-in tool for a call that runs already, with the progress of the call meanwhile."""

import asyncio

from ringback.domain.call import Call
from ringback.mcp_server.gateway import Gateway
from ringback.mcp_server.progress_relay import ProgressRelay
from ringback.mcp_server.request_context import RequestContext
from ringback.mcp_server.tool_call_responder import STORED_PROGRESS_POLL_SECONDS
from ringback.mcp_server.wait_windows import WaitWindows
from ringback.waits import LateHelper, run_with_helper


class PolledWait:
    """The wait of one request.

    A client with a progress token gets the newest progress at once and then each new one. Progress does not make the wait
    longer: the model asked for its seconds.
    """

    def __init__(self, gateway: Gateway, context: RequestContext, *, wait_windows: WaitWindows) -> None:
        self._gateway = gateway
        self._context = context
        self._wait_windows = wait_windows

    def choose_seconds(self, requested_seconds: float | None) -> float:
        """The seconds to wait; None if the model asks for none in particular."""
        return self._wait_windows.choose_poll_seconds(self._context, requested_seconds)

    async def wait_for_change(self, call: Call, *, wait_seconds: float) -> Call:
        """The call when its status changes, or as it is after `wait_seconds` or when the service shuts down."""
        progress_relay = ProgressRelay(self._context)
        if not progress_relay.has_progress_token:
            return await self._get_changed_call(call, wait_seconds)
        helper = LateHelper(lambda: progress_relay.relay_notifications(notifications))
        with self._gateway.call_notifications.subscribe_call(call.id, on_notification=helper.start) as notifications:
            async with helper:
                changed = await run_with_helper(
                    self._get_changed_call(call, wait_seconds), self._relay_stored_progress(call, progress_relay)
                )
                await progress_relay.relay_stored_progress(changed)
                return changed

    async def _get_changed_call(self, call: Call, wait_seconds: float) -> Call:
        return await self._gateway.calls.get_call(self._context.caller, call.id, wait_seconds=wait_seconds)

    async def _relay_stored_progress(self, call: Call, progress_relay: ProgressRelay) -> None:
        """Relay what the store has, at intervals, until cancelled."""
        while True:
            await progress_relay.relay_stored_progress(call)
            await asyncio.sleep(STORED_PROGRESS_POLL_SECONDS)
            call = await self._gateway.calls.get_call(self._context.caller, call.id)
