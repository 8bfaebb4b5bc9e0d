"""The lease of a call: the one process that has it sends the request, also if another had it before and was away meanwhile."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ringback.client.durable import CallHandle, CallNotStarted, DurableCaller, McpTarget, SQLiteRequestState
from ringback.client.durable.clock import SystemDurableClock
from ringback.client.durable.local_call import LEASE_SECONDS
from tests.support.legacy_upstream import LegacyUpstream
from tests.support.limits import WAIT_SECONDS
from tests.support.upstreams import App, HttpServer, Receive, Scope, Send, serving

AWAY: dict[str, str] = {"x-away": "yes"}
"""Requests with this header wait until their process is back."""


class MovableClock(SystemDurableClock):
    ahead_seconds = 0.0

    def now(self) -> float:
        return time.time() + self.ahead_seconds  # noqa: TID251 - the clock of this test


class AwayProcess:
    """Holds the requests of one caller, as if its process slept."""

    def __init__(self, app: App) -> None:
        self._app = app
        self.has_begun = asyncio.Event()
        self.is_back = asyncio.Event()
        self.is_refused = False
        """Whether the server refuses these requests by then."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (b"x-away", b"yes") in scope.get("headers", ()):
            self.has_begun.set()
            await self.is_back.wait()
            if self.is_refused:
                await send({"type": "http.response.start", "status": 503, "headers": []})
                await send({"type": "http.response.body", "body": b""})
                return
        await self._app(scope, receive, send)


@pytest.fixture
def upstream() -> LegacyUpstream:
    return LegacyUpstream()


@pytest.fixture
def away(upstream: LegacyUpstream) -> AwayProcess:
    return AwayProcess(upstream.app())


@pytest.fixture
async def server(away: AwayProcess) -> AsyncGenerator[HttpServer]:
    async with serving(away) as server, asyncio.timeout(WAIT_SECONDS):
        yield server


@asynccontextmanager
async def sleeping_past_its_lease(
    server: HttpServer, away: AwayProcess, folder: Path, *, tool: str
) -> AsyncGenerator[tuple[DurableCaller, asyncio.Task[CallHandle], DurableCaller]]:
    """A caller whose request waits in a process that is away, the request, and another caller with the same state.

    The lease of the request has ended.
    """
    clock, state = MovableClock(), SQLiteRequestState(folder / "calls.db")
    async with (
        DurableCaller(McpTarget(server.url, headers=AWAY), state=state, clock=clock) as sleeping,
        DurableCaller(server.url, state=state, clock=clock) as other,
    ):
        requesting = asyncio.create_task(
            sleeping.request_call_tool(tool, idempotency_key="k", start_timeout_seconds=WAIT_SECONDS)
        )
        await away.has_begun.wait()
        clock.ahead_seconds = LEASE_SECONDS + 1
        yield sleeping, requesting, other


@pytest.mark.parametrize("tool", ["work", "long"], ids=["stream", "task"])
async def test_a_process_that_was_away_until_its_lease_ended_leaves_the_call_to_the_process_that_has_it_now(
    server: HttpServer, upstream: LegacyUpstream, away: AwayProcess, tmp_path: Path, tool: str
) -> None:
    async with sleeping_past_its_lease(server, away, tmp_path, tool=tool) as (sleeping, requesting, other):
        handle = await other.request_call_tool(tool, idempotency_key="k", start_timeout_seconds=WAIT_SECONDS)
        away.is_back.set()

        assert await requesting == handle
        upstream.release.set()
        if tool == "long":
            (await upstream.wait_for_task()).end_task()
        assert await sleeping.join_call_tool(handle) == await other.join_call_tool(handle) is not None
    assert upstream.effects == [tool]


async def test_a_start_that_fails_after_its_lease_ended_does_not_end_the_call_of_the_process_that_has_it_now(
    server: HttpServer, upstream: LegacyUpstream, away: AwayProcess, tmp_path: Path
) -> None:
    async with sleeping_past_its_lease(server, away, tmp_path, tool="long") as (_, requesting, other):
        handle = await other.request_call_tool("long", idempotency_key="k", start_timeout_seconds=WAIT_SECONDS)
        away.is_refused = True
        away.is_back.set()

        assert await requesting == handle
        (await upstream.wait_for_task()).end_task()
        assert await other.join_call_tool(handle) is not None
    assert upstream.effects == ["long"]


@pytest.mark.parametrize("tool", ["work", "long"], ids=["stream", "task"])
async def test_a_process_that_was_away_sends_nothing_after_another_one_has_said_that_the_tool_has_not_run(
    server: HttpServer, upstream: LegacyUpstream, away: AwayProcess, tmp_path: Path, tool: str
) -> None:
    """The other one's user requests the call again, with another key: the tool would run twice."""
    async with sleeping_past_its_lease(server, away, tmp_path, tool=tool) as (_, requesting, other):
        (found,) = await other.list_calls()
        with pytest.raises(CallNotStarted, match="has not run"):
            await other.join_call_tool(found.handle)
        away.is_back.set()

        with pytest.raises(CallNotStarted):
            await requesting
    assert upstream.effects == []
