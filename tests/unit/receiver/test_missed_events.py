"""What did not arrive is read from the event log: at the start, and after a gap."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from ringback.client import Event
from ringback.receiver import Callback, FetchSince, Gap, ReceiverApp, SQLiteInbox, Terminated, inbox_file
from tests.support.limits import WAIT_SECONDS
from tests.support.signed_posts import NOW, SECRET, make_event_body, post_signed


def make_event(number: int, *, name: str = "call.finished") -> Event:
    data = {"call_id": f"call_{number}", "correlation_id": f"c{number}", "outcome": "result"}
    return Event(eventId=f"evt_{number}", name=name, timestamp=NOW, cursor=f"place-{number}", data=data)


class Log:
    """A log whose reader fails a given number of times."""

    def __init__(self, *events: Event, failures: int = 0) -> None:
        self.events = list(events)
        self.failures = failures
        self.cursors: list[str] = []

    async def read(self, cursor: str) -> AsyncIterator[Event]:
        self.cursors.append(cursor)
        if self.failures:
            self.failures -= 1
            raise ConnectionError("the service does not answer")
        place = int(cursor.removeprefix("place-"))
        for event in self.events:
            if int(event.event_id.removeprefix("evt_")) > place:
                yield event


class Handled:
    def __init__(self) -> None:
        self.callbacks: list[Callback] = []
        self.notices: list[Gap | Terminated] = []
        self.pauses: list[float] = []
        self._changed = asyncio.Event()

    @property
    def event_ids(self) -> list[str]:
        return [callback.event_id for callback in self.callbacks]

    async def handle(self, callback: Callback) -> None:
        self.callbacks.append(callback)
        self._changed.set()

    async def notice(self, notice: Gap | Terminated) -> None:
        self.notices.append(notice)

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await asyncio.sleep(0)

    async def wait_for(self, count: int) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while len(self.callbacks) < count:
                self._changed.clear()
                await self._changed.wait()

    def make_app(self, fetch_since: FetchSince, **options: Any) -> ReceiverApp:
        defaults: dict[str, Any] = {"on_callback": self.handle, "on_notice": self.notice, "clock": lambda: NOW}
        return ReceiverApp(SECRET, fetch_since=fetch_since, sleep=self.pause, **(defaults | options))


GAP = {"type": "gap", "cursor": "place-1"}


@pytest.mark.parametrize("durable", [False, True])
async def test_a_gap_is_filled_from_the_log_without_repeating_what_arrived(tmp_path: Path, *, durable: bool) -> None:
    handled, log = Handled(), Log(make_event(1), make_event(2), make_event(3))
    options = {"inbox": SQLiteInbox(tmp_path / "inbox.db")} if durable else {}

    async with handled.make_app(log.read, **options) as app:
        await post_signed(app, make_event_body("evt_2", correlation_id="c2"))
        for _ in range(2):
            assert (await post_signed(app, GAP, message_id="msg_gap_1")).status_code == 204
        await handled.wait_for(2)
        assert (await post_signed(app, make_event_body("evt_3"))).status_code == 204
        waited = await app.wait_for(correlation_id="c3", timeout_seconds=WAIT_SECONDS)

    assert sorted(handled.event_ids) == ["evt_2", "evt_3"]
    assert (waited.resume_token, waited.subscription_id, waited.outcome) == (None, None, "result")
    assert log.cursors == ["place-1"]
    assert handled.notices == [Gap(subscription_id="wh_1", cursor="place-1")]


@pytest.mark.parametrize("durable", [False, True])
async def test_an_event_that_arrived_under_an_id_of_its_message_is_not_repeated_from_the_log(
    tmp_path: Path, *, durable: bool
) -> None:
    handled, log = Handled(), Log(make_event(2), make_event(3))
    options = {"inbox": SQLiteInbox(tmp_path / "inbox.db")} if durable else {}

    async with handled.make_app(log.read, **options) as app:
        await post_signed(app, make_event_body("evt_2"), message_id="msg_event_1")
        await post_signed(app, GAP, message_id="msg_gap_1")
        await handled.wait_for(2)

    assert sorted(handled.event_ids) == ["evt_2", "evt_3"]


async def test_an_event_of_the_log_that_is_no_callback_does_not_keep_later_ones_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    malformed = make_event(2).model_copy(update={"data": {"call_id": 2}})
    handled, log = Handled(), Log(malformed, make_event(3))

    async with handled.make_app(log.read, start_cursor="place-1") as app:
        await handled.wait_for(1)
        assert (await post_signed(app, GAP, message_id="msg_gap_1")).status_code == 204

    assert handled.event_ids == ["evt_3"]
    assert "Missed event 'evt_2' is left out: call_id must be a string" in caplog.text


async def test_an_event_of_the_log_whose_handler_needs_the_result_is_given_up_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    handled, log = Handled(), Log(make_event(2), make_event(3))

    async def read_value(callback: Callback) -> None:
        if callback.event_id == "evt_2":
            callback.value_or_raise()
        await handled.handle(callback)

    async with handled.make_app(log.read, on_callback=read_value) as app:
        assert (await post_signed(app, GAP, message_id="msg_gap_1")).status_code == 204

    assert handled.event_ids == ["evt_3"]
    assert "GET /v1/calls/call_2/result" in caplog.text


async def test_a_gap_whose_events_cannot_be_fetched_comes_again() -> None:
    handled, log = Handled(), Log(make_event(2), failures=1)

    async with handled.make_app(log.read) as app:
        statuses = [(await post_signed(app, GAP, message_id="msg_gap_1")).status_code for _ in range(2)]

    assert statuses == [500, 204]
    assert handled.event_ids == ["evt_2"]


async def test_a_gap_is_filled_while_only_one_handler_may_run() -> None:
    handled, log = Handled(), Log(make_event(2), make_event(3))

    async with asyncio.timeout(WAIT_SECONDS), handled.make_app(log.read, handlers_max=1) as app:
        assert (await post_signed(app, GAP, message_id="msg_gap_1")).status_code == 204

    assert handled.event_ids == ["evt_2", "evt_3"]


async def test_the_next_start_fetches_what_was_missed_since_the_first_callback(tmp_path: Path) -> None:
    first, log = Handled(), Log()
    async with first.make_app(log.read, inbox=SQLiteInbox(tmp_path / "inbox.db")) as app:
        await post_signed(app, make_event_body("evt_8"))
        await first.wait_for(1)
    assert log.cursors == []

    second, log = Handled(), Log(*(make_event(number) for number in (7, 8, 9, 10)))
    inbox = SQLiteInbox(tmp_path / "inbox.db")
    async with asyncio.timeout(WAIT_SECONDS), second.make_app(log.read, inbox=inbox):
        await second.wait_for(2)
        while await inbox.read_cursor() != "place-10":  # noqa: ASYNC110 - the file announces no change
            await asyncio.sleep(0)
    assert second.event_ids == ["evt_9", "evt_10"]

    third, log = Handled(), Log(*(make_event(number) for number in (9, 10, 11)))
    async with third.make_app(log.read, inbox=SQLiteInbox(tmp_path / "inbox.db")):
        await third.wait_for(1)
    assert third.event_ids == ["evt_11"]
    assert log.cursors == ["place-10"]


async def test_a_start_that_the_service_does_not_answer_is_repeated() -> None:
    handled, log = Handled(), Log(make_event(1), failures=8)

    async with handled.make_app(log.read, start_cursor="place-0"):
        await handled.wait_for(1)

    assert handled.pauses == [1, 2, 4, 8, 16, 32, 60, 60]


@pytest.mark.parametrize("durable", [False, True])
async def test_a_service_that_breaks_off_again_and_again_is_read_on_from_where_it_broke_off(
    tmp_path: Path, *, durable: bool
) -> None:
    handled, log = Handled(), Log(*(make_event(number) for number in range(1, 8)))
    options = {"inbox": SQLiteInbox(tmp_path / "inbox.db")} if durable else {}

    async def read_three(cursor: str) -> AsyncIterator[Event]:
        count = 0
        async for event in log.read(cursor):
            if count == 3:
                raise ConnectionError("the proxy ends the response")
            yield event
            count += 1

    async with handled.make_app(read_three, start_cursor="place-0", **options):
        await handled.wait_for(7)

    assert log.cursors == ["place-0", "place-3", "place-6"]
    assert sorted(handled.event_ids) == [f"evt_{number}" for number in range(1, 8)]
    assert handled.pauses == [1, 1], "after progress, the pause is the shortest"


async def test_a_receiver_that_has_received_nothing_yet_reads_no_history(tmp_path: Path) -> None:
    handled, log = Handled(), Log(make_event(1))

    async with handled.make_app(log.read, inbox=SQLiteInbox(tmp_path / "inbox.db")) as app:
        await post_signed(app, make_event_body("evt_2"))
        await handled.wait_for(1)

    assert (log.cursors, handled.event_ids) == ([], ["evt_2"])


async def test_only_events_that_a_webhook_would_deliver_are_handled_unless_others_are_named() -> None:
    log = Log(make_event(1, name="call.progress"), make_event(2, name="call.input_required"), make_event(3))
    usual, named = Handled(), Handled()

    async with usual.make_app(log.read, start_cursor="place-0"):
        await usual.wait_for(2)
    async with named.make_app(log.read, start_cursor="place-0", fetched_names=["call.progress"]):
        await named.wait_for(1)

    assert (usual.event_ids, named.event_ids) == (["evt_2", "evt_3"], ["evt_1"])


async def test_fetched_events_wait_for_room_in_the_inbox(tmp_path: Path) -> None:
    handled, log = Handled(), Log(*(make_event(number) for number in range(1, 6)))
    inbox = SQLiteInbox(tmp_path / "inbox.db", pending_max=1)

    async with handled.make_app(log.read, start_cursor="place-0", inbox=inbox):
        await handled.wait_for(5)

    assert handled.event_ids == [f"evt_{number}" for number in range(1, 6)]


async def test_fetched_events_wait_for_room_on_the_inbox_s_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    handled, log = Handled(), Log(make_event(1), make_event(2))
    add, failures = inbox_file.InboxFile.add, [sqlite3.OperationalError("disk is full") for _ in range(3)]

    def fail_at_first(self: inbox_file.InboxFile, *arguments: Any, **options: Any) -> int | None:
        if failures:
            raise failures.pop()
        return add(self, *arguments, **options)

    monkeypatch.setattr(inbox_file.InboxFile, "add", fail_at_first)
    inbox = SQLiteInbox(tmp_path / "inbox.db")
    async with handled.make_app(log.read, start_cursor="place-0", inbox=inbox):
        await handled.wait_for(2)

    assert sorted(handled.event_ids) == ["evt_1", "evt_2"]
    assert handled.pauses == [30, 30, 30]
    assert "disk is full" in caplog.text


async def test_a_day_old_event_is_fetched_although_no_message_of_that_age_would_be_accepted() -> None:
    old = make_event(1).model_copy(update={"timestamp": NOW - timedelta(days=1)})
    handled = Handled()

    async with handled.make_app(Log(old).read, start_cursor="place-0"):
        await handled.wait_for(1)

    assert handled.callbacks[0].timestamp == NOW - timedelta(days=1)


# -- handlers that fail, without an inbox --


class FailingHandler(Handled):
    """Fails for some events, as often as the test says."""

    def __init__(self, **failures: int) -> None:
        super().__init__()
        self.failures = failures
        self.time = NOW

    async def handle(self, callback: Callback) -> None:
        if self.failures.get(callback.event_id, 0) > 0:
            self.failures[callback.event_id] -= 1
            raise ValueError(callback.event_id)
        await super().handle(callback)

    async def pause(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)
        await super().pause(seconds)


async def test_a_missed_event_whose_handler_fails_holds_up_no_other_session_and_is_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    handled, log = FailingHandler(evt_2=3), Log(*(make_event(number) for number in range(1, 5)))

    async with handled.make_app(log.read, start_cursor="place-0"):
        await handled.wait_for(4)

    assert handled.event_ids == ["evt_1", "evt_3", "evt_4", "evt_2"]
    assert handled.pauses == [1, 2, 4]
    assert log.cursors == ["place-0"]
    assert "evt_2" in caplog.text


async def test_later_missed_events_of_a_session_wait_for_the_one_whose_handler_fails() -> None:
    events = [make_event(number) for number in range(1, 4)]
    of_one_session = [event.model_copy(update={"data": {**event.data, "client_session_id": "s1"}}) for event in events]
    handled = FailingHandler(evt_1=1)

    async with handled.make_app(Log(*of_one_session).read, start_cursor="place-0"):
        await handled.wait_for(3)

    assert handled.event_ids == ["evt_1", "evt_2", "evt_3"]


async def test_a_missed_event_whose_handler_fails_for_four_days_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    handled, log = FailingHandler(evt_1=10**9), Log(make_event(1), make_event(2))
    app = handled.make_app(log.read, start_cursor="place-0")
    app._clock = lambda: handled.time  # pyright: ignore[reportPrivateUsage] - its pauses move it

    async with asyncio.timeout(WAIT_SECONDS), app:
        fetching = app._fetching  # pyright: ignore[reportPrivateUsage] - its end is the end of the tries
        assert fetching is not None
        await fetching

    assert handled.event_ids == ["evt_2"]
    assert "evt_1 is given up" in caplog.text
    assert sum(handled.pauses) >= 4 * 86_400


async def test_a_gap_with_an_event_whose_handler_fails_hands_over_the_others_and_comes_again() -> None:
    handled, log = FailingHandler(evt_2=1), Log(make_event(2), make_event(3))

    async with handled.make_app(log.read) as app:
        statuses = [(await post_signed(app, GAP, message_id="msg_gap_1")).status_code for _ in range(2)]

    assert statuses == [500, 204]
    assert handled.event_ids == ["evt_3", "evt_2"]
