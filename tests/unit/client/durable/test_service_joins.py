"""Joins of a DurableCaller with a mocked service: what ends one, and what does not."""

import asyncio
import json
from typing import Any

import httpx
import pytest

from ringback.client import RingbackClient, UnexpectedAnswer
from ringback.client.durable import CallCancelled, DurableCaller, InputRequired, MemoryRequestState
from ringback.schemas import examples
from tests.support.limits import WAIT_SECONDS
from tests.support.mocked_durable_callers import CALL, RESULT, STARTED, create_caller, start_or_read
from tests.support.plain_durable_callers import FastClock


@pytest.mark.parametrize("path", ["/v1/events", "/v1/calls/{}", "/v1/calls/{}/result"])
async def test_a_page_of_a_proxy_while_the_service_restarts_does_not_end_a_join(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As with `events(follow=True)`: the call goes on, and so does the join of the service that has answered before."""
    pages = [httpx.Response(status, html="<h1>default backend</h1>") for status in (404, 500, 200)]
    has_ended = False

    def respond(request: httpx.Request) -> httpx.Response:
        nonlocal has_ended
        if request.method == "POST":
            return STARTED
        if request.url.path == path.format(CALL["id"]) and pages:
            return pages.pop(0)
        if request.url.path == "/v1/events":
            has_ended = True
            return httpx.Response(200, json={"events": [], "cursor": "c", "truncated": True})
        if request.url.path.endswith("/result"):
            return httpx.Response(200, json=RESULT)
        return httpx.Response(200, json=examples.FINISHED_CALL if has_ended else CALL)

    async with asyncio.timeout(WAIT_SECONDS), create_caller(respond) as caller:
        handle = await caller.request_call_tool("echo", upstream="demo")
        assert await caller.join_call_tool(handle) == RESULT

    assert pages == []
    assert f"The call {handle.id} cannot be followed now, and is tried again" in caplog.text


async def test_a_response_that_is_not_ringback_s_ends_a_join_whose_service_has_never_answered_here() -> None:
    """The URL may be wrong, or the service newer than this client: nothing changes that later."""
    state = MemoryRequestState()
    async with create_caller(start_or_read, state) as caller:
        handle = await caller.request_call_tool("echo", upstream="demo")
    for page in (httpx.Response(404, html="<h1>Wiki</h1>"), httpx.Response(200, html="<h1>Wiki</h1>")):
        async with create_caller(lambda _, page=page: page, state) as other:
            with pytest.raises(UnexpectedAnswer):
                await other.join_call_tool(handle)


@pytest.mark.parametrize("answered", [examples.FINISHED_CALL, CALL], ids=["ended", "working"])
async def test_a_question_that_was_answered_elsewhere_is_not_raised_again(answered: dict[str, Any]) -> None:
    """In the dashboard, for example. Every further join raised the question, and its answer was refused."""
    found: list[Any] = [examples.INPUT_REQUIRED_CALL]

    def respond(request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            return STARTED
        if request.url.path.endswith("/result"):
            return httpx.Response(200, json=RESULT)
        if request.url.path == "/v1/events":
            found[:] = [examples.FINISHED_CALL]
            return httpx.Response(200, json={"events": [], "cursor": "c", "truncated": True})
        return httpx.Response(200, json=found[0])

    async with asyncio.timeout(WAIT_SECONDS), create_caller(respond) as caller:
        handle = await caller.request_call_tool("echo", upstream="demo", accepts_input=True)
        for _ in range(2):
            with pytest.raises(InputRequired):
                await caller.join_call_tool(handle)
        found[:] = [answered]
        assert await caller.join_call_tool(handle) == RESULT


async def test_a_question_is_raised_also_while_the_service_does_not_answer() -> None:
    is_down = False

    def respond(request: httpx.Request) -> httpx.Response:
        if is_down:
            raise httpx.ConnectError("down", request=request)
        return STARTED if request.method == "POST" else httpx.Response(200, json=examples.INPUT_REQUIRED_CALL)

    async with asyncio.timeout(WAIT_SECONDS), create_caller(respond) as caller:
        handle = await caller.request_call_tool("echo", upstream="demo", accepts_input=True)
        with pytest.raises(InputRequired):
            await caller.join_call_tool(handle)
        is_down = True
        with pytest.raises(InputRequired):
            await caller.join_call_tool(handle)


async def test_a_result_that_nests_as_deep_as_the_service_allows_is_read_by_a_later_join() -> None:
    """Pydantic's parser of JSON reads 200 levels."""
    deep = '{"a":' * 230 + "1" + "}" * 230
    text = f'{{"content": [], "structuredContent": {deep}}}'

    def respond(request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            return STARTED
        if request.url.path.endswith("/result"):
            return httpx.Response(200, content=text, headers={"content-type": "application/json"})
        return httpx.Response(200, json=examples.FINISHED_CALL)

    state = MemoryRequestState()
    async with create_caller(respond, state) as caller, create_caller(respond, state) as other:
        handle = await caller.request_call_tool("echo", upstream="demo")
        joined = [await each.join_call_tool(handle, timeout_seconds=WAIT_SECONDS) for each in (caller, other)]

    assert joined == [json.loads(text)] * 2


async def test_a_join_waits_no_longer_than_half_a_minute_for_a_service_that_asks_for_years() -> None:
    class RecordingClock(FastClock):
        async def sleep(self, seconds: float) -> None:
            pauses.append(seconds)
            await super().sleep(seconds)

    pauses: list[float] = []
    busy = httpx.Response(
        429, json={}, headers={"content-type": "application/problem+json", "retry-after": "999999999"}
    )
    reads = [busy, httpx.Response(200, json={**examples.WORKING_CALL, "status": "cancelled", "outcome": "cancelled"})]

    def respond(request: httpx.Request) -> httpx.Response:
        return STARTED if request.method == "POST" else reads.pop(0) if len(reads) > 1 else reads[0]

    client = RingbackClient("http://ringback.example", transport=httpx.MockTransport(respond), clock=FastClock())
    async with DurableCaller(client, clock=RecordingClock()) as caller:
        handle = await caller.request_call_tool("echo", upstream="demo")
        with pytest.raises(CallCancelled):
            await caller.join_call_tool(handle, timeout_seconds=WAIT_SECONDS)

    assert max(pauses) == 30.0


async def test_progress_that_is_none_does_not_end_the_joins_of_other_calls() -> None:
    """A join of several calls returns what each of them has, also beside a service that sends nonsense."""
    ended = {**CALL, "status": "completed", "final": True, "outcome": "result"}
    pages: list[tuple[str, dict[str, Any]]] = []

    def respond(request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            return STARTED
        if request.url.path == "/v1/events":
            events = [
                {"eventId": "evt_1", "name": name, "timestamp": "2026-11-20T17:00:00Z", "cursor": "c", "data": data}
                for name, data in pages[:1]
            ]
            del pages[: len(pages) > 1]
            return httpx.Response(200, json={"events": events, "cursor": "c", "truncated": False, "has_more": False})
        if request.url.path.endswith("/result"):
            return httpx.Response(200, json=RESULT)
        return httpx.Response(200, json=ended if len(pages) == 1 else CALL)

    async with asyncio.timeout(WAIT_SECONDS), create_caller(respond) as caller:
        handles = [await caller.request_call_tool("echo", upstream="demo") for _ in range(2)]
        pages += [("call.progress", {}), ("call.progress", {"progress": "much"}), ("call.finished", {})]
        joined = await caller.join_all(handles)

    assert [each.result for each in joined] == [RESULT, RESULT]
