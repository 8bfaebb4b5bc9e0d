"""Calls that wait for a connection: their upstream counts them apart from those that run there."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

from ringback.upstreams.config import Isolation
from ringback.upstreams.registry import UpstreamRegistry
from tests.support.upstreams import (
    ControlledUpstream,
    OverriddenResponses,
    ResponseOverride,
    Send,
    make_http_config,
    open_upstreams,
    run_upstream_call,
    serving,
    wait_until_true,
)


def count_calls(upstreams: UpstreamRegistry) -> tuple[int, int]:
    (info,) = upstreams.tool_catalog.list_upstreams()
    return info.calls_in_flight, info.calls_waiting


@asynccontextmanager
async def calling(upstreams: UpstreamRegistry, *arguments: Any) -> AsyncGenerator[None]:
    running = asyncio.create_task(run_upstream_call(upstreams, *arguments))
    try:
        yield
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def test_a_call_waits_for_an_upstream_that_was_never_reached() -> None:
    """It was counted nowhere."""
    async with open_upstreams(make_http_config("http://127.0.0.1:9/mcp")) as upstreams, calling(upstreams, "echo"):
        await wait_until_true(lambda: count_calls(upstreams) == (0, 1))

    assert count_calls(upstreams) == (0, 0)


async def test_a_call_waits_whose_upstream_has_gone_away() -> None:
    """It was counted as one that runs there."""
    async with AsyncExitStack() as server:
        url = (await server.enter_async_context(serving(ControlledUpstream().app()))).url
        async with open_upstreams(make_http_config(url)) as upstreams:
            await run_upstream_call(upstreams, "echo")
            await server.aclose()
            async with calling(upstreams, "echo"):
                await wait_until_true(lambda: count_calls(upstreams) == (0, 1))

                assert count_calls(upstreams) == (0, 1), "it stays so"


async def test_a_call_waits_until_its_own_session_is_open() -> None:
    is_asked = asyncio.Event()

    async def never_respond(message: dict[str, Any], send: Send) -> None:
        del message, send
        is_asked.set()
        await asyncio.Event().wait()

    overrides: dict[str, ResponseOverride] = {}
    async with serving(OverriddenResponses(ControlledUpstream().app(), overrides)) as server:
        config = replace(make_http_config(server.url), isolation=Isolation.CALL)
        async with open_upstreams(config) as upstreams:
            await run_upstream_call(upstreams, "echo")
            overrides |= {"server/discover": never_respond, "initialize": never_respond}
            async with calling(upstreams, "echo"):
                await is_asked.wait()

                assert count_calls(upstreams) == (0, 1)
