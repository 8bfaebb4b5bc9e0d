"""Idle clients use bounded memory, and all of it is released."""

import asyncio
import random
import resource
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.interaction.gateway.conftest import GatewayHarness
from tests.interaction.gateway_hostile.conftest import encode_request, let_sessions_become_idle
from tests.interaction.gateway_hostile.connections import (
    count_open_streams,
    idle_clients,
    open_raw_request,
    wait_until_released,
)
from tests.support.engine import wait_until
from tests.support.mcp_wire import ACCEPT, LEGACY, MODERN, Json, JsonRpcErrorResponse

UPSTREAMS: Final = ("paint",)

pytestmark = pytest.mark.requirement("R25")

PING: Final[Json] = {"jsonrpc": "2.0", "id": 9, "method": "ping"}
STREAMS_MAX: Final = 100
"""The default quota of one principal."""
IDLE: Final = 40
IDLE_DEEP: Final = 10_000
ABANDONED_REQUESTS: Final = 60
ABANDONED_DEEP: Final = 3_000
SPARE_FILE_DESCRIPTORS: Final = 1_000
"""Open files of this process besides the streams: the database, upstreams and everything else."""
BYTES_EACH_MAX: Final = 150 * 1024
"""Memory of an idle stream and of the session that half of them have; its client is in another process. 99 KiB, measured."""
SEED: Final = 20261120
ACKNOWLEDGED: Final = "acknowledged"
LISTEN_NOTIFICATIONS: Final[Json] = {"toolsListChanged": True, "resourcesListChanged": True}
INITIALIZE_PARAMS: Final[Json] = {
    "protocolVersion": LEGACY,
    "capabilities": {},
    "clientInfo": {"name": "idle", "version": "1"},
}


def listen_request(key: str, notifications: Json = LISTEN_NOTIFICATIONS) -> tuple[str, dict[str, str], bytes]:
    headers = {"authorization": f"Bearer {key}", "mcp-protocol-version": MODERN, "mcp-method": "subscriptions/listen"}
    return "POST", headers, encode_request("subscriptions/listen", {"notifications": notifications})


async def listening(stack: AsyncExitStack, gate: GatewayHarness, key: str) -> None:
    _, reader = await stack.enter_async_context(open_raw_request(gate, *listen_request(key)))
    assert ACKNOWLEDGED.encode() in await reader.readuntil(ACKNOWLEDGED.encode())


async def initialize_session(gate: GatewayHarness, key: str) -> dict[str, str]:
    """Open a session, send `initialized`, and return the session's headers."""
    headers = {"authorization": f"Bearer {key}", **ACCEPT}
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE_PARAMS}
    answer = await gate.http.post(f"{gate.url}/mcp/paint", json=body, headers=headers)
    headers |= {"mcp-session-id": answer.headers["mcp-session-id"], "mcp-protocol-version": LEGACY}
    returned = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert (await gate.http.post(f"{gate.url}/mcp/paint", json=returned, headers=headers)).status_code == 202
    return headers


async def open_in_session(stack: AsyncExitStack, gate: GatewayHarness, key: str) -> dict[str, str]:
    headers = await initialize_session(gate, key)
    head, _ = await stack.enter_async_context(open_raw_request(gate, "GET", headers))
    assert head.startswith("http/1.1 200")
    return headers


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def raise_file_limit(streams: int) -> None:
    """Raise the limit of open files; fails the test if the system does not allow it, because fewer streams prove less."""
    wanted = streams + SPARE_FILE_DESCRIPTORS
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.fail(f"{streams} streams need {wanted} open files in one process, and `ulimit -Hn` is {hard}: raise it.")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def wait_until_settled(gate: GatewayHarness) -> int:
    """The number of asyncio tasks without requests, after clients of both eras have come and gone."""
    async with AsyncExitStack() as stack:
        key = await gate.get_api_key("first")
        await listening(stack, gate, key)
        headers = await open_in_session(stack, gate, key)
    await gate.http.delete(f"{gate.url}/mcp/paint", headers=headers)

    async def quiet() -> bool:
        return await count_open_streams(gate) == 0

    await wait_until(quiet)
    await asyncio.sleep(0)
    return len(asyncio.all_tasks())


async def test_idle_streams_of_both_eras_use_little_memory_and_release_it(gate: GatewayHarness, *, deep: bool) -> None:
    count = IDLE_DEEP if deep else IDLE
    if deep:
        raise_file_limit(count)
    tasks, before = await wait_until_settled(gate), resident_bytes()
    sessions: list[dict[str, str]] = []
    async with idle_clients(gate) as clients:
        for number in range(0, count, 2):
            key = await gate.get_api_key(f"idler-{number // STREAMS_MAX}")
            await clients.open(*listen_request(key), until=ACKNOWLEDGED)
            sessions.append(await initialize_session(gate, key))
            await clients.open("GET", sessions[-1])
        assert await count_open_streams(gate) == count
        each = (resident_bytes() - before) / count
        if deep:
            assert each < BYTES_EACH_MAX
            print(f"{count} idle streams, {each / 1024:.1f} KiB each")  # noqa: T201 - the figure is what it is run for
        assert (await gate.request_rest("GET", "/v1/calls")).status_code == 200
    for headers in sessions:
        assert (await gate.http.delete(f"{gate.url}/mcp/paint", headers=headers)).status_code == 200
    await wait_until_released(gate, tasks)


async def test_a_principal_over_its_stream_quota_is_refused_and_others_are_served(gate: GatewayHarness) -> None:
    key = await gate.get_api_key("greedy")
    async with AsyncExitStack() as stack:
        headers = await open_in_session(stack, gate, key)
        for _ in range(STREAMS_MAX - 1):
            await listening(stack, gate, key)
        async with open_raw_request(gate, "GET", headers) as (head, _):
            assert head.startswith("http/1.1 429")
            assert "retry-after: " in head
        client = await gate.make_modern_client(principal="greedy")
        with pytest.raises(JsonRpcErrorResponse, match="quota 'streams' of 100") as refused:
            await client.request("subscriptions/listen", {"notifications": LISTEN_NOTIFICATIONS})
        assert refused.value.data["retry_after_seconds"] > 0
        await listening(stack, gate, await gate.get_api_key("modest"))
        assert "tools" in await client.request("tools/list", {})
    await gate.http.delete(f"{gate.url}/mcp/paint", headers=headers)

    async def free_again() -> bool:
        return await count_open_streams(gate) == 0

    await wait_until(free_again)


async def test_clients_that_disconnect_at_any_time_leave_nothing_behind(gate: GatewayHarness, *, deep: bool) -> None:
    tasks, chance, key = await wait_until_settled(gate), random.Random(SEED), await gate.get_api_key("hasty")
    wanted: Json = {
        **LISTEN_NOTIFICATIONS,
        "taskIds": ["call_00000000000000000000000000"],
        "resourceSubscriptions": ["ringback://calls/call_00000000000000000000000000", "ui://widget/board.html"],
    }

    async def requested() -> None:
        async with open_raw_request(gate, *listen_request(key, wanted)) as (_, reader):
            await reader.readuntil(ACKNOWLEDGED.encode())
            await asyncio.Event().wait()

    for _ in range(ABANDONED_DEEP if deep else ABANDONED_REQUESTS):
        asking = asyncio.create_task(requested())
        for _ in range(chance.randrange(60)):
            await asyncio.sleep(0)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
    await wait_until_released(gate, tasks)


async def test_idle_sessions_end_without_a_client(gate: GatewayHarness) -> None:
    """Sessions end half an hour after their last request; here as soon as the test ends that time."""
    tasks, key = await wait_until_settled(gate), await gate.get_api_key("forgetful")
    sessions = [await initialize_session(gate, key) for _ in range(IDLE)]
    assert len(asyncio.all_tasks()) >= tasks + IDLE
    assert await let_sessions_become_idle(gate) == IDLE
    await wait_until_released(gate, tasks)
    for headers in sessions:
        assert (await gate.http.post(f"{gate.url}/mcp/paint", json=PING, headers=headers)).status_code == 404
