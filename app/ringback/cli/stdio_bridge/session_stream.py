"""The legacy session's own stream, on which the service sends notifications that belong to no request."""

from contextlib import aclosing
from typing import Final

from ringback.cli.stdio_bridge.client_output import ClientOutput
from ringback.cli.stdio_bridge.endpoint import ServiceEndpoint
from ringback.cli.stdio_bridge.responses import NoResponse, RequestRefused, SessionUnknown
from ringback.cli.stdio_bridge.retries import ReconnectSchedule
from ringback.cli.stdio_bridge.session import BridgedSession
from ringback.domain.clock import Clock

_LISTS: Final = ("tools", "prompts", "resources")
ENDED_PAUSE_SECONDS: Final = 1.0
"""After the service has ended the stream, as it does regularly; the default of the SDK's client."""
REFUSED_PAUSE_SECONDS: Final = 15.0
"""After the service has refused the stream, for example because the principal has too many. It notices within 15 s that the
connection of an earlier stream, of which a session has one, is lost."""


class SessionStream:
    """Follows the stream, and opens it again whenever it ends.

    Nothing is stored for a client that is away. So after a gap the bridge
    notifies the client that its subscribed resources and lists may have changed.
    """

    def __init__(
        self,
        endpoint: ServiceEndpoint,
        session: BridgedSession,
        retries: ReconnectSchedule,
        *,
        output: ClientOutput,
        clock: Clock,
    ) -> None:
        self._endpoint = endpoint
        self._session = session
        self._retries = retries
        self._output = output
        self._clock = clock
        self._last_event_id = ""
        self._has_gap = False
        self._was_open = False

    async def run(self) -> None:
        """Follow the stream until cancelled, or until the session has no id. A refused stream is tried again."""
        while self._session.id is not None:
            session_id = self._session.id
            try:
                await self._follow_or_replace_session(session_id)
                await self._clock.sleep(ENDED_PAUSE_SECONDS)
            except NoResponse as failure:
                self._has_gap = True
                await self._output.withdraw_requests(self)
                await self._retries.pause_after(failure)
            except RequestRefused:
                self._has_gap, self._last_event_id = True, ""  # it may not know the event
                await self._clock.sleep(REFUSED_PAUSE_SECONDS)

    async def _follow_or_replace_session(self, session_id: str) -> None:
        try:
            await self._follow()
        except SessionUnknown:
            self._has_gap, self._last_event_id = True, ""
            await self._session.replace(session_id)

    async def _follow(self) -> None:
        headers = self._session.get_headers()
        async with (
            self._endpoint.open_session_stream(headers, last_event_id=self._last_event_id) as response,
            aclosing(response.read_messages()) as received,
        ):
            self._retries.record_response()
            await self._report_changes()
            try:
                async for each in received:
                    await self._output.forward(each, stream=self)
            finally:
                self._last_event_id = response.last_event_id or self._last_event_id

    async def _report_changes(self) -> None:
        if self._was_open:
            for uri in self._session.subscriptions:
                await self._output.notify("notifications/resources/updated", {"uri": uri})
        if self._has_gap:
            for kind in _LISTS:
                if self._session.reports_changes_of(kind):
                    await self._output.notify(f"notifications/{kind}/list_changed")
        self._was_open, self._has_gap = True, False
