"""Log messages of running calls: asked for only while somebody wants them, and taken only if they are surely of that call.

    2026-07-28                  the request says from which level on (`_meta`); they come on its own stream
    before, session of a call   the level is set for the session, in which there is nothing else
    before, shared session      nothing is set, because it would be set for all; what comes on the call's own stream is its own

A message does not say what it belongs to. Over HTTP the SDK hands each on in the context of the request on whose stream it came
(2.3.0: its streams carry contextvars), so the context says it. On a pipe all come together: there a message belongs to a call
if only that one can have been asked for it. Everything else is dropped.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import anyio
from mcp_types import LOG_LEVEL_META_KEY

from ringback.domain.ids import CallId
from ringback.runner.failures import RequestFailed
from ringback.runner.link import UpstreamSession
from ringback.runner.live import NotificationHub

SET_LEVEL_TIMEOUT_SECONDS: Final = 2.0
"""The call waits for it, and would rather be without messages."""


class CallLogMessages:
    def __init__(self, call_id: CallId, notification_hub: NotificationHub) -> None:
        self._call_id = call_id
        self._notification_hub = notification_hub

    @asynccontextmanager
    async def receive_during(self, session: UpstreamSession, *, is_dedicated: bool) -> AsyncGenerator[Mapping[str, Any]]:
        """While a tool is called on this link. Yields what is to be added to the request's `_meta`."""
        if (level := self._notification_hub.get_log_level(self._call_id)) is None:
            yield {}
            return
        if is_dedicated and not session.protocol.is_modern and "logging" in session.protocol.capabilities:
            with suppress(RequestFailed), anyio.move_on_after(SET_LEVEL_TIMEOUT_SECONDS):
                await session.send_request("logging/setLevel", {"level": level})
        with session.receive_log_messages(lambda params: self._notification_hub.publish_log_message(self._call_id, params), is_dedicated=is_dedicated):
            yield {LOG_LEVEL_META_KEY: level} if session.protocol.is_modern else {}
