"""What is resumed of a request without a call, of one that has its response, and of an event id that was not issued for it."""

import asyncio
from typing import Any, Final

import pytest

from ringback.mcp_server.event_ids import EVENT_ID_LENGTH_MAX
from ringback.mcp_server.method_dispatcher import MethodDispatcher
from ringback.mcp_server.upstream_router import UpstreamRouter
from tests.interaction.gateway_sessions.conftest import RestartableRingback, RunningRingback, open_session
from tests.interaction.gateway_sessions.lost_streams import HOLD, LONG_WAIT, lose_stream
from tests.support.event_reader import open_stream, resume_stream
from tests.support.mcp_wire import Json, LegacyClientSession

pytestmark = [pytest.mark.requirement("R25"), pytest.mark.usefixtures("streams_open_at_once")]


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_request_without_a_call_is_handled_again(files: RestartableRingback, restarts: bool) -> None:  # noqa: FBT001
    async with files.running() as first:
        session = await open_session(first)
        async with open_stream(session, "tools/list", {}) as stream:
            event_id = (await stream.next()).id
            listed = (await stream.read_response()).data
        async with open_stream(
            session, "tools/call", {"name": "ringback_list_calls", "arguments": {"limit": 3}}
        ) as stream:
            own_id = (await stream.next()).id
        if not restarts:
            async with resume_stream(session, event_id) as stream:
                assert (await stream.read_response()).data == listed
            return
    async with files.running() as second:
        session = second.find_session(session)
        async with resume_stream(session, event_id) as stream:
            assert (await stream.read_response()).data == listed
        async with resume_stream(session, own_id) as stream:
            assert (await stream.read_response()).data["result"]["isError"] is False


async def test_a_request_whose_call_was_never_stored_starts_nothing_when_resumed(files: RestartableRingback) -> None:
    """The upstream refuses the arguments, so there is no call; the client gets an error and sends the request again."""
    async with files.running() as running:
        session = await open_session(running)
        async with open_stream(session, "tools/call", {"name": "missing", "arguments": {}}) as stream:
            event_id = (await stream.next()).id
            await stream.read_response()
        async with resume_stream(session, event_id) as stream:
            error = (await stream.read_response()).data["error"]
    assert (error["code"], "Send the request again" in error["message"]) == (-32000, True)
    assert files.stage.calls == []


REQUESTS: Final[dict[str, tuple[str, Json]]] = {
    "result": ("tools/list", {}),
    "error": ("events/subscribe", {"name": "ringback.call", "delivery": {"mode": "unknown"}}),
    "error of a call": ("tools/call", {"name": "missing", "arguments": {}}),
}


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("kind", REQUESTS)
async def test_a_client_that_has_the_response_is_sent_away_and_its_request_is_not_handled_again(
    files: RestartableRingback,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    restarts: bool,  # noqa: FBT001
) -> None:
    """The TypeScript SDK takes no error for a response: it returns every 3 s, until a result or a 405."""
    async with files.running() as first:
        session = await open_session(first)
        async with open_stream(session, *REQUESTS[kind]) as stream:
            response = await stream.read_response()
        assert kind.partition(" ")[0] in response.data
        if not restarts:
            handled = count_handled(monkeypatch)
            await assert_is_sent_away(session, response.id)
            assert handled == []
            return
    async with files.running() as second:
        session = second.find_session(session)
        handled = count_handled(monkeypatch)
        await assert_is_sent_away(session, response.id)
        assert "tools/list" not in handled
        assert REQUESTS[kind][0] not in handled


def count_handled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The methods of all MCP requests that are handled from now on."""
    handled: list[str] = []
    handle = MethodDispatcher._handle_request  # pyright: ignore[reportPrivateUsage]

    async def record(self: MethodDispatcher, ctx: Any) -> Any:
        handled.append(ctx.method)
        return await handle(self, ctx)

    monkeypatch.setattr(MethodDispatcher, "_handle_request", record)
    return handled


async def assert_is_sent_away(session: LegacyClientSession, event_id: str | None) -> None:
    async with resume_stream(session, event_id) as answer:
        await answer.response.aread()
    assert (answer.response.status_code, answer.response.headers["allow"]) == (405, "POST, DELETE")
    assert answer.response.json()["error"]["data"] == {"problem": "stream-ended"}


async def test_a_request_that_is_about_to_start_its_call_is_waited_for(
    files: RestartableRingback, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Resolving a tool's name can take seconds. A client that read that nothing was started would send the request again."""
    resolve, may_resolve = UpstreamRouter.resolve_name, asyncio.Event()

    async def resolve_late(*arguments: Any) -> tuple[str, str]:
        await may_resolve.wait()
        return await resolve(*arguments)

    monkeypatch.setattr(UpstreamRouter, "resolve_name", resolve_late)
    async with files.running(**LONG_WAIT) as running:
        session = await open_session(running)
        async with open_stream(session, "tools/call", HOLD) as stream:
            event_id = (await stream.next()).id
        async with resume_stream(session, event_id) as stream:
            assert (await stream.next()).data is None
            may_resolve.set()
            files.stage.release.set()
            assert "kept" in (await stream.read_response()).data["result"]["content"][0]["text"]
    assert [call.name for call in files.stage.calls] == ["hold"]


async def test_a_request_that_started_no_call_is_not_answered_with_the_call_of_its_idempotency_key(
    files: RestartableRingback,
) -> None:
    """The key may belong to a call with other arguments, whose result would be taken for that of this request."""
    async with files.running(**LONG_WAIT) as running:
        session = await open_session(running)
        await lose_stream(running, session, {**HOLD, "_meta": {"ringback/idempotencyKey": "once"}})
        other = {"name": "hold", "arguments": {"other": 1}, "_meta": {"ringback/idempotencyKey": "once"}}
        event_id = await lose_stream(running, session, other, request_id=8)
        files.stage.release.set()
        await running.wait_until_ended()
        async with resume_stream(session, event_id) as stream:
            response = (await stream.read_response()).data
    assert (response["id"], response["error"]["code"]) == (8, -32000)
    assert "Send the request again" in response["error"]["message"]
    assert [call.name for call in files.stage.calls] == ["hold"]


# -- event ids of others, and forged ones -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "event_id",
    ["1", ".", "AAAA.1", "AAAA.", "." * 9000, "A" * EVENT_ID_LENGTH_MAX + ".1", "é.1", "x.-1", "\u0661.1"],
)
async def test_an_event_id_that_was_never_issued_is_unknown(shared_ringback: RunningRingback, event_id: str) -> None:
    session = await open_session(shared_ringback)
    headers = {**session.headers, "accept": "text/event-stream"}
    raw = [
        *((name.encode(), value.encode()) for name, value in headers.items()),
        (b"last-event-id", event_id.encode()),
    ]
    async with session.http.stream("GET", session.url, headers=raw) as answer:
        await answer.aread()
    assert answer.status_code == 422
    assert "Send the request again" in answer.json()["error"]["message"]


async def test_an_event_id_of_another_session_or_principal_is_unknown(files: RestartableRingback) -> None:
    async with files.running(**LONG_WAIT) as running:
        session, sibling = await open_session(running), await open_session(running)
        stranger = await open_session(running, principal="bob")
        event_id = await lose_stream(running, session)
        for other in (sibling, stranger):
            async with resume_stream(other, event_id) as answer:
                await answer.response.aread()
                assert answer.response.status_code == 422
        session.headers["authorization"] = stranger.headers["authorization"]
        async with resume_stream(session, event_id) as answer:
            await answer.response.aread()
            assert answer.response.status_code == 404
        files.stage.release.set()


async def test_a_changed_event_id_is_unknown(files: RestartableRingback) -> None:
    async with files.running(**LONG_WAIT) as running:
        session = await open_session(running)
        event_id = await lose_stream(running, session)
        files.stage.release.set()
        for place in range(0, event_id.index("."), 7):
            changed = event_id[:place] + ("A" if event_id[place] != "A" else "B") + event_id[place + 1 :]
            async with resume_stream(session, changed) as answer:
                await answer.response.aread()
                assert answer.response.status_code == 422, place
