"""A principal with too many sessions loses the one that is idle longest, and no session that is in use."""

import asyncio

import pytest

from ringback.bootstrap import Environment
from ringback.services import mcp_sessions
from ringback.services.mcp_sessions import EVICTION_IDLE_SECONDS, EXTEND_SECONDS
from tests.interaction.gateway_sessions.conftest import RestartableRingback, open_session, send
from tests.support.clock import OffsetClock
from tests.support.databases import TEST_DATABASES, StoreKind
from tests.support.mcp_wire import Json, LegacyClientSession

pytestmark = pytest.mark.requirement("R25")

SESSIONS_MAX = 3


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_sessions, "SESSIONS_PER_PRINCIPAL_MAX", SESSIONS_MAX)


@pytest.fixture
def clock() -> OffsetClock:
    return OffsetClock()


def let_sessions_be_idle(clock: OffsetClock) -> None:
    """Until they may end: on a shared database, a session may have been used at another node in the last `EXTEND_SECONDS`."""
    clock.advance(EVICTION_IDLE_SECONDS + (EXTEND_SECONDS if TEST_DATABASES.kind is StoreKind.POSTGRES else 0))


async def list_statuses(*sessions: LegacyClientSession) -> list[int]:
    return [(await send(session)).status_code for session in sessions]


@pytest.mark.sqlite_only("nodes do not know the order of uses within the five minutes between two records")
async def test_a_new_session_ends_the_longest_idle_one_of_its_principal_for_good(
    files: RestartableRingback, clock: OffsetClock
) -> None:
    async with files.running(environment=Environment(clock=clock)) as first:
        others = [await open_session(first, principal="bob"), await open_session(first, "/mcp/notes")]
        oldest, leaked, newest = [await open_session(first) for _ in range(SESSIONS_MAX)]
        clock.advance(1)
        await send(oldest)
        let_sessions_be_idle(clock)
        added = await open_session(first)
        assert await list_statuses(leaked, oldest, newest, added, *others) == [404, 200, 200, 200, 200, 200]
    async with files.running(environment=Environment(clock=clock)) as second:
        sessions = [second.find_session(each) for each in (leaked, oldest, newest, added, *others)]
        assert await list_statuses(*sessions) == [404, 200, 200, 200, 200, 200]


async def test_a_session_of_an_earlier_process_ends_before_those_in_use(
    files: RestartableRingback, clock: OffsetClock
) -> None:
    async with files.running(environment=Environment(clock=clock)) as first:
        sessions = [await open_session(first) for _ in range(SESSIONS_MAX)]
    let_sessions_be_idle(clock)
    async with files.running(environment=Environment(clock=clock)) as second:
        used, leaked, resumed = [second.find_session(each) for each in sessions]
        assert await list_statuses(used, resumed) == [200, 200]
        added = await open_session(second)
        assert await list_statuses(leaked, used, resumed, added) == [404, 200, 200, 200]


async def test_a_session_with_a_request_in_flight_does_not_end(files: RestartableRingback, clock: OffsetClock) -> None:
    async with files.running(environment=Environment(clock=clock)) as running:
        waiting, *idle = [await open_session(running) for _ in range(SESSIONS_MAX)]
        async with waiting.open_event_stream():
            let_sessions_be_idle(clock)
            added = [await open_session(running) for _ in idle]
            assert await list_statuses(waiting, *idle, *added) == [200, 404, 404, 200, 200]


async def test_no_session_ends_that_was_used_within_the_last_minute(
    files: RestartableRingback, clock: OffsetClock
) -> None:
    async with files.running(environment=Environment(clock=clock)) as running:
        sessions = [await open_session(running) for _ in range(SESSIONS_MAX)]
        clock.advance(EVICTION_IDLE_SECONDS / 2)
        headers = {name: value for name, value in sessions[0].headers.items() if not name.startswith("mcp-")}
        another: Json = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}
        refused = await files.http.post(sessions[0].url, json=another, headers=headers)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "30")
        assert "within the last 60 seconds" in refused.json()["error"]["message"]
        assert await list_statuses(*sessions) == [200, 200, 200]


async def test_sessions_that_are_opened_at_the_same_time_each_end_one(
    files: RestartableRingback, clock: OffsetClock
) -> None:
    async with files.running(environment=Environment(clock=clock)) as running:
        leaked = [await open_session(running) for _ in range(SESSIONS_MAX)]
        let_sessions_be_idle(clock)
        added = await asyncio.gather(*(open_session(running) for _ in range(SESSIONS_MAX)))
        assert await list_statuses(*leaked, *added) == [404] * SESSIONS_MAX + [200] * SESSIONS_MAX
