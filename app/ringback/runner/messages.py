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
from ringback.runner.link import Link
from ringback.runner.live import LiveHub

SET_LEVEL_SECONDS: Final = 2.0
"""The call waits for it, and would rather be without messages."""


class CallMessages:
    def __init__(self, call_id: CallId, live: LiveHub) -> None:
        self._call_id = call_id
        self._live = live

    @asynccontextmanager
    async def heard(self, link: Link, *, own: bool) -> AsyncGenerator[Mapping[str, Any]]:
        """While a tool is called on this link. Yields what is to be added to the request's `_meta`."""
        if (level := self._live.log_level(self._call_id)) is None:
            yield {}
            return
        if own and not link.negotiated.modern and "logging" in link.negotiated.capabilities:
            with suppress(RequestFailed), anyio.move_on_after(SET_LEVEL_SECONDS):
                await link.request("logging/setLevel", {"level": level})
        with link.overhearing(lambda params: self._live.logged(self._call_id, params), own=own):
            yield {LOG_LEVEL_META_KEY: level} if link.negotiated.modern else {}
