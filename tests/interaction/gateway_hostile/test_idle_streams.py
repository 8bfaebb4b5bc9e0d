"""Clients that open much and use nothing: what they take is bounded, and all of it comes back."""

import asyncio
import math
import random
import resource
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import pytest
from mcp.server import streamable_http_manager
from mcp.server.streamable_http import StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import DEFAULT_SESSION_IDLE_TIMEOUT

from tests.interaction.gateway.conftest import Gate
from tests.interaction.gateway_hostile.conftest import wire
from tests.interaction.gateway_hostile.connections import all_given_back, idle_clients, open_streams, raw
from tests.support.engine import until
from tests.support.mcp_wire import ACCEPT, LEGACY, MODERN, Json, Refused

pytestmark = pytest.mark.requirement("R25")

PING: Final[Json] = {"jsonrpc": "2.0", "id": 9, "method": "ping"}
STREAMS_MAX: Final = 100
"""The quota's default, for one principal."""
IDLE: Final = 40
IDLE_DEEP: Final = 10_000
ABANDONED: Final = 60
ABANDONED_DEEP: Final = 3_000
FILES_SPARE: Final = 1_000
"""Open files of this process beside the streams': the database, upstreams, everything that is not being tested."""
BYTES_EACH_MAX: Final = 150 * 1024
"""Of an idle stream, with the session that half of them belong to; its client is in another process. 99 KiB, measured."""
SEED: Final = 20261120
ACKNOWLEDGED: Final = "acknowledged"
NEWS: Final[Json] = {"toolsListChanged": True, "resourcesListChanged": True}
GREETING: Final[Json] = {
    "protocolVersion": LEGACY,
    "capabilities": {},
    "clientInfo": {"name": "idle", "version": "1"},
}


def to_listen(key: str, notifications: Json = NEWS) -> tuple[str, dict[str, str], bytes]:
    headers = {"authorization": f"Bearer {key}", "mcp-protocol-version": MODERN, "mcp-method": "subscriptions/listen"}
    return "POST", headers, wire("subscriptions/listen", {"notifications": notifications})


async def listening(stack: AsyncExitStack, gate: Gate, key: str) -> None:
    _, reader = await stack.enter_async_context(raw(gate, *to_listen(key)))
    assert ACKNOWLEDGED.encode() in await reader.readuntil(ACKNOWLEDGED.encode())


async def greeted(gate: Gate, key: str) -> dict[str, str]:
    """The headers of a new session, whose client said `initialized`."""
    headers = {"authorization": f"Bearer {key}", **ACCEPT}
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": GREETING}
    answer = await gate.http.post(f"{gate.url}/mcp/paint", json=body, headers=headers)
    headers |= {"mcp-session-id": answer.headers["mcp-session-id"], "mcp-protocol-version": LEGACY}
    told = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert (await gate.http.post(f"{gate.url}/mcp/paint", json=told, headers=headers)).status_code == 202
    return headers


async def in_session(stack: AsyncExitStack, gate: Gate, key: str) -> dict[str, str]:
    headers = await greeted(gate, key)
    head, _ = await stack.enter_async_context(raw(gate, "GET", headers))
    assert head.startswith("http/1.1 200")
    return headers


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def make_room_for(streams: int) -> None:
    """Fails where the system has no room: a test of fewer streams would show something else."""
    wanted = streams + FILES_SPARE
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.fail(f"{streams} streams need {wanted} open files in one process, and `ulimit -Hn` is {hard}: raise it.")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def settled(gate: Gate) -> int:
    """How many tasks there are when nobody asks for anything, but both kinds of clients have been here."""
    async with AsyncExitStack() as stack:
        key = await gate.key("first")
        await listening(stack, gate, key)
        headers = await in_session(stack, gate, key)
    await gate.http.delete(f"{gate.url}/mcp/paint", headers=headers)

    async def quiet() -> bool:
        return await open_streams(gate) == 0

    await until(quiet)
    await asyncio.sleep(0)
    return len(asyncio.all_tasks())


async def test_idle_streams_of_both_eras_take_little_and_give_it_back(gate: Gate, *, deep: bool) -> None:
    count = IDLE_DEEP if deep else IDLE
    if deep:
        make_room_for(count)
    tasks, before = await settled(gate), resident_bytes()
    sessions: list[dict[str, str]] = []
    async with idle_clients(gate) as clients:
        for number in range(0, count, 2):
            key = await gate.key(f"idler-{number // STREAMS_MAX}")
            await clients.open(*to_listen(key), until=ACKNOWLEDGED)
            sessions.append(await greeted(gate, key))
            await clients.open("GET", sessions[-1])
        assert await open_streams(gate) == count
        each = (resident_bytes() - before) / count
        if deep:
            assert each < BYTES_EACH_MAX
            print(f"{count} idle streams, {each / 1024:.1f} KiB each")  # noqa: T201 - the figure is what it is run for
        assert (await gate.rest("GET", "/v1/calls")).status_code == 200
    for headers in sessions:
        assert (await gate.http.delete(f"{gate.url}/mcp/paint", headers=headers)).status_code == 200
    await all_given_back(gate, tasks)


async def test_beyond_its_quota_a_principal_is_refused_and_the_others_are_served(gate: Gate) -> None:
    key = await gate.key("greedy")
    async with AsyncExitStack() as stack:
        headers = await in_session(stack, gate, key)
        for _ in range(STREAMS_MAX - 1):
            await listening(stack, gate, key)
        async with raw(gate, "GET", headers) as (head, _):
            assert head.startswith("http/1.1 429")
            assert "retry-after: " in head
        client = await gate.modern(principal="greedy")
        with pytest.raises(Refused, match="quota 'streams' of 100") as refused:
            await client.result("subscriptions/listen", {"notifications": NEWS})
        assert refused.value.data["retry_after_seconds"] > 0
        await listening(stack, gate, await gate.key("modest"))
        assert "tools" in await client.result("tools/list", {})
    await gate.http.delete(f"{gate.url}/mcp/paint", headers=headers)

    async def free_again() -> bool:
        return await open_streams(gate) == 0

    await until(free_again)


async def test_clients_that_vanish_at_any_moment_leave_nothing_behind(gate: Gate, *, deep: bool) -> None:
    tasks, chance, key = await settled(gate), random.Random(SEED), await gate.key("hasty")
    wanted: Json = {
        **NEWS,
        "taskIds": ["call_00000000000000000000000000"],
        "resourceSubscriptions": ["ringback://calls/call_00000000000000000000000000", "ui://widget/board.html"],
    }

    async def asked() -> None:
        async with raw(gate, *to_listen(key, wanted)) as (_, reader):
            await reader.readuntil(ACKNOWLEDGED.encode())
            await asyncio.Event().wait()

    for _ in range(ABANDONED_DEEP if deep else ABANDONED):
        asking = asyncio.create_task(asked())
        for _ in range(chance.randrange(60)):
            await asyncio.sleep(0)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
    await all_given_back(gate, tasks)


async def test_sessions_that_nobody_ends_end_by_themselves(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half an hour after their last request; here, as soon as the test says that it is over."""
    tasks, key = await settled(gate), await gate.key("forgetful")
    transports: list[StreamableHTTPServerTransport] = []

    class Seen(StreamableHTTPServerTransport):
        def __init__(self, **options: Any) -> None:
            assert options["idle_timeout"] == DEFAULT_SESSION_IDLE_TIMEOUT
            super().__init__(**options)
            transports.append(self)

    monkeypatch.setattr(streamable_http_manager, "StreamableHTTPServerTransport", Seen)
    sessions = [await greeted(gate, key) for _ in range(IDLE)]
    assert len(asyncio.all_tasks()) >= tasks + IDLE
    for transport in transports:
        assert transport.idle_scope is not None
        assert transport.idle_scope.deadline < math.inf
        transport.idle_scope.deadline = -math.inf
    await all_given_back(gate, tasks)
    for headers in sessions:
        assert (await gate.http.post(f"{gate.url}/mcp/paint", json=PING, headers=headers)).status_code == 404
