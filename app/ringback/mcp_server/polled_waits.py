"""The wait of a built-in tool for a call that runs already, with the progress of the call meanwhile."""

from ringback.domain.call import Call, CallStatus
from ringback.mcp_server.gateway import Gateway
from ringback.mcp_server.progress_relay import ProgressRelay
from ringback.mcp_server.request_context import RequestContext
from ringback.mcp_server.tool_call_responder import STORED_PROGRESS_POLL_SECONDS
from ringback.mcp_server.wait_windows import WaitWindows
from ringback.waits import LateHelper


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
        """The call when it no longer works, or as it is after `wait_seconds` or when the service shuts down."""
        progress_relay = ProgressRelay(self._context)
        if not progress_relay.has_progress_token:
            return await self._gateway.calls.get_call(self._context.caller, call.id, wait_seconds=wait_seconds)
        helper = LateHelper(lambda: progress_relay.relay_notifications(notifications))
        with self._gateway.call_notifications.subscribe_call(call.id, on_notification=helper.start) as notifications:
            async with helper:
                return await self._relay_until_change(call, progress_relay, wait_seconds)

    async def _relay_until_change(self, call: Call, progress_relay: ProgressRelay, wait_seconds: float) -> Call:
        ends_at = self._gateway.clock.monotonic() + wait_seconds
        while True:
            await progress_relay.relay_stored_progress(call)
            left = ends_at - self._gateway.clock.monotonic()
            is_over = left <= 0 or self._gateway.lifecycle.shutdown_event.is_set()
            if is_over or call.status is not CallStatus.WORKING:
                return call
            call = await self._gateway.calls.get_call(
                self._context.caller, call.id, wait_seconds=min(left, STORED_PROGRESS_POLL_SECONDS)
            )
