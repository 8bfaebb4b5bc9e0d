"""A stream that ends while its caller is cancelled ends the caller's scope, and nothing around it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest

from ringback.upstreams.session import UpstreamSession
from ringback.upstreams.transports.event_stream import ChunkReader
from ringback.upstreams.transports.paced_streams import PacedStreams
from tests.support.limits import WAIT_SECONDS

OpenStream = Callable[[UpstreamSession], AbstractAsyncContextManager[Any]]


class EndlessRequest:
    """Runs until it is cancelled. At its end, it cancels the scope in which its caller awaits that end."""

    def __init__(self) -> None:
        self.has_begun = asyncio.Event()
        self.callers_scope = anyio.CancelScope()

    async def run(self, *_: Any) -> dict[str, Any]:
        self.has_begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.callers_scope.cancel()
        return {}

    async def iterate(self) -> AsyncIterator[bytes]:
        await self.run()
        yield b""


def open_session(request: EndlessRequest) -> UpstreamSession:
    """A modern session of which only the sending of requests works."""
    dispatcher = SimpleNamespace(
        streams={}, paced_streams=PacedStreams(), ended=anyio.Event(), send_raw_request=request.run
    )
    session: Any = SimpleNamespace(protocol_version="2026-07-28", server_capabilities=None)
    return UpstreamSession(
        session,
        cast("Any", dispatcher),
        profile=cast("Any", None),
        transport=None,
        child=None,
        forwards_meta_key=lambda _: False,
        is_dedicated=False,
        request_id_prefix="test",
        upstream="demo",
    )


async def stays_within_its_scope(scope: anyio.CancelScope, end: Callable[[], Awaitable[None]]) -> bool:
    """Whether a cancellation of the scope in which something ends is caught by that scope."""

    async def end_in_scope() -> bool:
        with scope:
            await end()
        return scope.cancelled_caught

    ending = asyncio.create_task(end_in_scope())
    await asyncio.wait({ending}, timeout=WAIT_SECONDS)
    return not ending.cancelled() and ending.result()


def open_listen_stream(session: UpstreamSession) -> AbstractAsyncContextManager[Any]:
    return session.stream_opener.open_listen_stream({}, client_capabilities={})


def open_event_stream(session: UpstreamSession) -> AbstractAsyncContextManager[Any]:
    return session.stream_opener.open_event_stream({"name": "call.finished"})


@pytest.mark.parametrize("open_stream", [open_listen_stream, open_event_stream])
async def test_a_cancellation_while_a_stream_of_a_session_ends_stays_within_its_scope(open_stream: OpenStream) -> None:
    request = EndlessRequest()
    opened = open_stream(open_session(request))
    await opened.__aenter__()
    await request.has_begun.wait()

    async def end() -> None:
        await opened.__aexit__(None, None, None)

    assert await stays_within_its_scope(request.callers_scope, end)


async def test_a_cancellation_while_the_reader_of_a_response_ends_stays_within_its_scope() -> None:
    response = EndlessRequest()
    reader = ChunkReader(response.iterate())
    await reader.read_chunk(0.001)
    await response.has_begun.wait()

    assert await stays_within_its_scope(response.callers_scope, reader.close)
