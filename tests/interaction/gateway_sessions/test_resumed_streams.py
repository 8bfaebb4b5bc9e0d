"""A legacy client that lost the stream of a request gets the response with `Last-Event-ID`, also after a restart."""

import asyncio
from typing import Any, Final

import httpx
import pytest

from ringback.domain.call import Call
from ringback.domain.errors import StoreUnavailable
from ringback.mcp_server import request_events, resumed_calls
from ringback.mcp_server.event_ids import EVENT_ID_LENGTH_MAX
from ringback.mcp_server.method_dispatcher import MethodDispatcher
from ringback.mcp_server.session_transport import RETRY_MILLISECONDS
from ringback.mcp_server.upstream_router import UpstreamRouter
from ringback.services.calls.calls import Calls
from tests.interaction.gateway_sessions.conftest import RestartableRingback, RunningRingback, open_session
from tests.support.event_reader import open_stream, resume_stream
from tests.support.limits import WAIT_SECONDS
from tests.support.mcp_wire import Json, LegacyClientSession, legacy_session

pytestmark = pytest.mark.requirement("R25")

HOLD: Final[Json] = {"name": "hold", "arguments": {"text": "kept"}, "_meta": {"progressToken": "p"}}
LONG_WAIT: Final = {"inline_wait_seconds": 40.0}


@pytest.fixture(autouse=True)
def streams_open_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fast response would be one JSON body, which has no event to resume from."""
    monkeypatch.setattr(request_events, "OPEN_AFTER_SECONDS", 0.0)


async def lose_stream(
    running: RunningRingback, session: LegacyClientSession, params: Json = HOLD, *, request_id: int | str = 7
) -> str:
    """Send tools/call, wait until the upstream has it, and close the connection. Returns the id of the last event."""
    async with open_stream(session, "tools/call", params, request_id=request_id) as stream:
        first = await stream.next()
        await running.files.stage.wait_until_held(1)
    assert first.id is not None
    return first.id


async def test_a_stream_begins_with_an_event_that_has_an_id_and_says_when_to_reconnect(
    files: RestartableRingback,
) -> None:
    async with files.running() as running:
        session = await open_session(running)
        async with open_stream(
            session, "tools/call", {"name": "steps", "arguments": {}, "_meta": {"progressToken": 1}}
        ) as stream:
            first = await stream.next()
            assert (first.data, first.retry) == (None, RETRY_MILLISECONDS)
            events = [first, *[await stream.next() for _ in range(3)]]
            assert await stream.has_ended()
    assert all(event.id for event in events)
    assert len({event.id for event in events}) == 4
    assert events[-1].data["id"] == 7


@pytest.mark.parametrize("version", ["2025-06-18", "2025-03-26"])
async def test_a_client_of_before_2025_11_25_gets_no_event_without_data(
    files: RestartableRingback, version: str
) -> None:
    async with files.running() as running:
        session = await open_session(running, version=version)
        async with open_stream(session, "tools/call", {"name": "echo", "arguments": {}}) as stream:
            assert (await stream.next()).data["id"] == 7


@pytest.mark.parametrize("request_id", [7, "seven", pytest.param("7", id="digit")])
async def test_a_lost_stream_is_resumed_while_the_call_runs(files: RestartableRingback, request_id: int | str) -> None:
    async with files.running(**LONG_WAIT) as running:
        session = await open_session(running)
        event_id = await lose_stream(running, session, request_id=request_id)
        async with resume_stream(session, event_id) as stream:
            assert (await stream.next()).id is not None
            files.stage.release.set()
            response = await stream.read_response()
            assert await stream.has_ended()
    assert response.data["id"] == request_id
    assert "kept" in response.data["result"]["content"][0]["text"]
    assert [call.name for call in files.stage.calls] == ["hold"]


async def test_a_lost_stream_is_resumed_after_the_call_has_ended(files: RestartableRingback) -> None:
    async with files.running(**LONG_WAIT) as running:
        session = await open_session(running)
        event_id = await lose_stream(running, session)
        files.stage.release.set()
        await running.wait_until_ended()
        for _ in range(2):
            async with resume_stream(session, event_id) as stream:
                assert "kept" in (await stream.read_response()).data["result"]["content"][0]["text"]
    assert [call.name for call in files.stage.calls] == ["hold"]


async def test_a_stream_that_is_resumed_while_the_store_is_away_waits_for_it(
    files: RestartableRingback, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error was the response, after which a client sends the request again: the tool ran twice."""
    refusals, read_call = [StoreUnavailable("away")] * 2, Calls.get_for_waiting

    async def refuse_first(*arguments: Any) -> Call:
        if refusals:
            raise refusals.pop()
        return await read_call(*arguments)

    monkeypatch.setattr(Calls, "get_for_waiting", refuse_first)
    monkeypatch.setattr(resumed_calls, "STORE_PAUSE_SECONDS", 0.01)
    async with files.running(**LONG_WAIT) as running:
        session = await open_session(running)
        event_id = await lose_stream(running, session)
        files.stage.release.set()
        async with resume_stream(session, event_id) as stream:
            assert "kept" in (await stream.read_response()).data["result"]["content"][0]["text"]
    assert (refusals, [call.name for call in files.stage.calls]) == ([], ["hold"])


async def test_a_stream_resumed_twice_is_resumed_from_the_later_id(files: RestartableRingback) -> None:
    async with files.running(**LONG_WAIT) as running:
        session = await open_session(running)
        event_id = await lose_stream(running, session)
        async with resume_stream(session, event_id) as stream:
            later_id = (await stream.next()).id
        files.stage.release.set()
        async with resume_stream(session, later_id) as stream:
            assert "kept" in (await stream.read_response()).data["result"]["content"][0]["text"]
    assert [call.name for call in files.stage.calls] == ["hold"]


async def test_a_lost_stream_is_resumed_after_a_restart(files: RestartableRingback) -> None:
    async with files.running(**LONG_WAIT) as first:
        session = await open_session(first)
        event_id = await lose_stream(first, session)
        files.stage.release.set()
        await first.wait_until_ended()
    async with files.running(**LONG_WAIT) as second:
        session = second.find_session(session)
        async with resume_stream(session, event_id) as stream:
            response = await stream.read_response()
            assert await stream.has_ended()
        assert (await session.request("tools/list", {}))["tools"]
    assert response.data["id"] == 7
    assert "kept" in response.data["result"]["content"][0]["text"]
    assert [call.name for call in files.stage.calls] == ["hold"]


async def test_a_request_with_the_id_of_a_lost_one_gets_its_own_response(files: RestartableRingback) -> None:
    """It got the response of the lost one, which was still handled. Clients must not use an id again, but some do."""
    async with files.running(**LONG_WAIT) as running:
        session = await open_session(running)
        await lose_stream(running, session)
        (lost,) = (await session.request("tools/call", {"name": "ringback_list_calls"}))["structuredContent"]["calls"]
        async with open_stream(session, "tools/call", {**HOLD, "arguments": {"text": "second"}}) as stream:
            await files.stage.wait_until_held(2)
            await session.request(
                "tools/call", {"name": "ringback_cancel_call", "arguments": {"call_id": lost["call_id"]}}
            )
            waiting = {"name": "ringback_wait_for_call", "arguments": {"call_id": lost["call_id"], "wait_seconds": 40}}
            ended = await session.request("tools/call", waiting)
            files.stage.release.set()
            response = await stream.read_response()
    assert ended["structuredContent"]["status"] == "cancelled"
    assert "second" in response.data["result"]["content"][0]["text"]


async def test_requests_that_a_server_handles_in_one_task_get_their_responses(files: RestartableRingback) -> None:
    """As httpx's ASGI transport does: the context of one request is that of the next, also of another session."""
    async with files.running() as running:
        key = await running.get_key("alice")
        transport = httpx.ASGITransport(running.application.app.api)
        async with (
            asyncio.timeout(WAIT_SECONDS),
            httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http,
            legacy_session(http, "http://127.0.0.1/mcp/stage", key=key) as first,
        ):
            assert (await first.request("tools/list", {}))["tools"]
            async with legacy_session(http, "http://127.0.0.1/mcp/stage", key=key) as second:
                assert (await second.request("tools/list", {}))["tools"]


async def test_progress_that_a_client_has_received_does_not_come_again_on_the_resumed_stream(
    files: RestartableRingback,
) -> None:
    """Progress increases for a token, and the resumed request has the token of the first one."""
    params: Json = {"name": "steps", "arguments": {}, "_meta": {"progressToken": "p"}}
    async with files.running(**LONG_WAIT) as running:
        session = await open_session(running)
        async with open_stream(session, "tools/call", params) as stream:
            _, first, second = [await stream.next() for _ in range(3)]
        await running.wait_until_ended()
        after_first, opening_id = await resume_progress(session, first.id)
        after_second, _ = await resume_progress(session, second.id)
        after_opening, _ = await resume_progress(session, opening_id)
    assert (after_first, after_second, after_opening) == ([2], [], [2])


async def resume_progress(session: LegacyClientSession, event_id: str | None) -> tuple[list[float], str | None]:
    """The progress on the resumed stream up to the response, and the id of its first event."""
    progress = list[float]()
    async with resume_stream(session, event_id) as stream:
        opening = await stream.next()
        while "result" not in (event := await stream.next()).data:
            progress.append(event.data["params"]["progress"])
    return progress, opening.id


async def test_a_resumed_call_that_outlives_the_wait_is_answered_as_pending(files: RestartableRingback) -> None:
    async with files.running(inline_wait_seconds=0.1) as running:
        session = await open_session(running)
        event_id = await lose_stream(running, session)
        async with resume_stream(session, event_id) as stream:
            result = (await stream.read_response()).data["result"]
        files.stage.release.set()
    assert "ringback_pending" in result["structuredContent"]
    assert [call.name for call in files.stage.calls] == ["hold"]


async def test_a_resumed_call_that_was_to_be_a_task_is_answered_with_its_task(files: RestartableRingback) -> None:
    async with files.running() as first:
        session = await open_session(first)
        async with open_stream(session, "tools/call", {"name": "hold", "arguments": {}, "task": {}}) as stream:
            event_id = (await stream.next()).id
            task_id = (await stream.read_response()).data["result"]["task"]["taskId"]
    async with files.running() as second:
        async with resume_stream(second.find_session(session), event_id) as stream:
            assert (await stream.read_response()).data["result"]["task"]["taskId"] == task_id
        files.stage.release.set()


async def test_a_cancelled_notification_cancels_the_call_of_a_resumed_request(files: RestartableRingback) -> None:
    async with files.running(**LONG_WAIT) as running:
        session = await open_session(running)
        event_id = await lose_stream(running, session)
        async with resume_stream(session, event_id) as stream:
            await stream.next()
            await session.cancel_request(7)
            response = await stream.read_response()
        assert response.data["error"]["data"]["outcome"] == "cancelled"
        await asyncio.wait_for(files.stage.cancelled.wait(), WAIT_SECONDS)


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


# -- strangers and forgers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "event_id",
    ["1", ".", "AAAA.1", "AAAA.", "." * 9000, "A" * EVENT_ID_LENGTH_MAX + ".1", "é.1", "x.-1", "\u0661.1"],
)
async def test_an_event_id_that_was_never_issued_is_unknown(files: RestartableRingback, event_id: str) -> None:
    async with files.running() as running:
        session = await open_session(running)
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
