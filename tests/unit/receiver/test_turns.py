"""Handlers of one session run one after the other, those of different sessions at the same time; a handler may say not yet."""

import asyncio
import logging
from typing import Any

import httpx
import pytest

from ringback.receiver import Callback, NotReady, ReceiverApp
from tests.support.limits import WAIT_SECONDS
from tests.support.signed_posts import NOW, SECRET, make_event_body, post_signed


class HeldHandlers:
    """Handlers that wait until the test lets them end, and record the order of their starts and ends."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.running = 0
        self.running_max = 0
        self._changed = asyncio.Condition()
        self._released: set[str] = set()

    async def handle(self, callback: Callback) -> None:
        async with self._changed:
            self.steps.append(f"start {callback.event_id}")
            self.running += 1
            self.running_max = max(self.running_max, self.running)
            self._changed.notify_all()
            await self._changed.wait_for(lambda: callback.event_id in self._released)
            self.running -= 1
            self.steps.append(f"end {callback.event_id}")

    async def release(self, *event_ids: str) -> None:
        async with self._changed:
            self._released.update(event_ids)
            self._changed.notify_all()

    async def wait_until_running(self, count: int) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self.running == count)


def make_app(handlers: HeldHandlers, **options: Any) -> ReceiverApp:
    defaults: dict[str, Any] = {"turn_wait_seconds": WAIT_SECONDS}
    return ReceiverApp(SECRET, on_callback=handlers.handle, clock=lambda: NOW, **(defaults | options))


async def test_two_callbacks_of_one_session_are_handled_one_after_the_other() -> None:
    handlers = HeldHandlers()
    app = make_app(handlers)

    async with asyncio.timeout(WAIT_SECONDS), asyncio.TaskGroup() as group:
        posts = [
            group.create_task(post_signed(app, make_event_body(f"evt_{number}", client_session_id="s1", call_id=None)))
            for number in (1, 2)
        ]
        await handlers.wait_until_running(1)
        await handlers.release("evt_1", "evt_2")

    assert [task.result().status_code for task in posts] == [204, 204]
    assert handlers.running_max == 1
    assert sorted(handlers.steps[:2]) == ["end evt_1", "start evt_1"]


async def test_callbacks_of_two_sessions_are_handled_at_the_same_time() -> None:
    handlers = HeldHandlers()
    app = make_app(handlers)

    async with asyncio.timeout(WAIT_SECONDS), asyncio.TaskGroup() as group:
        for number in (1, 2):
            body = make_event_body(f"evt_{number}", client_session_id=f"s{number}")
            group.create_task(post_signed(app, body))
        await handlers.wait_until_running(2)
        await handlers.release("evt_1", "evt_2")

    assert handlers.running_max == 2


async def test_no_more_handlers_run_at_the_same_time_than_allowed() -> None:
    handlers = HeldHandlers()
    app = make_app(handlers, handlers_max=2)

    async with asyncio.timeout(WAIT_SECONDS), asyncio.TaskGroup() as group:
        for number in range(6):
            body = make_event_body(f"evt_{number}", client_session_id=f"s{number}")
            group.create_task(post_signed(app, body))
        await handlers.wait_until_running(2)
        await handlers.release(*(f"evt_{number}" for number in range(6)))

    assert handlers.running_max == 2
    assert len(handlers.steps) == 12


async def test_a_waiting_session_takes_no_place_from_another() -> None:
    handlers = HeldHandlers()
    app = make_app(handlers, handlers_max=2)

    async with asyncio.timeout(WAIT_SECONDS), asyncio.TaskGroup() as group:
        for number in range(3):
            group.create_task(post_signed(app, make_event_body(f"busy_{number}", client_session_id="busy")))
        await handlers.wait_until_running(1)
        group.create_task(post_signed(app, make_event_body("evt_other", client_session_id="other")))
        await handlers.wait_until_running(2)
        assert handlers.steps == ["start busy_0", "start evt_other"]
        await handlers.release("busy_0", "busy_1", "busy_2", "evt_other")


async def test_the_order_key_may_be_chosen() -> None:
    handlers = HeldHandlers()

    def read_tool(callback: Callback) -> str:
        return callback.tool or ""

    app = make_app(handlers, order_key=read_tool)

    async with asyncio.timeout(WAIT_SECONDS), asyncio.TaskGroup() as group:
        for number in (1, 2):
            body = make_event_body(f"evt_{number}", client_session_id="s1", tool=f"tool_{number}")
            group.create_task(post_signed(app, body))
        await handlers.wait_until_running(2)
        await handlers.release("evt_1", "evt_2")


async def test_a_callback_whose_turn_does_not_come_in_time_is_refused_and_handled_when_it_comes_again() -> None:
    handlers = HeldHandlers()
    app = make_app(handlers, turn_wait_seconds=0)

    async with asyncio.timeout(WAIT_SECONDS), asyncio.TaskGroup() as group:
        first = group.create_task(post_signed(app, make_event_body("evt_1", client_session_id="s1")))
        await handlers.wait_until_running(1)
        early = await post_signed(app, make_event_body("evt_2", client_session_id="s1"))
        await handlers.release("evt_1", "evt_2")

    assert (first.result().status_code, early.status_code) == (204, 503)
    assert early.headers["retry-after"] == "5"
    assert (await post_signed(app, make_event_body("evt_2", client_session_id="s1"))).status_code == 204
    assert handlers.steps == ["start evt_1", "end evt_1", "start evt_2", "end evt_2"]


async def test_a_timeout_of_the_handler_itself_is_a_failure_of_the_handler() -> None:
    async def time_out(_: Callback) -> None:
        raise TimeoutError

    assert (
        await post_signed(ReceiverApp(SECRET, on_callback=time_out, clock=lambda: NOW), make_event_body())
    ).status_code == 500


async def test_without_an_inbox_a_cancelled_or_hanging_handler_is_a_failure_and_its_session_goes_on() -> None:
    async def misbehave(callback: Callback) -> None:
        if callback.event_id == "evt_cancelled":
            raise asyncio.CancelledError
        if callback.event_id == "evt_hangs":
            await asyncio.Event().wait()

    app = ReceiverApp(SECRET, on_callback=misbehave, clock=lambda: NOW, handler_timeout_seconds=0.01)
    bodies = [make_event_body(event_id) for event_id in ("evt_cancelled", "evt_hangs", "evt_1")]
    async with asyncio.timeout(WAIT_SECONDS):
        statuses = [(await post_signed(app, body)).status_code for body in bodies]

    assert statuses == [500, 500, 204]


async def test_without_an_inbox_a_panic_of_a_handler_is_a_failure_of_the_handler() -> None:
    async def panic(_: Callback) -> None:
        raise GeneratorExit

    app = ReceiverApp(SECRET, on_callback=panic, clock=lambda: NOW)

    assert (await post_signed(app, make_event_body())).status_code == 500


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan")])
def test_a_time_limit_of_handlers_is_more_than_nothing(seconds: float) -> None:
    with pytest.raises(ValueError, match="handler_timeout_seconds"):
        ReceiverApp(SECRET, handler_timeout_seconds=seconds)


async def post_to_handler_that_is_not_ready(error: NotReady) -> httpx.Response:
    async def refuse(_: Callback) -> None:
        raise error

    return await post_signed(ReceiverApp(SECRET, on_callback=refuse, clock=lambda: NOW), make_event_body())


async def test_a_handler_that_is_not_ready_is_tried_again_later_without_a_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "ringback")

    answer = await post_to_handler_that_is_not_ready(NotReady(1.2, reason="The checkpoint is not written."))

    assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
    assert answer.json() == {"reason": "The checkpoint is not written."}
    assert [(record.levelno, record.exc_info) for record in caplog.records] == [(logging.INFO, None)]


async def test_the_longest_pause_is_a_day() -> None:
    assert (await post_to_handler_that_is_not_ready(NotReady(1e9))).headers["retry-after"] == "86400"


@pytest.mark.parametrize("pause", [-1, float("nan"), float("inf")])
def test_an_impossible_pause_is_refused(pause: float) -> None:
    with pytest.raises(ValueError, match="retry_after_seconds"):
        NotReady(pause)


def test_a_receiver_runs_at_least_one_handler() -> None:
    with pytest.raises(ValueError, match="handlers_max"):
        ReceiverApp(SECRET, handlers_max=0)
