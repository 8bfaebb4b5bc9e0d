"""Starts of a DurableCaller with a mocked service: what may have arrived, idempotency keys, and refused requests."""

import asyncio
from typing import Any

import httpx
import pytest
import respx

from ringback.client import InvalidArgument, RingbackClient
from ringback.client.durable import (
    CallNotStarted,
    DurableCaller,
    McpTarget,
    MemoryRequestState,
    StartUnknown,
    StoredState,
)
from ringback.schemas import examples
from tests.support.limits import WAIT_SECONDS
from tests.support.mocked_durable_callers import CALL, STARTED, create_caller, start_or_read
from tests.support.plain_durable_callers import FastClock, count_runners

SHUTTING_DOWN = httpx.Response(503, json={}, headers={"content-type": "application/problem+json"})


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
