"""DurableCaller with a mocked service, or with a target of the test: starts, idempotency keys, failing states, and the end."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import respx

from ringback.client import ConnectionFailed, InvalidArgument, RingbackClient, UnexpectedAnswer
from ringback.client.durable import (
    CallCancelled,
    CallHandle,
    CallNotStarted,
    DurableCaller,
    InputRequired,
    McpTarget,
    MemoryRequestState,
    RequestStateManager,
    SQLiteRequestState,
    StartUnknown,
    StoredState,
    UnknownHandle,
)
from ringback.client.durable.local_call import LocalCall
from ringback.schemas import examples
from tests.support.engine import wait_until
from tests.support.limits import WAIT_SECONDS
from tests.support.plain_durable_callers import FastClock, count_runners, create_plain_caller

CALL: dict[str, Any] = examples.WORKING_CALL
STARTED = httpx.Response(202, json={"call": CALL, "resume_token": "token", "webhooks": []})
SHUTTING_DOWN = httpx.Response(503, json={}, headers={"content-type": "application/problem+json"})
RESULT = {"content": [{"type": "text", "text": "done"}]}
Respond = Callable[[httpx.Request], httpx.Response]


def create_caller(respond: Respond, state: RequestStateManager | None = None) -> DurableCaller:
    client = RingbackClient("http://ringback.example", transport=httpx.MockTransport(respond), clock=FastClock())
    return DurableCaller(client, state=state, clock=FastClock())


def start_or_read(request: httpx.Request) -> httpx.Response:
    if request.url.path.endswith("/cancel"):
        raise httpx.ConnectError("down", request=request)
    return STARTED if request.method == "POST" else httpx.Response(200, json=CALL)


@pytest.fixture
async def caller() -> AsyncGenerator[DurableCaller]:
    async with asyncio.timeout(WAIT_SECONDS), create_caller(start_or_read) as caller:
        yield caller


# -- starts --


async def test_an_api_key_goes_with_a_url_and_is_refused_beside_a_target_that_has_its_own() -> None:
    sent: list[str | None] = []

    def respond(request: httpx.Request) -> httpx.Response:
        sent.append(request.headers.get("authorization"))
        return STARTED

    with respx.mock(base_url="http://ringback.example") as service:
        service.post("/v1/calls").mock(side_effect=respond)
        async with DurableCaller("http://ringback.example", api_key="rbk_key") as caller:
            await caller.request_call_tool("echo", upstream="demo")

    assert sent == ["Bearer rbk_key"]
    with pytest.raises(ValueError, match="pass the key there"):
        DurableCaller(McpTarget("http://mcp.example/mcp"), api_key="rbk_key")


async def test_a_start_that_only_a_proxy_answered_is_unknown_and_its_handle_starts_it() -> None:
    responses = [httpx.Response(404, html="<h1>No such application</h1>"), STARTED]

    def respond(request: httpx.Request) -> httpx.Response:
        return responses.pop(0) if request.method == "POST" else httpx.Response(200, json=examples.FINISHED_CALL)

    async with create_caller(respond) as caller:
        with pytest.raises(StartUnknown, match="not as Ringback") as raised:
            await caller.request_call_tool("echo", upstream="demo")
        assert await caller.join_call_tool(raised.value.handle, timeout_seconds=WAIT_SECONDS) is not None


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


class RefusedElsewhere(MemoryRequestState):
    """Another process has created the state, and deletes it before it is read here, because its start was refused."""

    is_deleted = False

    async def write(self, state: StoredState, *, replaces: str | None) -> bool:
        if not self.is_deleted:
            self.is_deleted = True
            return False
        return await super().write(state, replaces=replaces)


async def test_a_request_whose_key_another_process_has_just_given_up_is_made_here() -> None:
    async with create_caller(start_or_read, RefusedElsewhere()) as caller:
        handle = await caller.request_call_tool("echo", upstream="demo", idempotency_key="k1")

    assert handle.call_id == CALL["id"]


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


async def test_a_start_that_may_have_arrived_before_a_shutdown_is_unknown_and_keeps_its_state() -> None:
    attempts = 0

    def lose_the_first_response(request: httpx.Request) -> httpx.Response:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise httpx.ReadError("the call was stored, and the response is lost", request=request)
        return SHUTTING_DOWN

    async with create_caller(lose_the_first_response) as caller:
        with pytest.raises(StartUnknown):
            await caller.request_call_tool("echo", upstream="demo")
        assert [each.status for each in await caller.list_calls()] == ["starting"]


async def test_a_join_that_repeats_a_lost_start_during_a_shutdown_does_not_say_that_nothing_was_started() -> None:
    """The first start ends after its last attempt, so only the state knows that it may have arrived."""
    is_shutting_down = False

    def respond(request: httpx.Request) -> httpx.Response:
        if is_shutting_down:
            return SHUTTING_DOWN
        raise httpx.ReadTimeout("the call was stored, and the response is lost", request=request)

    async with create_caller(respond) as caller:
        with pytest.raises(StartUnknown) as unknown:
            await caller.request_call_tool("echo", upstream="demo")
        is_shutting_down = True
        with pytest.raises(StartUnknown):
            await caller.join_call_tool(unknown.value.handle)


async def test_the_same_key_and_callback_are_the_same_call_after_the_callback_was_dropped(
    caller: DurableCaller,
) -> None:
    options: Any = {"upstream": "demo", "callback": {"url": "https://agent.example/cb"}, "idempotency_key": "k1"}
    first = await caller.request_call_tool("echo", {"n": 1}, **options)

    assert (await caller.request_call_tool("echo", {"n": 1}, **options)).id == first.id


async def test_a_call_whose_start_is_not_confirmed_yet_is_cancelled_at_the_service() -> None:
    """The start may have arrived: without the cancellation its tool would run, although the caller reads otherwise."""
    paths: list[str] = []

    async def confirm_the_second_start(request: httpx.Request) -> httpx.Response:
        paths.append(request.url.path)
        if request.url.path.endswith("/cancel"):
            return httpx.Response(200, json={**CALL, "status": "cancelled", "final": True, "outcome": "cancelled"})
        if paths.count("/v1/calls") == 1:
            await asyncio.Event().wait()
        return STARTED

    client = RingbackClient(
        "http://ringback.example", transport=httpx.MockTransport(confirm_the_second_start), clock=FastClock()
    )
    async with asyncio.timeout(WAIT_SECONDS), DurableCaller(client, clock=FastClock()) as caller:
        with pytest.raises(StartUnknown) as unknown:
            await caller.request_call_tool("echo", upstream="demo", start_timeout_seconds=0.01)

        assert await caller.cancel_call_tool(unknown.value.handle)
    assert paths == ["/v1/calls", "/v1/calls", f"/v1/calls/{CALL['id']}/cancel"]


async def test_two_requests_of_one_key_at_once_both_learn_that_the_call_was_not_started() -> None:
    """The second one got the handle of a call whose state the first one then deleted."""
    both_requested = asyncio.Barrier(2)

    async def refuse(_: httpx.Request) -> httpx.Response:
        await both_requested.wait()
        problem = {"type": "/problems/unknown-tool", "title": "Unknown tool", "status": 422, "detail": "No such tool."}
        return httpx.Response(422, json=problem, headers={"content-type": "application/problem+json"})

    client = RingbackClient("http://ringback.example", transport=httpx.MockTransport(refuse), clock=FastClock())
    async with asyncio.timeout(WAIT_SECONDS), DurableCaller(client, clock=FastClock()) as caller:
        requests = [
            asyncio.create_task(caller.request_call_tool("echo", upstream="demo", idempotency_key="k1"))
            for _ in range(2)
        ]
        await both_requested.wait()
        outcomes = await asyncio.gather(*requests, return_exceptions=True)

        assert [type(outcome) for outcome in outcomes] == [CallNotStarted, CallNotStarted]
        assert count_runners(caller) == 0
        assert await caller.list_calls() == []


async def test_a_call_whose_start_is_confirmed_late_is_not_followed_without_a_join() -> None:
    """Its request has given up: no join here would read what a follower finds out, for as long as the call runs."""
    confirmed = asyncio.Event()

    async def confirm_late(request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            await confirmed.wait()
            return STARTED
        if request.url.path == "/v1/events":
            await asyncio.Event().wait()
        return httpx.Response(200, json=CALL)

    client = RingbackClient("http://ringback.example", transport=httpx.MockTransport(confirm_late), clock=FastClock())
    async with asyncio.timeout(WAIT_SECONDS), DurableCaller(client, clock=FastClock()) as caller:

        async def has_no_runner() -> bool:
            return count_runners(caller) == 0

        with pytest.raises(StartUnknown):
            await caller.request_call_tool("echo", upstream="demo", start_timeout_seconds=0.01)

        confirmed.set()
        await wait_until(has_no_runner)

        assert [each.status for each in await caller.list_calls()] == ["working"]


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


# -- what is stored --


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), "\ud800", object(), {1, 2}])
async def test_arguments_that_are_not_json_are_refused_and_nothing_is_stored(value: object) -> None:
    """Pydantic writes NaN as null, so a later join would start the tool with other arguments."""
    async with create_caller(start_or_read) as caller:
        with pytest.raises(ValueError, match=r"`arguments` (cannot be sent as JSON|contains half a character)"):
            await caller.request_call_tool("git_log", {"repo_path": [value]}, upstream="git", idempotency_key="k")
        assert list(await caller.list_calls()) == []


@pytest.mark.parametrize("options", [{"timeout_seconds": float("nan")}, {"callback": {"url": float("nan")}}])
async def test_options_that_are_not_json_are_refused_and_nothing_is_stored(options: dict[str, Any]) -> None:
    async with create_caller(start_or_read) as caller:
        with pytest.raises(InvalidArgument, match=f"`{next(iter(options))}` cannot be sent as JSON"):
            await caller.request_call_tool("git_log", upstream="git", **options)
        assert list(await caller.list_calls()) == []


async def test_a_list_of_many_calls_in_memory_lets_other_tasks_run_between_its_pages(caller: DurableCaller) -> None:
    for _ in range(40):
        await caller.request_call_tool("echo", upstream="git")
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_turns())
    await asyncio.sleep(0)
    before = turns
    listed = await caller.list_calls()
    counting.cancel()

    assert (len(listed), turns > before) == (40, True)


@pytest.mark.parametrize(("options", "limit_days"), [({"timeout_seconds": 30 * 86_400}, 30), ({}, 7)])
async def test_a_call_is_kept_for_a_week_after_its_time_limit(options: dict[str, Any], limit_days: int) -> None:
    """It was kept for a week from its request, though the service's time limit alone is a week, and a month at most."""
    days = 0
    state = MemoryRequestState(now=lambda: FastClock().now() + 86_400 * days)
    async with create_caller(start_or_read, state) as caller:
        handle = await caller.request_call_tool("git_log", upstream="git", **options)
        days = limit_days + 6
        assert [call.handle.id for call in await caller.list_calls()] == [handle.id]
        days = limit_days + 8
        assert await caller.list_calls() == []


async def test_a_join_of_a_call_whose_state_has_expired_starts_nothing_and_says_where_the_result_is(
    tmp_path: Path,
) -> None:
    days, starts = 0, 0

    def respond(request: httpx.Request) -> httpx.Response:
        nonlocal starts
        starts += request.url.path == "/v1/calls"
        return start_or_read(request)

    state = SQLiteRequestState(tmp_path / "calls.db", now=lambda: FastClock().now() + 86_400 * days)
    async with state, create_caller(respond, state) as caller:
        handle = await caller.request_call_tool("git_log", upstream="git")
        days = 15
        with pytest.raises(UnknownHandle, match=rf"has expired.*result\('{CALL['id']}'\)"):
            await caller.join_call_tool(handle)

    assert starts == 1


async def test_a_listed_call_has_the_ids_of_its_request() -> None:
    async with create_caller(start_or_read) as caller:
        await caller.request_call_tool(
            "git_log", {"repo_path": "."}, upstream="git", client_session_id="s1", correlation_id="c1"
        )
        (listed,) = await caller.list_calls()

    assert (listed.client_session_id, listed.correlation_id) == ("s1", "c1")


async def test_a_state_that_cannot_be_read_hides_no_other(caplog: pytest.LogCaptureFixture) -> None:
    state = MemoryRequestState()
    async with create_caller(start_or_read, state) as caller:
        handle = await caller.request_call_tool("git_log", {"repo_path": "."}, upstream="git")
        newer = StoredState(key="req_0", version="1", text='{"format": 99}', expires_at=2**40)
        assert await state.write(newer, replaces=None)
        assert [call.handle.id for call in await caller.list_calls()] == [handle.id]
    assert "The state req_0 is not one of this version" in caplog.text


# -- runners --


async def answer_another_question(caller: DurableCaller, handle: CallHandle) -> None:
    with pytest.raises(ValueError, match="does not ask for other"):
        await caller.answer_call_tool(handle, {"other": {"action": "accept"}})


async def cancel_at_a_service_that_is_down(caller: DurableCaller, handle: CallHandle) -> None:
    with pytest.raises(ConnectionFailed):
        await caller.cancel_call_tool(handle)


async def join_with_an_unknown_call(caller: DurableCaller, handle: CallHandle) -> None:
    with pytest.raises(UnknownHandle):
        await caller.join_all([handle, "req_unknown"], timeout_seconds=0)


@pytest.mark.parametrize(
    "refused", [answer_another_question, cancel_at_a_service_that_is_down, join_with_an_unknown_call]
)
async def test_nothing_of_a_call_stays_in_memory_after_a_refusal(
    caller: DurableCaller, refused: Callable[[DurableCaller, CallHandle], Awaitable[None]]
) -> None:
    handle = await caller.request_call_tool("echo", upstream="demo")

    await refused(caller, handle)

    assert count_runners(caller) == 0


async def test_a_closing_caller_stops_its_calls_at_once_and_not_one_after_another() -> None:
    both_are_stopping = asyncio.Barrier(2)

    async def respond(_: LocalCall) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await both_are_stopping.wait()

    async with asyncio.timeout(WAIT_SECONDS):
        caller = create_plain_caller(respond)
        await caller.request_call_tool("work")
        await caller.request_call_tool("work")
        await caller.aclose()

    assert count_runners(caller) == 0
