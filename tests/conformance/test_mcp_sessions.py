"""Legacy MCP sessions in the store."""

from dataclasses import replace
from datetime import timedelta

import pytest

from ringback.domain.mcp_sessions import McpSession, McpSessionId, SessionState
from ringback.domain.ports import Store
from tests.support.clock import START
from tests.support.examples import ALICE, BOB

pytestmark = pytest.mark.requirement("R25")

STATE = SessionState(
    initialize={"protocolVersion": "2025-11-25", "capabilities": {"roots": {}}, "clientInfo": {"name": "é"}}
)
LATER = START + timedelta(minutes=35)


def make_session(number: int = 1, **over: object) -> McpSession:
    session = McpSession(
        id=McpSessionId(f"{number:032x}"),
        principal=ALICE,
        upstreams=None,
        endpoint="/mcp",
        state=STATE,
        created_at=START,
        expires_at=LATER,
    )
    return replace(session, **over)


async def save(store: Store, *sessions: McpSession) -> None:
    for session in sessions:
        await store.write(lambda tx, each=session: tx.mcp_sessions.save(each))


async def get(store: Store, session: McpSession, *, now: object = START) -> McpSession | None:
    return await store.read(lambda tx: tx.mcp_sessions.get(session.id, now=now))  # pyright: ignore[reportArgumentType]


async def count(store: Store, *, limit: int = 10, now: object = START) -> int:
    return await store.read(lambda tx: tx.mcp_sessions.count(ALICE, "/mcp", now=now, limit=limit))  # pyright: ignore[reportArgumentType]


async def test_a_session_is_read_back_as_it_was_saved_until_it_expires(store: Store) -> None:
    session = make_session(upstreams=frozenset({"git", "a"}), endpoint="/mcp/git")
    assert await get(store, session) is None
    await save(store, session)
    assert await get(store, session, now=LATER - timedelta(milliseconds=1)) == session
    assert await get(store, session, now=LATER) is None


async def test_a_session_saved_again_gets_the_new_state_and_keeps_its_owner(store: Store) -> None:
    session = make_session()
    again = replace(session, state=replace(STATE, log_level="error"), expires_at=LATER + timedelta(minutes=1))
    await save(store, session, again)
    assert await get(store, session) == again


async def test_a_changed_state_changes_nothing_else(store: Store) -> None:
    session, other = make_session(), make_session(2)
    await save(store, session, other)
    changed = replace(session, state=replace(STATE, log_level="debug", subscriptions=("a://1", "b://2")))
    await store.write(lambda tx: tx.mcp_sessions.save_state(replace(changed, principal=BOB, expires_at=START)))
    assert [await get(store, session), await get(store, other)] == [changed, other]


async def test_only_the_principals_live_sessions_of_the_endpoint_are_counted_and_only_up_to_the_limit(
    store: Store,
) -> None:
    counted = [make_session(number) for number in range(3)]
    await save(
        store,
        *counted,
        make_session(10, principal=BOB),
        make_session(11, endpoint="/mcp/git"),
        make_session(12, expires_at=START),
    )
    assert (await count(store), await count(store, limit=2), await count(store, now=LATER)) == (3, 2, 0)


async def test_the_expiries_are_those_of_the_principals_live_sessions_at_the_endpoint(store: Store) -> None:
    own = [make_session(number, expires_at=START + timedelta(minutes=number)) for number in (1, 2)]
    expired = make_session(3, expires_at=START)
    await save(store, *own, expired, make_session(10, principal=BOB), make_session(11, endpoint="/mcp/git"))
    for limit in (2, 1):
        listed = await store.read(
            lambda tx, limit=limit: tx.mcp_sessions.list_expiries(ALICE, "/mcp", now=START, limit=limit)
        )
        assert listed == {each.id: each.expires_at for each in own[:limit]}


async def test_the_expiry_moves_forward_only_and_ids_that_are_gone_are_left_out(store: Store) -> None:
    short, long = make_session(1), make_session(2, expires_at=LATER + timedelta(hours=2))
    expired, unknown = make_session(3, expires_at=START), make_session(4)
    await save(store, short, long, expired)
    until = LATER + timedelta(hours=1)
    found = await store.write(
        lambda tx: tx.mcp_sessions.extend(
            [each.id for each in (short, long, expired, unknown)], expires_at=until, now=START
        )
    )
    assert sorted(found) == [short.id, long.id]
    assert await get(store, short) == replace(short, expires_at=until)
    assert await get(store, long) == long
    assert await get(store, expired) is None


async def test_a_deleted_session_is_gone_at_once(store: Store) -> None:
    session, other = make_session(), make_session(2)
    await save(store, session, other)
    assert await store.write(lambda tx: tx.mcp_sessions.delete(session.id))
    assert not await store.write(lambda tx: tx.mcp_sessions.delete(session.id))
    assert [await get(store, session), await get(store, other)] == [None, other]


async def test_expired_sessions_are_removed_oldest_first_in_steps(store: Store) -> None:
    sessions = [make_session(number, expires_at=START + timedelta(minutes=number)) for number in range(4)]
    await save(store, *sessions)
    now = START + timedelta(minutes=2)

    async def remove(limit: int) -> int:
        return await store.write(lambda tx: tx.mcp_sessions.remove_expired(now=now, limit=limit))

    before = START - timedelta(days=1)
    assert (await remove(2), await get(store, sessions[2], now=before)) == (2, sessions[2])
    assert (await remove(2), await get(store, sessions[2], now=before)) == (1, None)
    assert await get(store, sessions[3]) == sessions[3]
