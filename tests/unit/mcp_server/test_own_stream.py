"""A session has one own stream at a time."""

import asyncio
from typing import cast

import pytest

from ringback.domain.clock import SystemClock
from ringback.domain.errors import Conflict
from ringback.mcp_server.own_stream import SessionOwnStream
from ringback.mcp_server.session_events import SessionEventStore
from tests.support.mcp_wire import LEGACY


async def test_a_second_stream_is_refused_before_the_first_one_has_begun() -> None:
    """The SDK opened both: the first one got no notification and had no end, and its end cut the second one off."""
    own_stream = SessionOwnStream(cast("SessionEventStore", None), SystemClock())
    begins = asyncio.Event()

    async def respond() -> None:
        begins.set()
        await asyncio.Event().wait()

    async def respond_too() -> None:
        raise AssertionError("The second stream was opened.")

    first = asyncio.create_task(own_stream.serve(respond, LEGACY))
    await begins.wait()
    with pytest.raises(Conflict, match="open already"):
        await own_stream.serve(respond_too, LEGACY)
    first.cancel()
    await asyncio.wait([first])
