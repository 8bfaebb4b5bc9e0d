"""A legacy client that lost the stream of a request gets the response with `Last-Event-ID`, also after a restart."""

import asyncio
from typing import Any

import httpx
import pytest

from ringback.domain.call import Call
from ringback.domain.errors import StoreUnavailable
from ringback.mcp_server import cancellation, resumed_calls
from ringback.mcp_server.session_transport import RETRY_MILLISECONDS
from ringback.services.calls.calls import Calls
from tests.interaction.gateway_sessions.conftest import RestartableRingback, open_session
from tests.interaction.gateway_sessions.lost_streams import HOLD, LONG_WAIT, lose_stream
from tests.support.event_reader import open_stream, resume_stream
from tests.support.limits import WAIT_SECONDS
from tests.support.mcp_wire import Json, LegacyClientSession, legacy_session

pytestmark = [pytest.mark.requirement("R25"), pytest.mark.usefixtures("streams_open_at_once")]


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


async def test_a_cancelled_notification_counts_if_it_comes_before_the_client_has_resumed_its_request(
    files: RestartableRingback, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also at a process that does not know the request, as after a restart. The call ran on, although it was cancelled."""
    monkeypatch.setattr(cancellation, "WAITING_REQUESTS_MAX", 0)
    async with files.running(**LONG_WAIT) as running:
        session = await open_session(running)
        event_id = await lose_stream(running, session)
        await session.cancel_request(7)
        async with resume_stream(session, event_id) as stream:
            response = await stream.read_response()
        assert response.data["error"]["data"]["outcome"] == "cancelled"
        await asyncio.wait_for(files.stage.cancelled.wait(), WAIT_SECONDS)
