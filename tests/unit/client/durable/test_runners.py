"""What a DurableCaller keeps of a call in memory, and for how long."""

import asyncio
from collections.abc import Awaitable, Callable

import httpx
import pytest

from ringback.client import ConnectionFailed, RingbackClient
from ringback.client.durable import CallHandle, DurableCaller, StartUnknown, UnknownHandle
from ringback.client.durable.local_call import LocalCall
from tests.support.engine import wait_until
from tests.support.limits import WAIT_SECONDS
from tests.support.mocked_durable_callers import CALL, STARTED
from tests.support.plain_durable_callers import FastClock, count_runners, create_plain_caller


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
