"""The reader of the event stream: what it stores without events, and how long it waits for a service that is busy."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from ringback.cli.durable_listener.event_reader import CURSOR_SAVE_SECONDS, EventReader, build_callback_body
from ringback.cli.durable_listener.inbox import Inbox, open_inbox
from ringback.cli.durable_listener.state_file import EventSelection
from ringback.client import ConnectionFailed, Event, RingbackClient
from ringback.client.event_stream import RECONNECT_BACKOFF, reconnect_delay
from ringback.client.problems import build_problem
from tests.support.clock import START, ManualClock
from tests.support.limits import WAIT_SECONDS

SELECTION = EventSelection(url="http://127.0.0.1:8090", names=("call.finished", "deploy.finished"))


class QuietStream:
    """A stream of the service that heartbeats advance, and that ends or fails when the test says."""

    def __init__(self, cursor: str | None) -> None:
        self.cursor = cursor
        self.items: asyncio.Queue[Event | Exception] = asyncio.Queue()

    def __aiter__(self) -> "QuietStream":
        return self

    async def __anext__(self) -> Event:
        item = await self.items.get()
        if isinstance(item, Exception):
            raise item
        self.cursor = item.cursor
        return item

    async def aclose(self) -> None: ...


class QuietClient:
    def __init__(self) -> None:
        self.streams: list[QuietStream] = []
        self.opened = asyncio.Event()

    def stream_events(self, *, cursor: str | None, **_: Any) -> QuietStream:
        self.streams.append(stream := QuietStream(cursor))
        self.opened.set()
        return stream

    async def wait_for_stream(self) -> QuietStream:
        async with asyncio.timeout(WAIT_SECONDS):
            await self.opened.wait()
        self.opened.clear()
        return self.streams[-1]


class RecordingClock(ManualClock):
    """Lets the test wait until a task sleeps."""

    def __init__(self) -> None:
        super().__init__()
        self.sleeps: asyncio.Queue[float] = asyncio.Queue()

    def sleep(self, seconds: float) -> Any:
        self.sleeps.put_nowait(seconds)
        return super().sleep(seconds)

    async def wait_for_sleep(self, seconds: float) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while await self.sleeps.get() != seconds:
                pass


@asynccontextmanager
async def reading(folder: Path, client: QuietClient, clock: RecordingClock) -> AsyncGenerator[Inbox]:
    async def has_room() -> None: ...

    async with open_inbox(folder / "inbox.db") as inbox:
        await inbox.write_settings({"cursor": "c0"})
        reader = EventReader(
            cast("RingbackClient", client),
            inbox,
            SELECTION,
            clock=clock,
            report=lambda _: None,
            add_callback=lambda _: None,
            wait_for_space=has_room,
        )
        running = asyncio.create_task(reader.run())
        try:
            yield inbox
        finally:
            running.cancel()
            await asyncio.wait([running])


def make_event(number: int) -> Event:
    return Event(eventId=f"evt_{number}", name="call.finished", timestamp=START, cursor=f"c{number}", data={})


async def wait_for_cursor(inbox: Inbox, cursor: str) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while await inbox.read_setting("cursor") != cursor:  # noqa: ASYNC110 - the file announces no change
            await asyncio.sleep(0)


async def test_the_place_of_a_stream_without_matching_events_is_stored_once_a_minute(tmp_path: Path) -> None:
    """Otherwise the service has forgotten that place after weeks, and the listener reports a loss that did not happen."""
    client, clock = QuietClient(), RecordingClock()
    async with reading(tmp_path, client, clock) as inbox:
        stream = await client.wait_for_stream()
        await clock.wait_for_sleep(CURSOR_SAVE_SECONDS)
        stream.cursor = "c500"
        clock.advance(CURSOR_SAVE_SECONDS)
        await wait_for_cursor(inbox, "c500")


async def test_the_place_of_an_event_that_is_not_stored_yet_is_not_stored_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, clock = QuietClient(), RecordingClock()
    storing, may_store = asyncio.Event(), asyncio.Event()
    read_handled_cursor = Inbox.read_handled_cursor

    async def read_when_allowed(self: Inbox) -> str | None:
        storing.set()
        await may_store.wait()
        return await read_handled_cursor(self)

    monkeypatch.setattr(Inbox, "read_handled_cursor", read_when_allowed)
    async with reading(tmp_path, client, clock) as inbox:
        stream = await client.wait_for_stream()
        await clock.wait_for_sleep(CURSOR_SAVE_SECONDS)
        stream.items.put_nowait(make_event(1))
        await asyncio.wait_for(storing.wait(), WAIT_SECONDS)
        clock.advance(CURSOR_SAVE_SECONDS)
        await clock.wait_for_sleep(CURSOR_SAVE_SECONDS)
        assert await inbox.read_setting("cursor") == "c0"
        may_store.set()
        await wait_for_cursor(inbox, "c1")


@pytest.mark.parametrize("call_id", ["", "call_1", 7])
async def test_an_event_of_yours_may_have_a_call_id_that_is_none_of_ringback_s(tmp_path: Path, call_id: Any) -> None:
    """A resume token for it is not asked for: the client would refuse an empty id, and that would end the listener."""
    client, clock = QuietClient(), RecordingClock()
    event = make_event(1).model_copy(update={"name": "deploy.finished", "data": {"call_id": call_id}})
    async with reading(tmp_path, client, clock) as inbox:
        (await client.wait_for_stream()).items.put_nowait(event)
        await wait_for_cursor(inbox, "c1")

    body = json.loads(build_callback_body(event, service_url=SELECTION.url, resume_token=None, cursor=None))
    assert body["data"] == {"call_id": call_id}


async def test_a_stream_that_fails_is_opened_again_at_its_own_place_after_the_pause_of_the_service(
    tmp_path: Path,
) -> None:
    client, clock = QuietClient(), RecordingClock()
    async with reading(tmp_path, client, clock):
        stream = await client.wait_for_stream()
        stream.cursor = "c500"
        stream.items.put_nowait(build_problem(503, {}, retry_after_seconds=17.0))
        await clock.wait_for_sleep(17.0)
        clock.advance(17.0)
        assert (await client.wait_for_stream()).cursor == "c500"


@pytest.mark.parametrize(
    ("error", "failures", "pause"),
    [
        (None, 0, 1.0),
        (ConnectionFailed("refused"), 2, 4.0),
        (build_problem(429, {}, retry_after_seconds=9.0), 1, 9.0),
        (build_problem(429, {}, retry_after_seconds=9.0), 4, 16.0),
        (build_problem(503, {}, retry_after_seconds=None), 1, 2.0),
        (build_problem(503, {}, retry_after_seconds=1e9), 1, RECONNECT_BACKOFF.longest_seconds),
    ],
)
def test_a_pause_is_at_least_as_long_as_the_service_asks_for(
    error: Exception | None, failures: int, pause: float
) -> None:
    assert reconnect_delay(error, failures) == pause
