"""With an inbox, a callback is acknowledged once it is on disk, and handled from there, also by the next process."""

import asyncio
import logging
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from ringback.receiver import (
    Callback,
    CallNotFinished,
    InboxUnavailable,
    NotReady,
    ReceiverApp,
    ResultNotIncluded,
    SQLiteInbox,
)
from ringback.receiver.handler_retries import RETRY_SECONDS_MAX
from tests.support.inbox_receivers import FakeTime, Handler, abandon, make_app, never, read_rows
from tests.support.limits import WAIT_SECONDS
from tests.support.signed_posts import NOW, SECRET, make_event_body, post_signed


async def test_a_callback_is_acknowledged_before_its_handler_and_handled_once(tmp_path: Path) -> None:
    handler = Handler()
    async with make_app(tmp_path, handler.handle) as app:
        answers = [(await post_signed(app, make_event_body("evt_1"))).status_code for _ in range(3)]
        await handler.wait_until_handled(1)

    assert answers == [204, 204, 204]
    assert handler.tried == ["evt_1"]
    assert read_rows(tmp_path, "SELECT count(*), count(ended_at) FROM messages") == [(1, 1)]


async def test_an_inbox_in_memory_is_refused_because_it_would_end_with_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(InboxUnavailable, match="is no file"):
        await ReceiverApp(SECRET, inbox=SQLiteInbox(":memory:")).open()


async def test_a_callback_that_was_stored_and_not_handled_is_handled_by_the_next_process(tmp_path: Path) -> None:
    app = make_app(tmp_path, never)
    await app.open()
    assert (await post_signed(app, make_event_body("evt_1"))).status_code == 204
    await abandon(app)

    handler = Handler()
    async with make_app(tmp_path, handler.handle) as app:
        await handler.wait_until_handled(1)
        assert (await post_signed(app, make_event_body("evt_1"))).status_code == 204

    assert handler.handled == ["evt_1"]


async def test_a_failing_handler_is_tried_again_with_growing_pauses(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    handler, time = Handler(*(RuntimeError("full") for _ in range(12))), FakeTime()

    async with make_app(tmp_path, handler.handle, clock=time.read, sleep=time.sleep) as app:
        assert (await post_signed(app, make_event_body("evt_1"))).status_code == 204
        await handler.wait_until_handled(1)

    assert time.pauses == [*(2.0**doublings for doublings in range(9)), *[RETRY_SECONDS_MAX] * 3]
    assert "evt_1" in caplog.text
    assert "the.token" not in caplog.text


async def test_a_handler_that_is_not_ready_is_tried_again_when_it_says_and_logs_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    handler, time = Handler(NotReady(7.5), NotReady(2.5)), FakeTime()

    async with make_app(tmp_path, handler.handle, clock=time.read, sleep=time.sleep) as app:
        await post_signed(app, make_event_body("evt_1"))
        await handler.wait_until_handled(1)

    assert time.pauses == [7.5, 2.5]
    assert [record for record in caplog.records if record.levelno > logging.INFO] == []


@pytest.mark.parametrize("error", [ResultNotIncluded("thin"), CallNotFinished("a question")])
async def test_a_callback_whose_value_never_comes_is_given_up_at_once_and_the_next_one_of_its_session_has_its_turn(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    """A question whose handler asked for a value kept the end of its call from being handled."""
    handler, time = Handler(error), FakeTime()

    async with make_app(tmp_path, handler.handle, clock=time.read, sleep=time.sleep) as app:
        await post_signed(app, make_event_body("evt_1"))
        await post_signed(app, make_event_body("evt_2"))
        await handler.wait_until_handled(1)

    assert (handler.tried, handler.handled, time.pauses) == (["evt_1", "evt_2"], ["evt_2"], [])
    assert f"evt_1 is given up: {error}" in caplog.text


async def test_a_handler_that_fails_for_four_days_is_given_up_and_the_next_callback_has_its_turn(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    handler, time = Handler(*(NotReady(86_400) for _ in range(5))), FakeTime()

    async with make_app(tmp_path, handler.handle, clock=time.read, sleep=time.sleep) as app:
        await post_signed(app, make_event_body("evt_1"))
        await post_signed(app, make_event_body("evt_2"))
        await handler.wait_until_handled(1)

    assert handler.tried == ["evt_1"] * 5 + ["evt_2"]
    assert "given up" in caplog.text
    assert read_rows(tmp_path, "SELECT message_id, given_up, body IS NULL FROM messages") == [
        ("evt_1", 1, 0),
        ("evt_2", 0, 0),
    ]


async def test_a_callback_that_waited_four_days_behind_another_is_not_given_up_at_its_first_failure(
    tmp_path: Path,
) -> None:
    handler, time = Handler(*(NotReady(86_400) for _ in range(5)), RuntimeError("a moment")), FakeTime()

    async with make_app(tmp_path, handler.handle, clock=time.read, sleep=time.sleep) as app:
        for event_id in ("evt_1", "evt_2"):
            await post_signed(app, make_event_body(event_id, client_session_id="s1"))
        await handler.wait_until_handled(1)

    assert handler.tried == [*["evt_1"] * 5, "evt_2", "evt_2"]


async def test_a_callback_whose_process_was_away_for_days_is_tried_for_an_hour_and_then_given_up(
    tmp_path: Path,
) -> None:
    app = make_app(tmp_path, never)
    await app.open()
    for event_id in ("evt_1", "evt_2"):
        await post_signed(app, make_event_body(event_id, client_session_id="s1"))
    await abandon(app)

    handler, time = Handler(*(RuntimeError("full") for _ in range(21))), FakeTime()
    time.now += timedelta(days=5)
    async with make_app(tmp_path, handler.handle, clock=time.read, sleep=time.sleep) as app:
        await handler.wait_until_handled(1)

    assert handler.tried == [*["evt_1"] * 21, "evt_2"]
    assert sum(time.pauses) == pytest.approx(3600, abs=RETRY_SECONDS_MAX)


async def test_the_callbacks_of_a_session_keep_their_order_across_failures_and_restarts(tmp_path: Path) -> None:
    app = make_app(tmp_path, never)
    await app.open()
    for number in range(5):
        await post_signed(app, make_event_body(f"evt_{number}", client_session_id="s1"))
    await abandon(app)

    handler, time = Handler(RuntimeError("full")), FakeTime()
    async with make_app(tmp_path, handler.handle, clock=time.read, sleep=time.sleep) as app:
        for number in range(5, 8):
            await post_signed(app, make_event_body(f"evt_{number}", client_session_id="s1"))
        await handler.wait_until_handled(8)

    assert handler.handled == [f"evt_{number}" for number in range(8)]


async def test_a_session_whose_handler_fails_holds_up_no_other(tmp_path: Path) -> None:
    handler = Handler()

    async def fail_for_one_session(callback: Callback) -> None:
        if callback.client_session_id == "broken":
            raise RuntimeError
        await handler.handle(callback)

    app = make_app(tmp_path, fail_for_one_session, handlers_max=1)
    async with app:
        await post_signed(app, make_event_body("evt_1", client_session_id="broken"))
        await post_signed(app, make_event_body("evt_2", client_session_id="s2"))
        await handler.wait_until_handled(1)

    assert handler.handled == ["evt_2"]


async def test_a_full_inbox_refuses_until_there_is_room(tmp_path: Path) -> None:
    gate = asyncio.Event()
    handler = Handler()

    async def wait_for_gate(callback: Callback) -> None:
        await gate.wait()
        await handler.handle(callback)

    async with make_app(tmp_path, wait_for_gate, inbox=SQLiteInbox(tmp_path / "inbox.db", pending_max=2)) as app:
        answers = [await post_signed(app, make_event_body(f"evt_{number}")) for number in range(3)]
        repeated = await post_signed(app, make_event_body("evt_1"))
        gate.set()
        await handler.wait_until_handled(2)
        await app.wait_for(correlation_id="c1", timeout_seconds=WAIT_SECONDS)  # recorded as handled
        again = await post_signed(app, make_event_body("evt_2"))

    assert [answer.status_code for answer in answers] == [204, 204, 503]
    assert answers[2].headers["retry-after"] == "30"
    assert (repeated.status_code, again.status_code) == (204, 204)


async def test_large_callbacks_fill_the_inbox_by_their_bytes(tmp_path: Path) -> None:
    inbox = SQLiteInbox(tmp_path / "inbox.db", pending_bytes_max=1_000)
    app = make_app(tmp_path, never, inbox=inbox)
    await app.open()

    fits = await post_signed(app, make_event_body("evt_1", result="x" * 500))
    too_much = await post_signed(app, make_event_body("evt_2", result="x" * 500))
    await abandon(app)

    assert (fits.status_code, too_much.status_code) == (204, 503)


async def test_old_messages_are_forgotten_and_so_are_the_oldest_of_too_many(tmp_path: Path) -> None:
    async def receive(now: datetime, *event_ids: str, remembered_max: int = 100) -> list[str]:
        """Receive these, and return those that were handled; the last one is new."""
        handler = Handler()
        inbox = SQLiteInbox(tmp_path / "inbox.db", remembered_max=remembered_max, remembered_seconds=86_400)
        async with make_app(tmp_path, handler.handle, inbox=inbox, clock=lambda: now) as app:
            for event_id in event_ids:
                await post_signed(app, make_event_body(event_id, correlation_id=event_id), at=now)
            if event_ids:
                await app.wait_for(correlation_id=event_ids[-1], timeout_seconds=WAIT_SECONDS)
        return handler.tried

    await receive(NOW, "evt_1", "evt_2")
    assert await receive(NOW + timedelta(hours=23), "evt_1", "evt_3") == ["evt_3"]
    assert await receive(NOW + timedelta(hours=25), "evt_3", "evt_1") == ["evt_1"]
    await receive(NOW + timedelta(hours=26), "evt_4")
    assert len(read_rows(tmp_path, "SELECT * FROM messages")) == 3
    await receive(NOW + timedelta(hours=27), remembered_max=2)
    assert read_rows(tmp_path, "SELECT message_id FROM messages ORDER BY number") == [("evt_1",), ("evt_4",)]


async def test_a_waiter_in_the_next_process_gets_a_callback_that_had_no_waiter(tmp_path: Path) -> None:
    handler = Handler()
    async with make_app(tmp_path, handler.handle) as app:
        for number in (1, 2):
            await post_signed(app, make_event_body(f"evt_{number}", correlation_id=f"c{number}"))
        assert (await app.wait_for(correlation_id="c1", timeout_seconds=WAIT_SECONDS)).event_id == "evt_1"
        await handler.wait_until_handled(2)

    async with make_app(tmp_path, never) as app:
        assert (await app.wait_for(correlation_id="c2", timeout_seconds=WAIT_SECONDS)).event_id == "evt_2"
        with pytest.raises(TimeoutError):
            await app.wait_for(correlation_id="c1", timeout_seconds=0)

    assert read_rows(tmp_path, "SELECT count(body) FROM messages") == [(0,)]


async def test_after_its_end_a_receiver_asks_senders_to_come_again(tmp_path: Path) -> None:
    handler = Handler()
    app = make_app(tmp_path, handler.handle)
    async with app:
        pass
    assert (await post_signed(app, make_event_body("evt_1"))).status_code == 503

    async with app:
        assert (await post_signed(app, make_event_body("evt_1"))).status_code == 204
        await handler.wait_until_handled(1)


async def test_the_end_lets_a_running_handler_end(tmp_path: Path) -> None:
    entered, gate = asyncio.Event(), asyncio.Event()
    handled: list[str] = []

    async def wait_for_gate(callback: Callback) -> None:
        entered.set()
        await gate.wait()
        handled.append(callback.event_id)

    app = make_app(tmp_path, wait_for_gate)
    async with asyncio.timeout(WAIT_SECONDS):
        await post_signed(app, make_event_body("evt_1"))
        await post_signed(app, make_event_body("evt_2"))
        await entered.wait()
        closing_app = asyncio.create_task(app.aclose())
        await asyncio.wait([closing_app], timeout=0)
        gate.set()
        await closing_app

    assert handled == ["evt_1"]
    assert read_rows(tmp_path, "SELECT message_id FROM messages WHERE ended_at IS NULL") == [("evt_2",)]
