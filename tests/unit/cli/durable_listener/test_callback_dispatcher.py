"""Lanes: the order within a session, sessions side by side, retries, giving up and stopping."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ringback.cli.durable_listener import callback_dispatcher as dispatcher_module
from ringback.cli.durable_listener.callback_dispatcher import CallbackDispatcher, compute_pause
from ringback.cli.durable_listener.handlers import Failed, Handled, HandlerOutcome, ReceivedCallback, Refused
from ringback.cli.durable_listener.inbox import Inbox, NewCallback, open_inbox
from tests.support.clock import FakeClock
from tests.support.limits import WAIT_SECONDS


def new_callback(number: int, session: str) -> NewCallback:
    body = {
        "eventId": f"evt_{number}",
        "name": "call.finished",
        "timestamp": "2026-11-20T17:00:00.000Z",
        "data": {"call_id": f"call_{number}", "client_session_id": session},
    }
    return NewCallback(event_id=f"evt_{number}", order_key=session, cursor=f"c{number}", body=json.dumps(body).encode())


def handle_at_once(received: ReceivedCallback) -> HandlerOutcome:
    return Handled()


@dataclass
class ScriptedHandler:
    """Records the callbacks, and returns what the test says; the callbacks of held sessions wait."""

    outcome: Callable[[ReceivedCallback], HandlerOutcome] = handle_at_once
    held: dict[str, asyncio.Event] = field(default_factory=dict[str, asyncio.Event])
    begun: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def handle_callback(self, received: ReceivedCallback) -> HandlerOutcome:
        self.begun.append((received.event_id, received.attempt))
        self.changed.set()
        if hold := self.held.get(received.callback.client_session_id or ""):
            await hold.wait()
        return self.outcome(received)

    async def wait_for_attempts(self, count: int) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while len(self.begun) < count:
                self.changed.clear()
                await self.changed.wait()


@dataclass
class Stage:
    inbox: Inbox
    handler: ScriptedHandler
    dispatcher: CallbackDispatcher
    clock: FakeClock
    reports: list[str]

    async def receive(self, *callbacks: tuple[int, str]) -> None:
        new = [new_callback(number, session) for number, session in callbacks]
        for waiting in await self.inbox.store(new, cursor=None):
            self.dispatcher.add_callback(waiting)


@asynccontextmanager
async def running(folder: Path, handler: ScriptedHandler, **options: Any) -> AsyncGenerator[Stage]:
    clock, reports = FakeClock(), list[str]()
    async with open_inbox(folder / "inbox.db") as inbox:
        dispatcher = CallbackDispatcher(inbox, handler, clock=clock, report=reports.append, **options)
        try:
            yield Stage(inbox, handler, dispatcher, clock, reports)
        finally:
            await dispatcher.cancel()


async def test_one_session_s_callbacks_are_handled_in_order_and_other_sessions_do_not_wait(tmp_path: Path) -> None:
    hold = asyncio.Event()
    async with running(tmp_path, ScriptedHandler(held={"slow": hold})) as stage:
        await stage.receive((1, "slow"), (2, "slow"), (3, "fast"), (4, "fast"))
        await stage.handler.wait_for_attempts(3)
        while_held = list(stage.handler.begun)
        hold.set()
        await stage.handler.wait_for_attempts(4)
        await stage.dispatcher.drain()

    assert sorted(while_held) == [("evt_1", 1), ("evt_3", 1), ("evt_4", 1)]
    assert while_held.index(("evt_3", 1)) < while_held.index(("evt_4", 1))
    assert stage.handler.begun[-1] == ("evt_2", 1)


async def test_a_failed_callback_is_tried_again_before_the_next_of_its_session(tmp_path: Path) -> None:
    def fail_twice(received: ReceivedCallback) -> HandlerOutcome:
        return Failed("exit code 1") if received.event_id == "evt_1" and received.attempt <= 2 else Handled()

    async with running(tmp_path, ScriptedHandler(outcome=fail_twice)) as stage:
        await stage.receive((1, "s1"), (2, "s1"))
        await stage.handler.wait_for_attempts(4)
        await stage.dispatcher.drain()
        waiting = await stage.inbox.list_waiting()

    assert stage.handler.begun == [("evt_1", 1), ("evt_1", 2), ("evt_1", 3), ("evt_2", 1)]
    assert stage.clock.monotonic() == compute_pause(1) + compute_pause(2)
    assert waiting == []
    assert "attempt 2 in 1 s" in stage.reports[0]


@pytest.mark.parametrize("outcome", [Refused("exit code 65"), Failed("exit code 1")])
async def test_a_callback_that_is_given_up_stays_in_the_inbox_and_the_next_one_is_handled(
    tmp_path: Path, outcome: HandlerOutcome
) -> None:
    handler = ScriptedHandler(outcome=lambda received: outcome if received.event_id == "evt_1" else Handled())
    async with running(tmp_path, handler, attempts_max=1) as stage:
        await stage.receive((1, "s1"), (2, "s1"))
        await stage.handler.wait_for_attempts(2)
        await stage.dispatcher.drain()
        given_up = await stage.inbox.retry_given_up()

    assert stage.handler.begun == [("evt_1", 1), ("evt_2", 1)]
    assert given_up == 1
    assert "given up" in stage.reports[0]


async def test_the_attempts_of_an_earlier_process_count(tmp_path: Path) -> None:
    async with open_inbox(tmp_path / "inbox.db") as inbox:
        (waiting,) = await inbox.store([new_callback(1, "s1")], cursor=None)
        await inbox.record_failure(waiting.position, "exit code 1")

    async with running(tmp_path, ScriptedHandler()) as stage:
        for waiting in await stage.inbox.list_waiting():
            stage.dispatcher.add_callback(waiting)
        await stage.handler.wait_for_attempts(1)
    assert stage.handler.begun == [("evt_1", 2)]


async def test_not_more_handlers_run_at_once_than_wanted(tmp_path: Path) -> None:
    holds = {session: asyncio.Event() for session in ("s1", "s2", "s3")}
    async with running(tmp_path, ScriptedHandler(held=holds), parallel=2) as stage:
        await stage.receive((1, "s1"), (2, "s2"), (3, "s3"))
        await stage.handler.wait_for_attempts(2)
        assert stage.dispatcher.count_attempts() == 2
        holds["s1"].set()
        await stage.handler.wait_for_attempts(3)

    assert stage.handler.begun == [("evt_1", 1), ("evt_2", 1), ("evt_3", 1)]


async def test_the_reader_waits_while_too_many_callbacks_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher_module, "WAITING_MAX", 2)
    hold = asyncio.Event()
    async with running(tmp_path, ScriptedHandler(held={"s1": hold})) as stage:
        await stage.dispatcher.wait_for_space()
        await stage.receive((1, "s1"), (2, "s1"))
        waiting = asyncio.create_task(stage.dispatcher.wait_for_space())
        await stage.handler.wait_for_attempts(1)
        assert not waiting.done()
        hold.set()
        await asyncio.wait_for(waiting, WAIT_SECONDS)


async def test_a_drain_waits_for_the_attempt_in_progress_and_starts_no_other(tmp_path: Path) -> None:
    hold = asyncio.Event()
    async with running(tmp_path, ScriptedHandler(held={"s1": hold})) as stage:
        await stage.receive((1, "s1"), (2, "s1"))
        await stage.handler.wait_for_attempts(1)
        draining = asyncio.create_task(stage.dispatcher.drain())
        assert stage.dispatcher.count_attempts() == 1
        hold.set()
        await draining
        left = [waiting.event_id for waiting in await stage.inbox.list_waiting()]

    assert stage.handler.begun == [("evt_1", 1)]
    assert left == ["evt_2"]


async def test_a_cancelled_attempt_leaves_its_callback_waiting(tmp_path: Path) -> None:
    async with running(tmp_path, ScriptedHandler(held={"s1": asyncio.Event()})) as stage:
        await stage.receive((1, "s1"))
        await stage.handler.wait_for_attempts(1)
        await stage.dispatcher.cancel()
        assert [waiting.event_id for waiting in await stage.inbox.list_waiting()] == ["evt_1"]


async def test_an_error_that_is_not_the_handler_s_ends_the_listener(tmp_path: Path) -> None:
    def break_output(received: ReceivedCallback) -> HandlerOutcome:
        raise BrokenPipeError("the reader is gone")

    async with running(tmp_path, ScriptedHandler(outcome=break_output)) as stage:
        await stage.receive((1, "s1"))
        with pytest.raises(BrokenPipeError):
            await asyncio.wait_for(stage.dispatcher.run(), WAIT_SECONDS)
        assert [waiting.event_id for waiting in await stage.inbox.list_waiting()] == ["evt_1"]


@pytest.mark.parametrize(
    ("attempt", "retry_after", "pause"),
    [
        (1, 0.0, 1.0),
        (2, 0.0, 2.0),
        (7, 0.0, 60.0),
        (10_000, 0.0, 60.0),
        (1, 30.0, 30.0),
        (1, 9e9, 60.0),
    ],
)
def test_pauses_double_and_are_bounded(attempt: int, retry_after: float, pause: float) -> None:
    assert compute_pause(attempt, retry_after) == pause
