"""SyncEventStream with a mocked service: the event log without `await`, from any thread, and Ctrl-C while it is read."""

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor

import httpx

from ringback.client import Event, SyncRingbackClient
from ringback.schemas import examples
from tests.support.limits import WAIT_SECONDS

BASE_URL = "http://ringback.example:8090"


def create_client(handler: Callable[[httpx.Request], httpx.Response]) -> SyncRingbackClient:
    return SyncRingbackClient(BASE_URL, api_key="rbk_x", transport=httpx.MockTransport(handler))


def answer_stream(*cursors: str) -> httpx.Response:
    async def body() -> AsyncIterator[bytes]:
        for cursor in cursors:
            event = {**examples.EVENT, "eventId": f"evt_{cursor}", "cursor": cursor}
            yield f"id: {cursor}\nevent: call.finished\ndata: {json.dumps(event)}\n\n".encode()

    return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=body())


def test_events_are_iterated_and_their_place_is_known() -> None:
    with (
        create_client(lambda _: answer_stream("a", "b", "c")) as ringback,
        ringback.stream_events(cursor="start") as stream,
    ):
        places = [stream.cursor, *(stream.cursor for _, event in zip(range(2), stream, strict=False) if event)]
        stream.close()
        rest = list(stream)

    assert (places, rest, stream.is_truncated) == (["start", "a", "b"], [], False)


INTERRUPTED_STREAM = """
import asyncio, os, signal, httpx
from ringback.client import SyncRingbackClient

forever = asyncio.Event()

class Silent(httpx.AsyncByteStream):
    async def __aiter__(self):
        yield b": hello\\n\\n"
        os.kill(os.getpid(), signal.SIGINT)
        await forever.wait()

    async def aclose(self):
        for _ in range(100):
            await asyncio.sleep(0)
        os.write(1, b"released\\n")

def respond(request):
    return httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=Silent())

try:
    with (
        SyncRingbackClient("http://ringback.example", transport=httpx.MockTransport(respond)) as ringback,
        ringback.stream_events() as stream,
    ):
        next(stream)
except KeyboardInterrupt:
    os.write(1, b"interrupted\\n")
"""


def test_an_interrupt_while_events_are_awaited_releases_the_stream_first() -> None:
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", INTERRUPTED_STREAM],
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )

    assert (ended.returncode, ended.stderr, ended.stdout) == (0, "", "released\ninterrupted\n")


INTERRUPTED_EVENT = """
import json, os, signal, threading, httpx
from ringback.client import SyncRingbackClient

is_interrupted = threading.Event()

def interrupt(number, frame):
    is_interrupted.set()
    raise KeyboardInterrupt

def build_frame(number):
    event = {"eventId": f"evt_{number}", "name": "call.finished", "timestamp": "2026-11-20T17:00:00Z",
             "cursor": f"c{number}", "data": {}}
    return f"id: c{number}\\nevent: call.finished\\ndata: {json.dumps(event)}\\n\\n".encode()

class TwoEvents(httpx.AsyncByteStream):
    async def __aiter__(self):
        yield build_frame(1)
        os.kill(os.getpid(), signal.SIGINT)
        is_interrupted.wait(60)
        yield build_frame(2)

def respond(request):
    return httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=TwoEvents())

signal.signal(signal.SIGINT, interrupt)
with (
    SyncRingbackClient("http://ringback.example", transport=httpx.MockTransport(respond)) as ringback,
    ringback.stream_events(cursor="start") as stream,
):
    print(next(stream).cursor)
    try:
        next(stream)
    except KeyboardInterrupt:
        print("interrupted after", stream.cursor)
    print(next(stream).cursor, stream.cursor)
"""


def test_an_interrupt_that_comes_together_with_an_event_does_not_lose_it() -> None:
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", INTERRUPTED_EVENT],
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )

    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines() == ["c1", "interrupted after c1", "c2 c2"]


BROKEN_OFF_STREAM = """
import asyncio, itertools, json, os, sys, httpx
from ringback.client import SyncRingbackClient

for case in itertools.product(("dropped", "kept"), ("closed", "forgotten")):
    process_id = os.fork()
    if process_id == 0:
        break  # this process goes on with its case, and ends as every other Python
    _, status = os.waitpid(process_id, 0)
    if status != 0:
        sys.exit(f"{case} ended with the status {status}")
else:
    sys.exit()

def frame(number):
    event = {"eventId": f"evt_{number}", "name": "call.finished", "timestamp": "2026-11-20T17:00:00Z",
             "cursor": f"c{number}", "data": {}}
    return f"id: c{number}\\nevent: call.finished\\ndata: {json.dumps(event)}\\n\\n".encode()

class Endless(httpx.AsyncByteStream):
    async def __aiter__(self):
        for number in range(1000):
            yield frame(number)
            await asyncio.sleep(0)

    async def aclose(self):
        for _ in range(10):
            await asyncio.sleep(0)

def respond(request):
    return httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=Endless())

ringback = SyncRingbackClient("http://ringback.example", transport=httpx.MockTransport(respond))
if case[0] == "dropped":
    for event in ringback.stream_events():
        break
else:
    stream = ringback.stream_events()
    next(stream)
if case[1] == "closed":
    ringback.close()
"""


def test_a_stream_that_is_broken_off_prints_nothing_at_the_end() -> None:
    """Whether the stream is dropped or kept, and whether its client is closed or forgotten."""
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", BROKEN_OFF_STREAM],
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )

    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_stream_that_another_thread_reads_ends_when_it_is_closed() -> None:
    is_inside = threading.Event()

    async def body() -> AsyncIterator[bytes]:
        yield b": hello\n\n"
        is_inside.set()
        await asyncio.Event().wait()

    def respond(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=body())

    with create_client(respond) as ringback, ThreadPoolExecutor(1) as threads:
        stream = ringback.stream_events()
        reading = threads.submit(list[Event], stream)
        assert is_inside.wait(WAIT_SECONDS)
        stream.close()

        assert reading.result(WAIT_SECONDS) == []


def test_a_stream_is_closed_after_its_client_without_an_error() -> None:
    ringback = create_client(lambda _: answer_stream("a"))
    with ringback.stream_events() as stream:
        next(stream)
        ringback.close()

    stream.close()
