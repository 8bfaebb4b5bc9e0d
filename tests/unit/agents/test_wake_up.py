"""Which callbacks wake an agent, and that a conversation wakes once at a time."""

import asyncio
import json
import pickle
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ringback.agents import (
    CallState,
    CallStateKind,
    KeyLocks,
    NotParkedYet,
    WakeUp,
    ask_person,
    parse_wake_up,
    refuse_if_early,
)
from ringback.agents.wake_up import PARKING_MINUTES_MAX, find_tool_call, refuse_while_running
from ringback.receiver import MalformedBody, NotReady, parse
from ringback.schemas import examples
from tests.support.limits import WAIT_SECONDS

BODY: dict[str, Any] = {
    "eventId": examples.EVENT_ID,
    "name": "call.finished",
    "timestamp": "2026-11-20T17:00:06.000Z",
    "cursor": examples.CURSOR,
    "data": {"call_id": examples.CALL_ID, "client_session_id": "session-7", "status": "completed"},
}
WAKE_UP = WakeUp(call_id=examples.CALL_ID, client_session_id="session-7")


@pytest.mark.parametrize("form", [BODY, json.dumps(BODY), json.dumps(BODY).encode(), parse(json.dumps(BODY).encode())])
def test_every_form_of_a_callback_names_its_call(form: Any) -> None:
    assert parse_wake_up(form) == WAKE_UP


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "call.progress"},
        {"name": "upstream.changed", "data": {"upstream": "git"}},
        {"type": "gap", "cursor": "c"},
    ],
)
def test_other_events_wake_nobody(changes: dict[str, Any]) -> None:
    assert parse_wake_up({**BODY, **changes}) is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"name": "call.finished"}', "{" * 5000])
def test_a_text_that_is_no_callback_is_refused(text: str) -> None:
    with pytest.raises(MalformedBody):
        parse_wake_up(text)


END = datetime(2026, 11, 20, 17, 0, 6, tzinfo=UTC)
ENDED = CallState(kind=CallStateKind.RESULT, call_id=examples.CALL_ID, changed_at=END)


def test_a_call_that_no_state_mentions_is_refused_as_long_as_its_agent_may_be_at_work() -> None:
    with pytest.raises(NotReady, match=examples.CALL_ID):
        refuse_if_early(ENDED, END + timedelta(minutes=PARKING_MINUTES_MAX, seconds=-1))


def test_a_call_whose_agent_died_before_its_state_was_stored_is_accepted_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    refuse_if_early(ENDED, END + timedelta(minutes=PARKING_MINUTES_MAX, seconds=1))

    assert f"{examples.CALL_ID}; its agent died" in caplog.text


def test_a_run_that_may_still_go_on_is_refused_with_the_time_at_which_a_dead_process_is_replaced() -> None:
    last_step = END + timedelta(seconds=30)
    until = last_step + timedelta(minutes=PARKING_MINUTES_MAX)

    with pytest.raises(NotReady, match="after 2026-11-20T17:10:36Z continues it"):
        refuse_while_running("The thread is running.", (END, last_step), until - timedelta(seconds=1))
    refuse_while_running("The thread is running.", (END, last_step), until)


def test_the_session_is_ringback_s_and_of_an_expired_call_the_callback_s() -> None:
    """A callback proves nothing. Of an expired call Ringback knows nothing more, and its agent would sleep for ever."""
    wake_up = WakeUp(call_id=examples.CALL_ID, client_session_id="claimed", tool_call_id="claimed tool")
    known = replace(ENDED, client_session_id="session-7", tool_call_id="tool-1")
    expired = CallState(kind=CallStateKind.FAILED, call_id=examples.CALL_ID, is_expired=True)

    assert find_tool_call(wake_up, known) == ("session-7", "tool-1")
    assert find_tool_call(wake_up, ENDED) == (None, None)
    assert find_tool_call(wake_up, expired) == ("claimed", "claimed tool")


async def test_two_wakes_of_one_conversation_follow_each_other() -> None:
    locks = KeyLocks()
    order: list[str] = []
    entered, leave = asyncio.Event(), asyncio.Event()

    async def first() -> None:
        async with locks.hold("session-7"):
            entered.set()
            await leave.wait()
            order.append("first")

    async def second() -> None:
        async with locks.hold("session-7"):
            order.append("second")

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(first())
        await entered.wait()
        tasks.create_task(second())
        async with locks.hold("another session"):
            order.append("another session")
        leave.set()

    assert order == ["another session", "first", "second"]


QUESTION = CallState(kind=CallStateKind.INPUT_REQUIRED, call_id=examples.CALL_ID)


async def test_a_person_is_asked_only_about_a_call_that_asks() -> None:
    asked: list[CallState] = []

    async def ask(state: CallState) -> None:
        asked.append(state)

    for state in (ENDED, QUESTION):
        await ask_person(state, ask)

    assert asked == [QUESTION]


async def test_a_question_that_no_person_can_be_shown_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    await ask_person(QUESTION, None)

    assert f"The call {examples.CALL_ID} asks a person" in caplog.text


async def test_a_login_that_no_client_can_show_is_a_warning_with_its_page(caplog: pytest.LogCaptureFixture) -> None:
    url = "https://ringback.example/login/git"
    requests = {"ringback/login": {"method": "elicitation/create", "params": {"mode": "url", "url": url}}}
    await ask_person(replace(QUESTION, input_requests=requests), None)

    assert url in caplog.text


async def test_wakes_in_the_threads_of_a_web_server_follow_each_other() -> None:
    """Each thread runs an event loop of its own, and a lock of asyncio wakes no task of another loop."""
    locks = KeyLocks()
    is_waiting, order = threading.Event(), list[str]()

    async def second() -> None:
        async with locks.hold("session-7"):
            order.append("second")

    async def handle_callback() -> None:
        waking = asyncio.create_task(second())
        await asyncio.sleep(0)
        is_waiting.set()
        await waking

    thread = threading.Thread(target=lambda: asyncio.run(handle_callback()), daemon=True)
    async with locks.hold("session-7"):
        thread.start()
        await asyncio.to_thread(is_waiting.wait, WAIT_SECONDS)
        order.append("first")
    await asyncio.to_thread(thread.join, WAIT_SECONDS)

    assert order == ["first", "second"]


async def test_a_wake_that_is_cancelled_while_it_waits_holds_up_no_other() -> None:
    locks = KeyLocks()
    order: list[str] = []

    async def wake(name: str) -> None:
        async with locks.hold("session-7"):
            order.append(name)

    async with locks.hold("session-7"):
        waiting, next_in_line, last = (asyncio.create_task(wake(name)) for name in ("waiting", "next", "last"))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
    next_in_line.cancel()  # the lock has just been passed on to it
    async with asyncio.timeout(WAIT_SECONDS):
        await last

    assert order == ["last"]


def test_a_refusal_reaches_the_parent_process_of_a_pool_unchanged() -> None:
    error = NotParkedYet("The thread is running.")
    copied = pickle.loads(pickle.dumps(error))  # noqa: S301 - pickled just before

    assert (type(copied), str(copied), vars(copied)) == (NotParkedYet, str(error), vars(error))
