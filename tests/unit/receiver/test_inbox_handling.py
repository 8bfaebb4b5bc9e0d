"""What a handler, a full disk or a cancelled start may do to a receiver with an inbox: no callback waits for a restart."""

import asyncio
import logging
import sqlite3
import threading
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from ringback.receiver import Callback, NotReady, SQLiteInbox, inbox_file
from tests.support.inbox_receivers import FakeTime, Handler, abandon, make_app, never, read_rows
from tests.support.limits import WAIT_SECONDS
from tests.support.signed_posts import NOW, make_event_body, post_signed


def fail_on_disk(*_: Any, **__: Any) -> Any:
    raise sqlite3.OperationalError("database or disk is full")


# -- handlers --


@pytest.mark.requirement("R35")
async def test_a_handler_whose_own_task_was_cancelled_is_tried_again_and_its_session_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    handler, time = Handler(), FakeTime()

    async def await_a_cancelled_task(callback: Callback) -> None:
        if not handler.tried:
            handler.tried.append(callback.event_id)
            agent = asyncio.create_task(asyncio.Event().wait())
            agent.cancel()
            await agent
        await handler.handle(callback)

    async with make_app(tmp_path, await_a_cancelled_task, clock=time.read, sleep=time.sleep) as app:
        for event_id in ("evt_1", "evt_2"):
            await post_signed(app, make_event_body(event_id))
        await handler.wait_until_handled(2)

    assert handler.handled == ["evt_1", "evt_2"]
    assert time.pauses == [1]
    assert "evt_1" in caplog.text


async def test_a_handler_that_cancels_the_task_in_which_it_runs_fails_like_any_other(tmp_path: Path) -> None:
    handler, time = Handler(), FakeTime()

    async def cancel_itself(callback: Callback) -> None:
        if time.pauses == []:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.Event().wait()
        await handler.handle(callback)

    async with make_app(tmp_path, cancel_itself, clock=time.read, sleep=time.sleep) as app:
        await post_signed(app, make_event_body("evt_1"))
        await handler.wait_until_handled(1)


class Panic(BaseException):
    """As PyO3 raises it for a panic in Rust."""


async def test_a_handler_that_raises_no_exception_but_a_panic_is_tried_again_and_its_session_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    handler, time = Handler(Panic("index out of bounds")), FakeTime()

    async with make_app(tmp_path, handler.handle, clock=time.read, sleep=time.sleep) as app:
        for event_id in ("evt_1", "evt_2"):
            await post_signed(app, make_event_body(event_id))
        await handler.wait_until_handled(2)

    assert (handler.tried, time.pauses) == (["evt_1", "evt_1", "evt_2"], [1])
    assert "The handler raised Panic: index out of bounds" in caplog.text


async def test_a_handler_that_exceeds_its_time_limit_is_ended_as_a_failure_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    handler, time = Handler(), FakeTime()
    ended: list[str] = []

    async def hang_once(callback: Callback) -> None:
        if not ended:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(callback.event_id)
        await handler.handle(callback)

    app = make_app(tmp_path, hang_once, clock=time.read, sleep=time.sleep, handler_timeout_seconds=0.01)
    async with app:
        await post_signed(app, make_event_body("evt_1"))
        await handler.wait_until_handled(1)

    assert (ended, handler.handled) == (["evt_1"], ["evt_1"])
    assert "more than 0.01 s" in caplog.text


async def test_an_error_outside_the_handler_that_ends_a_session_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged = asyncio.Event()

    class SetOnRecord(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:  # noqa: ARG002 - the base class names it
            logged.set()

    def break_row(*_: Any) -> Any:
        raise TypeError("no such row")

    monkeypatch.setattr(inbox_file.InboxFile, "read_body", break_row)
    watcher = SetOnRecord()
    logging.getLogger("ringback.receiver.inbox_handling").addHandler(watcher)
    try:
        async with make_app(tmp_path, never) as app:
            await post_signed(app, make_event_body("evt_1", client_session_id="s1"))
            await asyncio.wait_for(logged.wait(), WAIT_SECONDS)
    finally:
        logging.getLogger("ringback.receiver.inbox_handling").removeHandler(watcher)

    assert "no such row" in caplog.text
    assert "session s1" in caplog.text


async def test_a_handler_that_is_not_ready_is_tried_again_after_a_second_at_the_earliest(tmp_path: Path) -> None:
    handler, time = Handler(NotReady(0), NotReady(0.01)), FakeTime()

    async with make_app(tmp_path, handler.handle, clock=time.read, sleep=time.sleep) as app:
        await post_signed(app, make_event_body("evt_1"))
        await handler.wait_until_handled(1)

    assert time.pauses == [1, 1]


async def test_a_handler_that_needs_a_result_that_the_callback_does_not_contain_is_given_up_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    handler, time = Handler(), FakeTime()

    async def read_value(callback: Callback) -> None:
        handler.tried.append(callback.event_id)
        if callback.event_id == "evt_1":
            callback.value_or_raise()
        await handler.handle(callback)

    async with make_app(tmp_path, read_value, clock=time.read, sleep=time.sleep) as app:
        for event_id in ("evt_1", "evt_2"):
            await post_signed(app, make_event_body(event_id, outcome="result", client_session_id="s1"))
        await handler.wait_until_handled(1)

    assert (handler.tried, handler.handled, time.pauses) == (["evt_1", "evt_2", "evt_2"], ["evt_2"], [])
    assert read_rows(tmp_path, "SELECT message_id, given_up, body IS NULL FROM messages") == [
        ("evt_1", 1, 0),
        ("evt_2", 0, 0),
    ]
    (record,) = caplog.records
    assert "POST /v1/resume" in record.getMessage()
    assert "include_result" in record.getMessage()


async def test_a_handler_that_was_not_ready_often_has_a_short_pause_after_its_first_failure(tmp_path: Path) -> None:
    handler, time = Handler(*(NotReady(5) for _ in range(6)), ValueError("a bug"), ValueError("again")), FakeTime()

    async with make_app(tmp_path, handler.handle, clock=time.read, sleep=time.sleep) as app:
        await post_signed(app, make_event_body("evt_1"))
        await handler.wait_until_handled(1)

    assert time.pauses == [*[5] * 6, 1, 2]


# -- a start or an end that fails --


async def test_a_receiver_whose_cursor_could_not_be_read_opens_at_the_next_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = Handler()
    app = make_app(tmp_path, handler.handle)
    with monkeypatch.context() as patch:
        patch.setattr(inbox_file.InboxFile, "read_cursor", fail_on_disk)
        with pytest.raises(sqlite3.OperationalError, match="disk is full"):
            await app.open()

    async with app:
        assert (await post_signed(app, make_event_body("evt_1"))).status_code == 204
        await handler.wait_until_handled(1)


async def test_a_receiver_whose_start_was_cancelled_opens_at_the_next_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, reading = make_app(tmp_path, never), asyncio.Event()

    async def wait_forever(_: SQLiteInbox) -> None:
        reading.set()
        await asyncio.Event().wait()

    with monkeypatch.context() as patch:
        patch.setattr(SQLiteInbox, "read_cursor", wait_forever)
        opening = asyncio.create_task(app.open())
        await asyncio.wait_for(reading.wait(), WAIT_SECONDS)
        opening.cancel()
        await asyncio.wait([opening])

    async with app:
        pass


async def test_a_receiver_whose_end_failed_on_a_full_disk_opens_again_and_repeats_no_callback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = Handler()
    app = make_app(tmp_path, handler.handle)
    await app.open()
    await post_signed(app, make_event_body("evt_1"))
    await handler.wait_until_handled(1)
    with monkeypatch.context() as patch:
        patch.setattr(inbox_file.InboxFile, "drop_bodies", fail_on_disk)
        await app.wait_for(correlation_id="c1", timeout_seconds=WAIT_SECONDS)
        with pytest.raises(sqlite3.OperationalError, match="disk is full"):
            await app.aclose()
        await app.aclose()

    async with app:
        with pytest.raises(TimeoutError):
            await app.wait_for(correlation_id="c1", timeout_seconds=0)


async def test_a_receiver_whose_end_was_cancelled_opens_again(tmp_path: Path) -> None:
    entered, ended = asyncio.Event(), asyncio.Event()

    async def hang(_: Callback) -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    app = make_app(tmp_path, hang)
    await app.open()
    await post_signed(app, make_event_body("evt_1"))
    await asyncio.wait_for(entered.wait(), WAIT_SECONDS)
    closing = asyncio.create_task(app.aclose())
    await asyncio.wait([closing], timeout=0)
    closing.cancel()
    await asyncio.wait([closing])
    assert ended.is_set()

    async with app:
        pass


async def test_an_old_callback_whose_handler_had_no_turn_before_the_end_is_not_given_up(tmp_path: Path) -> None:
    waiting = make_app(tmp_path, never)
    await waiting.open()
    for session in ("s1", "s2"):
        await post_signed(waiting, make_event_body(f"evt_{session}", client_session_id=session))
    await abandon(waiting)
    entered, release = asyncio.Event(), asyncio.Event()

    async def hold(_: Callback) -> None:
        entered.set()
        await release.wait()

    app = make_app(tmp_path, hold, handlers_max=1, clock=lambda: NOW + timedelta(days=5))
    await app.open()
    await asyncio.wait_for(entered.wait(), WAIT_SECONDS)
    closing = asyncio.create_task(app.aclose())
    await asyncio.wait([closing], timeout=0)
    release.set()
    await closing

    assert read_rows(tmp_path, "SELECT message_id, given_up, ended_at IS NULL FROM messages ORDER BY number") == [
        ("evt_s1", 0, 0),
        ("evt_s2", 0, 1),
    ]


# -- waiters --


async def test_a_callback_that_a_waiter_received_while_the_receiver_was_closed_does_not_come_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler, dropped = Handler(), asyncio.Queue[list[int]]()
    app = make_app(tmp_path, handler.handle)
    async with app:
        for session in ("s1", "s2"):
            await post_signed(app, make_event_body(f"evt_{session}", client_session_id=session))
        await handler.wait_until_handled(2)
    drop_bodies = SQLiteInbox.drop_bodies

    async def record_drop(self: SQLiteInbox, numbers: Sequence[int]) -> None:
        await dropped.put(list(numbers))
        await drop_bodies(self, numbers)

    monkeypatch.setattr(SQLiteInbox, "drop_bodies", record_drop)
    await app.wait_for(client_session_id="s1", timeout_seconds=0)
    async with app:
        with pytest.raises(TimeoutError):
            await app.wait_for(client_session_id="s1", timeout_seconds=0)
        await app.wait_for(client_session_id="s2", timeout_seconds=0)
        async with asyncio.timeout(WAIT_SECONDS):
            assert [await dropped.get(), await dropped.get()] == [[1], [2]]

    assert read_rows(tmp_path, "SELECT count(body) FROM messages") == [(0,)]


def hold_commits(patch: pytest.MonkeyPatch, gate: threading.Event) -> asyncio.Event:
    """Let commits wait for the gate, like those of a slow disk. The event is set when the first one waits."""
    waits, loop = asyncio.Event(), asyncio.get_running_loop()
    commit_together = inbox_file.InboxFile.commit_together

    def wait_for_gate(self: inbox_file.InboxFile, works: Any) -> Any:
        loop.call_soon_threadsafe(waits.set)
        gate.wait(WAIT_SECONDS)
        return commit_together(self, works)

    patch.setattr(inbox_file.InboxFile, "commit_together", wait_for_gate)
    return waits


async def test_a_callback_that_is_being_stored_at_the_end_is_acknowledged_and_handled_by_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler, gate = Handler(), threading.Event()
    app = make_app(tmp_path, handler.handle)
    await app.open()
    with monkeypatch.context() as patch:
        waits = hold_commits(patch, gate)
        posted = asyncio.create_task(post_signed(app, make_event_body("evt_1")))
        await asyncio.wait_for(waits.wait(), WAIT_SECONDS)
        closing = asyncio.create_task(app.aclose())
        await asyncio.wait([closing], timeout=0)
        gate.set()
        await asyncio.wait_for(closing, WAIT_SECONDS)

    assert (await asyncio.wait_for(posted, WAIT_SECONDS)).status_code == 204
    assert handler.handled == []
    async with app:
        await handler.wait_until_handled(1)


async def test_a_sender_whose_callback_a_cancelled_end_does_not_wait_for_is_asked_to_come_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler, gate = Handler(), threading.Event()
    app = make_app(tmp_path, handler.handle)
    await app.open()
    with monkeypatch.context() as patch:
        waits = hold_commits(patch, gate)
        posts = [asyncio.create_task(post_signed(app, make_event_body("evt_1")))]
        await asyncio.wait_for(waits.wait(), WAIT_SECONDS)
        posts.append(asyncio.create_task(post_signed(app, make_event_body("evt_2"))))
        await asyncio.wait(posts, timeout=0)
        closing = asyncio.create_task(app.aclose())
        async with asyncio.timeout(WAIT_SECONDS):
            while not all(post.done() for post in posts):  # the waits of the end's own clean-up are cancelled, too
                await asyncio.wait(posts, timeout=0)
                closing.cancel()
        gate.set()
        await asyncio.wait([closing])

    answers = await asyncio.wait_for(asyncio.gather(*posts), WAIT_SECONDS)
    assert [(each.status_code, "retry-after" in each.headers) for each in answers] == [(503, True), (503, True)]
