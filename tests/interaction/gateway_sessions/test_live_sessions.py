"""The sessions in memory are bounded over all endpoints. A session that had to leave memory goes on with its next request."""

from contextlib import AsyncExitStack

import pytest

from ringback.bootstrap import Environment
from ringback.mcp_server import live_sessions
from ringback.mcp_server.live_sessions import LiveSessions
from ringback.mcp_server.session_transport import SessionTransport
from ringback.services.mcp_sessions import EXTEND_SECONDS, IDLE_SECONDS
from tests.interaction.gateway_sessions.conftest import RestartableRingback, RunningRingback, open_session, send
from tests.support.clock import OffsetClock
from tests.support.engine import wait_until
from tests.support.mcp_wire import Json, LegacyClientSession

pytestmark = pytest.mark.requirement("R25")

PLACES = 8
OWN_PLACES = 6
PATHS = ("/mcp", "/mcp/stage", "/mcp/notes")


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_sessions, "PLACES_MAX", PLACES)
    monkeypatch.setattr(live_sessions, "PRINCIPAL_PLACES_MAX", OWN_PLACES)


def get_live_sessions(running: RunningRingback) -> LiveSessions:
    return running.application.app.mcp.live_sessions


def id_of(session: LegacyClientSession) -> str:
    return session.headers["mcp-session-id"]


async def find_transport(running: RunningRingback, session: LegacyClientSession) -> SessionTransport | None:
    manager = await running.find_manager(session.url.rpartition("/mcp/")[2])
    transport = manager._server_instances.get(id_of(session))  # pyright: ignore[reportPrivateUsage]
    assert transport is None or isinstance(transport, SessionTransport)
    return transport


async def test_one_principal_at_many_endpoints_neither_fills_memory_nor_drops_the_sessions_of_others(
    files: RestartableRingback,
) -> None:
    async with files.running() as running:
        live = get_live_sessions(running)
        modest = [await open_session(running, principal="bob") for _ in range(2)]
        transports = [await find_transport(running, each) for each in modest]
        hostile: list[LegacyClientSession] = []
        for number in range(3 * PLACES):
            hostile.append(await open_session(running, PATHS[number % len(PATHS)], principal="mallory"))
            assert live.count_places("mallory") <= OWN_PLACES
            assert live.count_places() <= PLACES
        for each in hostile:
            assert (await send(each)).status_code == 200
            assert live.count_places() <= PLACES
        assert [await find_transport(running, each) for each in modest] == transports
        assert [(await send(each)).status_code for each in modest] == [200, 200]
        newcomer = await open_session(running, principal="carol")
        assert (await send(newcomer)).status_code == 200
        assert [await find_transport(running, each) for each in modest] == transports


async def test_an_unloaded_session_goes_on_with_what_it_agreed_on(files: RestartableRingback) -> None:
    async with files.running() as running:
        session = await open_session(running)
        created = await session.request("tools/call", {"name": "echo", "arguments": {"text": "kept"}, "task": {}})
        for _ in range(OWN_PLACES):
            await open_session(running, "/mcp/notes")
        assert await find_transport(running, session) is None
        result = await session.request("tasks/result", {"taskId": created["task"]["taskId"]})
        assert "kept" in result["content"][0]["text"]
        assert await find_transport(running, session) is not None


async def test_a_session_with_its_own_stream_open_stays_and_is_not_kept_by_another_principal(
    files: RestartableRingback,
) -> None:
    async with files.running() as running, AsyncExitStack() as streams:
        unloaded = await open_session(running, principal="mallory")
        hostile = [await open_session(running, "/mcp/notes", principal="mallory") for _ in range(OWN_PLACES)]
        for each in hostile:
            await streams.enter_async_context(each.open_event_stream())
        refused = await send(unloaded)
        assert (refused.status_code, "no session has ended" in refused.text) == (503, True)
        headers = {name: value for name, value in unloaded.headers.items() if not name.startswith("mcp-")}
        opening: Json = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}
        assert (await files.http.post(unloaded.url, json=opening, headers=headers)).status_code == 503
        modest = await open_session(running, principal="bob")
        assert (await send(modest)).status_code == 200
        await streams.aclose()
        assert (await send(unloaded)).status_code == 200


async def test_a_session_that_is_unloaded_soon_after_each_use_does_not_expire(files: RestartableRingback) -> None:
    clock = OffsetClock()
    async with files.running(environment=Environment(clock=clock)) as running:
        session = await open_session(running)
        manager = await running.find_manager("stage")
        for _ in range(int(IDLE_SECONDS / EXTEND_SECONDS) + 2):
            assert (await send(session)).status_code == 200
            for _ in range(OWN_PLACES):
                await open_session(running, "/mcp/notes")
            assert await find_transport(running, session) is None
            clock.advance(EXTEND_SECONDS)
            await manager.record_used_sessions()
        assert (await send(session)).status_code == 200


async def test_the_late_end_of_an_unloaded_transport_leaves_the_session_that_goes_on(
    files: RestartableRingback,
) -> None:
    async with files.running() as running:
        session = await open_session(running)
        unloaded = await find_transport(running, session)
        assert unloaded is not None
        for _ in range(OWN_PLACES):
            await open_session(running, "/mcp/notes")
        assert (await send(session)).status_code == 200
        transport = await find_transport(running, session)
        manager = await running.find_manager("stage")
        await manager._discard_session(id_of(session), unloaded)  # pyright: ignore[reportPrivateUsage]
        assert transport is not None
        assert transport is not unloaded
        assert await find_transport(running, session) is transport


async def test_a_session_with_a_large_initialize_takes_several_places(files: RestartableRingback) -> None:
    capabilities: Json = {"experimental": {"large": {"lists": [[]] * 2_500}}}
    async with files.running() as running:
        live = get_live_sessions(running)
        small = [await open_session(running) for _ in range(3)]
        await open_session(running, capabilities=capabilities)
        assert live.count_places() == 3 + 4 - 1
        assert await find_transport(running, small[0]) is None
        assert (await send(small[0])).status_code == 200
        again: Json = {
            "protocolVersion": small[1].headers["mcp-protocol-version"],
            "capabilities": capabilities,
            "clientInfo": {"name": "large", "version": "1"},
        }
        await small[1].request("initialize", again)
        assert live.count_places() <= OWN_PLACES


async def test_a_session_that_ends_leaves_its_place(files: RestartableRingback) -> None:
    async with files.running() as running:
        live = get_live_sessions(running)
        sessions = [await open_session(running, path) for path in PATHS]
        refused = await files.http.post(
            sessions[0].url,
            json={"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}},
            headers={name: value for name, value in sessions[0].headers.items() if not name.startswith("mcp-")},
        )
        assert "error" in refused.text

        async def has_ended() -> bool:
            return live.count_places() == len(PATHS)

        await wait_until(has_ended)
        for each in sessions:
            assert (await send(each, http_method="DELETE")).status_code == 200
        assert live.count_places() == 0
