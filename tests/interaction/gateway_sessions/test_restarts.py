"""A legacy session goes on after Ringback restarted: its client needs no new `initialize`."""

import asyncio
from contextlib import ExitStack
from typing import Any, Final

import pytest

from ringback.bootstrap import Environment
from ringback.domain.mcp_sessions import STATE_BYTES_MAX, SessionState
from ringback.mcp_server.incoming_messages import get_body, get_message
from ringback.mcp_server.session_manager import BoundedSessionManager
from ringback.mcp_server.session_transport import SessionTransport
from ringback.services import mcp_sessions
from tests.interaction.gateway_sessions.conftest import RestartableRingback, RunningRingback, open_session, send
from tests.support.clock import OffsetClock
from tests.support.engine import wait_until
from tests.support.limits import WAIT_SECONDS
from tests.support.mcp_wire import ACCEPT, LEGACY, JsonRpcErrorResponse, LegacyClientSession
from tests.support.resource_upstream import NOTE_URI

pytestmark = pytest.mark.requirement("R25")

UPDATED: Final = "notifications/resources/updated"


@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"])
async def test_a_session_id_is_good_after_a_restart(files: RestartableRingback, version: str) -> None:
    async with files.running() as first:
        session = await open_session(first, version=version)
        names = [tool["name"] for tool in (await session.request("tools/list", {}))["tools"]]
    async with files.running() as second:
        session = second.find_session(session)
        assert [tool["name"] for tool in (await session.request("tools/list", {}))["tools"]] == names
        result = await session.request("tools/call", {"name": "echo", "arguments": {"text": "again"}})
    assert "again" in result["content"][0]["text"]


async def test_changes_of_another_node_that_are_replayed_at_once_are_all_handled(files: RestartableRingback) -> None:
    """Each replayed message waits for its own response: one that never comes keeps its session from becoming idle."""
    async with files.running() as running:
        session = await open_session(running)
        manager = await running.find_manager("stage")
        transport = manager._server_instances[session.headers["mcp-session-id"]]  # pyright: ignore[reportPrivateUsage]
        assert isinstance(transport, SessionTransport)
        scope = transport.last_scope
        assert scope is not None
        state = SessionState(initialize={}, log_level="info")
        async with asyncio.timeout(WAIT_SECONDS):
            await asyncio.gather(
                *(manager._replay_state(transport, state, scope) for _ in range(3))  # pyright: ignore[reportPrivateUsage]
            )
        assert transport._requests_in_flight == 0  # pyright: ignore[reportPrivateUsage]


async def test_a_session_that_is_idle_keeps_no_message_of_its_client_in_memory(files: RestartableRingback) -> None:
    """A message may be as large as a request may be, and a principal has a thousand sessions."""
    async with files.running() as running:
        session = await open_session(running)
        await session.request("tools/call", {"name": "echo", "arguments": {"text": "long" * 1000}})
        manager = await running.find_manager("stage")
        transport = manager._server_instances[session.headers["mcp-session-id"]]  # pyright: ignore[reportPrivateUsage]
        assert isinstance(transport, SessionTransport)
        assert transport.last_scope is not None
        assert (get_body(transport.last_scope), get_message(transport.last_scope)) == (b"", None)


async def test_an_endpoint_that_ends_gets_no_more_notifications_about_its_sessions_from_other_nodes(
    files: RestartableRingback,
) -> None:
    """The endpoint of an upstream that is removed ends, and the process goes on."""
    is_closed = asyncio.Event()
    async with files.running() as running:
        session = await open_session(running)
        manager = await running.find_manager("stage")
        subscription = ExitStack()
        subscription.callback(is_closed.set)
        manager._subscriptions[session.headers["mcp-session-id"]] = subscription  # pyright: ignore[reportPrivateUsage]
    assert is_closed.is_set()


async def test_a_session_remembers_what_its_client_declared(files: RestartableRingback) -> None:
    """Tasks exist only in 2025-11-25, and `tasks` needs the negotiated version, which only `initialize` negotiates."""
    async with files.running() as first:
        session = await open_session(first)
    async with files.running() as second:
        session = second.find_session(session)
        del session.headers["mcp-protocol-version"]
        created = await session.request("tools/call", {"name": "echo", "arguments": {}, "task": {}})
        ended = await session.request("tasks/result", {"taskId": created["task"]["taskId"]})
    assert ended["isError"] is False


async def test_a_wrong_option_in_the_url_of_the_first_request_refuses_this_call_and_not_the_session(
    files: RestartableRingback,
) -> None:
    async with files.running() as first:
        session = await open_session(first)
    async with files.running() as second:
        session = second.find_session(session)
        del session.headers["mcp-protocol-version"]
        right, session.url = session.url, f"{session.url}?correlation_id="
        with pytest.raises(JsonRpcErrorResponse, match="correlation_id of the MCP URL"):
            await session.request("tools/call", {"name": "echo", "arguments": {}})
        session.url = f"{right}?correlation_id=labelled"
        created = await session.request("tools/call", {"name": "echo", "arguments": {}, "task": {}})
    assert created["task"]["taskId"]  # the negotiated version, which has tasks, is known
    assert created["_meta"]["ringback/correlationId"] == "labelled"


async def test_requests_that_arrive_at_once_continue_one_session(files: RestartableRingback) -> None:
    async with files.running() as first:
        session = await open_session(first)
    async with files.running() as second:
        answers = await asyncio.gather(*(send(second.find_session(session), request_id=each) for each in range(8)))
        assert [answer.status_code for answer in answers] == [200] * 8
        manager = await second.find_manager("stage")
        assert len(manager._server_instances) == 1  # pyright: ignore[reportPrivateUsage]


async def test_a_request_that_arrives_during_the_replay_waits_for_its_end(
    files: RestartableRingback, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaying, go_on = asyncio.Event(), asyncio.Event()
    replay_message = SessionTransport.replay_message

    async def replay_slowly(transport: SessionTransport, scope: Any, message: Any) -> None:
        replaying.set()
        await go_on.wait()
        await replay_message(transport, scope, message)

    async with files.running() as first:
        session = await open_session(first)
    monkeypatch.setattr(SessionTransport, "replay_message", replay_slowly)
    async with files.running() as second:
        session = second.find_session(session)
        requests = [asyncio.create_task(send(session, request_id=1))]
        await replaying.wait()
        requests.append(asyncio.create_task(send(session, request_id=2)))
        manager = await second.find_manager("stage")
        await wait_until(lambda: _count_waiting(manager, 1))
        assert not any(each.done() for each in requests)
        go_on.set()
        answers = await asyncio.gather(*requests)
    assert ['"result":{"tools":' in answer.text for answer in answers] == [True, True]


async def _count_waiting(manager: BoundedSessionManager, count: int) -> bool:
    lock = manager._adoption_lock  # pyright: ignore[reportPrivateUsage]
    return lock.statistics().tasks_waiting == count


async def test_requests_of_other_principals_do_not_extend_a_session(files: RestartableRingback) -> None:
    async with files.running() as running:
        session = await open_session(running)
        manager = await running.find_manager("stage")
        await send(session)
        await manager.record_used_sessions()
        own, session.headers = (
            session.headers,
            {
                **session.headers,
                "authorization": f"Bearer {await running.get_key('bob')}",
            },
        )
        assert (await send(session)).status_code == 404
        assert manager._activity.list_used({_id_of(session)}) == set()  # pyright: ignore[reportPrivateUsage]
        session.headers = own


async def test_a_task_of_before_the_restart_is_found_in_the_session(files: RestartableRingback) -> None:
    async with files.running() as first:
        session = await open_session(first)
        created = await session.request("tools/call", {"name": "echo", "arguments": {"text": "kept"}, "task": {}})
        await session.request("tasks/result", {"taskId": created["task"]["taskId"]})
    async with files.running() as second:
        session = second.find_session(session)
        result = await session.request("tasks/result", {"taskId": created["task"]["taskId"]})
    assert "kept" in result["content"][0]["text"]


async def test_subscriptions_and_the_log_level_go_on_and_what_changed_meanwhile_is_reported(
    files: RestartableRingback,
) -> None:
    async with files.running() as first:
        session = await open_session(first, "/mcp/notes")
        await session.request("resources/subscribe", {"uri": NOTE_URI})
        await session.request("logging/setLevel", {"level": "warning"})
        await files.notes.wait_until(lambda: files.notes.subscribed)
    await files.notes.wait_until(lambda: not files.notes.subscribed)
    async with files.running() as second:
        session = second.find_session(session)
        async with session.open_event_stream() as stream:
            missed = await stream.read_message(UPDATED)
            assert missed["params"]["uri"] == NOTE_URI
            await files.notes.wait_until(lambda: files.notes.subscribed)
            await files.notes.publish_resource_change()
            assert (await stream.read_message(UPDATED))["params"]["uri"] == NOTE_URI


async def test_a_resource_unsubscribed_before_the_restart_stays_unsubscribed(files: RestartableRingback) -> None:
    async with files.running() as first:
        session = await open_session(first, "/mcp/notes")
        await session.request("resources/subscribe", {"uri": NOTE_URI})
        await session.request("resources/unsubscribe", {"uri": NOTE_URI})
    async with files.running() as second:
        session = second.find_session(session)
        stored = await second.application.app.store.read(
            lambda tx: tx.mcp_sessions.get(_id_of(session), now=tx.now())  # pyright: ignore[reportArgumentType]
        )
        assert stored is not None
        assert stored.state.subscriptions == ()


async def test_a_second_initialize_keeps_the_log_level_and_the_subscriptions_of_the_session(
    files: RestartableRingback,
) -> None:
    again: dict[str, Any] = {
        "protocolVersion": LEGACY,
        "capabilities": {"roots": {}},
        "clientInfo": {"name": "again", "version": "2"},
    }
    async with files.running() as running:
        session = await open_session(running, "/mcp/notes")
        await session.request("logging/setLevel", {"level": "warning"})
        await session.request("resources/subscribe", {"uri": NOTE_URI})
        await session.request("initialize", again)
        stored = await running.application.app.store.read(
            lambda tx: tx.mcp_sessions.get(_id_of(session), now=tx.now())  # pyright: ignore[reportArgumentType]
        )
    assert stored is not None
    assert (stored.state.log_level, stored.state.subscriptions) == ("warning", (NOTE_URI,))
    assert stored.state.initialize == again


# -- ends ---------------------------------------------------------------------------------------------------------------------


async def test_a_session_that_its_client_ended_is_unknown_after_a_restart(files: RestartableRingback) -> None:
    async with files.running() as first:
        session = await open_session(first)
        assert (await send(session, http_method="DELETE")).status_code == 200
        assert (await send(session)).status_code == 404
    async with files.running() as second:
        assert (await send(second.find_session(session))).status_code == 404


async def test_a_client_ends_a_session_of_an_earlier_process(files: RestartableRingback) -> None:
    async with files.running() as first:
        session = await open_session(first)
    async with files.running() as second:
        session = second.find_session(session)
        assert (await send(session, http_method="DELETE")).status_code == 200
        assert [(await send(session)).status_code, (await send(session, http_method="DELETE")).status_code] == [
            404,
            404,
        ]
    async with files.running() as third:
        assert (await send(third.find_session(session))).status_code == 404


async def test_an_idle_session_expires_and_a_used_one_does_not(files: RestartableRingback) -> None:
    async with files.running() as first:
        idle, used = await open_session(first), await open_session(first)
    clock = OffsetClock()
    clock.advance(mcp_sessions.IDLE_SECONDS - 1)
    async with files.running(environment=Environment(clock=clock)) as second:
        assert (await send(second.find_session(used))).status_code == 200
        manager = await second.find_manager("stage")
        await manager.record_used_sessions()
    clock.advance(mcp_sessions.EXTEND_SECONDS + 2)
    async with files.running(environment=Environment(clock=clock)) as third:
        answers = [await send(third.find_session(each)) for each in (idle, used)]
    assert [answer.status_code for answer in answers] == [404, 200]


# -- other principals ----------------------------------------------------------------------------------------------------------


async def test_a_stored_session_of_another_caller_is_unknown(files: RestartableRingback) -> None:
    """Another principal, and another key of the same principal that may use other upstreams."""
    async with files.running() as first:
        session = await open_session(first)
        strangers = [await first.get_key("bob"), await first.get_key("alice", upstreams=frozenset({"stage"}))]
    async with files.running() as second:
        session = second.find_session(session)
        own = dict(session.headers)
        unknown = {**own, "mcp-session-id": "0" * 32}
        for method in ("POST", "GET", "DELETE"):
            session.headers = unknown
            expected = await send(session, http_method=method)
            assert expected.status_code == 404
            for key in strangers:
                session.headers = {**own, "authorization": f"Bearer {key}"}
                answer = await send(session, http_method=method)
                assert (answer.status_code, answer.content) == (404, expected.content)
        session.headers = own
        assert (await send(session)).status_code == 200


async def test_a_session_goes_on_only_at_its_own_endpoint(files: RestartableRingback) -> None:
    async with files.running() as first:
        session = await open_session(first)
    async with files.running() as second:
        session = second.find_session(session)
        session.url = session.url.replace("/mcp/stage", "/mcp/notes")
        assert (await send(session)).status_code == 404
        session.url = session.url.replace("/mcp/notes", "/mcp/stage")
        assert (await send(session)).status_code == 200


@pytest.mark.parametrize("session_id", ["x", "0" * 31, "A" * 32, "0" * 32, "%00", "a" * 8000, "' OR 1=1 --"])
async def test_an_id_that_was_never_issued_is_unknown(shared_ringback: RunningRingback, session_id: str) -> None:
    session = await open_session(shared_ringback)
    session.headers["mcp-session-id"] = session_id
    for method in ("POST", "GET", "DELETE"):
        assert (await send(session, http_method=method)).status_code == 404


async def test_sessions_of_before_the_restart_count_against_the_quota(
    files: RestartableRingback, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_sessions, "SESSIONS_PER_PRINCIPAL_MAX", 2)
    async with files.running() as first:
        session, _ = await open_session(first), await open_session(first)
    async with files.running() as second:
        url, key = f"{second.url}/mcp/stage", await second.get_key("alice")
        greeting = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "n", "version": "1"}}
        body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": greeting}
        headers = {**ACCEPT, "authorization": f"Bearer {key}"}
        assert (await files.http.post(url, json=body, headers=headers)).status_code == 429
        assert (await send(second.find_session(session), http_method="DELETE")).status_code == 200
        assert (await files.http.post(url, json=body, headers=headers)).status_code == 200


async def test_an_initialize_that_is_too_large_is_refused_and_leaves_no_session(files: RestartableRingback) -> None:
    params = {
        "protocolVersion": LEGACY,
        "capabilities": {"experimental": {"x": {"y": "z" * STATE_BYTES_MAX}}},
        "clientInfo": {"name": "large", "version": "1"},
    }
    async with files.running() as running:
        headers = {**ACCEPT, "authorization": f"Bearer {await running.get_key('alice')}"}
        session = LegacyClientSession(files.http, f"{running.url}/mcp/stage", headers, {})
        async with session.open_request("initialize", params) as frames:
            session.headers["mcp-session-id"] = frames.response.headers["mcp-session-id"]
            with pytest.raises(JsonRpcErrorResponse, match="at most 65536 are kept"):
                await frames.read_response()
        assert (await send(session)).status_code == 404
        stored = await running.application.app.store.read(
            lambda tx: tx.mcp_sessions.count("alice", "/mcp/stage", now=tx.now(), limit=10)  # pyright: ignore[reportArgumentType]
        )
        assert stored == 0


@pytest.mark.parametrize(
    ("method", "body"),
    [("GET", None), ("DELETE", None), ("POST", {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}), ("POST", {})],
)
async def test_a_request_that_opens_no_session_is_answered_without_a_session_id(
    shared_ringback: RunningRingback, method: str, body: dict[str, Any] | None
) -> None:
    """AI SDK 5 opens a stream while it initializes, and takes the session id of whichever response arrives last."""
    session = await open_session(shared_ringback)
    headers = {name: value for name, value in session.headers.items() if name != "mcp-session-id"}
    response = await session.http.request(method, session.url, json=body, headers=headers)
    assert 400 <= response.status_code < 500
    assert "mcp-session-id" not in response.headers


def _id_of(session: LegacyClientSession) -> str:
    return session.headers["mcp-session-id"]
