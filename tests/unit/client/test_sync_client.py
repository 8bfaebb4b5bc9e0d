"""SyncRingbackClient with a mocked service: the same requests without `await`, from any thread."""

import asyncio
import gc
import json
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from ringback.client import NotFound, SyncRingbackClient
from ringback.client.sync.loop_thread import LoopThread, next_value
from ringback.schemas import examples
from tests.support.limits import WAIT_SECONDS

BASE_URL = "http://ringback.example:8090"
CALL = examples.FINISHED_CALL
Handler = Callable[[httpx.Request], httpx.Response]


def create_client(handler: Handler) -> SyncRingbackClient:
    return SyncRingbackClient(BASE_URL, api_key="rbk_x", transport=httpx.MockTransport(handler))


def answer_call(_: httpx.Request) -> httpx.Response:
    return httpx.Response(200, json=CALL)


def client_threads() -> int:
    return sum(thread.name == "ringback-client" for thread in threading.enumerate())


def test_a_call_is_started_and_its_result_read_without_await() -> None:
    requests: list[httpx.Request] = []

    def respond(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        if request.url.path.endswith("/result"):
            return httpx.Response(200, json={"content": []})
        return httpx.Response(202, json={"call": CALL, "resume_token": "token"})

    with create_client(respond) as ringback:
        started = ringback.start_call("git", "git_log", {"repo_path": "."}, correlation_id="c1")
        result = ringback.result(started.call.id)

    assert (started.call.id, result) == (CALL["id"], {"content": []})
    assert json.loads(requests[0].content)["correlation_id"] == "c1"
    assert requests[0].headers["authorization"] == "Bearer rbk_x"


async def test_it_works_where_an_event_loop_already_runs() -> None:
    with create_client(answer_call) as ringback:
        assert ringback.call("call_1").id == CALL["id"]


def test_an_error_is_raised_as_by_the_asynchronous_client() -> None:
    def respond(_: httpx.Request) -> httpx.Response:
        return httpx.Response(404, json={"detail": "Gone."}, headers={"content-type": "application/problem+json"})

    with create_client(respond) as ringback, pytest.raises(NotFound, match="Gone"):
        ringback.call("call_1")


def test_a_list_is_iterated_page_by_page_and_may_be_left_early() -> None:
    requests: list[httpx.Request] = []

    def respond(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(200, json={"calls": [CALL, CALL], "next_cursor": "next"})

    with create_client(respond) as ringback:
        for number, call in enumerate(ringback.calls(status="completed")):
            assert call.id == CALL["id"]
            if number == 2:
                break

    assert [dict(request.url.params) for request in requests] == [
        {"status": "completed"},
        {"status": "completed", "cursor": "next"},
    ]


def test_several_threads_use_one_client() -> None:
    with create_client(answer_call) as ringback, ThreadPoolExecutor(8) as threads:
        found = [call.id for call in threads.map(ringback.call, ["call_1"] * 32)]

    assert found == [CALL["id"]] * 32


def test_a_closed_client_says_so_and_has_ended_its_thread() -> None:
    before = client_threads()
    ringback = create_client(answer_call)
    assert client_threads() == before + 1
    ringback.close()
    ringback.close()

    assert client_threads() == before
    with pytest.raises(RuntimeError, match="closed"):
        ringback.call("call_1")


@pytest.mark.parametrize("is_started", [True, False], ids=["started", "never_started"])
def test_a_request_that_meets_the_end_of_the_client_in_another_thread_is_refused_and_does_not_wait_for_ever(
    monkeypatch: pytest.MonkeyPatch, *, is_started: bool
) -> None:
    """The loop has stopped, and is not closed yet. `is_started`: whether it still runs what is scheduled now."""
    thread = LoopThread()
    is_ending, is_scheduled = threading.Event(), threading.Event()
    loop = thread._loop  # pyright: ignore[reportPrivateUsage] - the moment between its stop and its close is seen nowhere else
    schedule = loop.call_soon_threadsafe

    def schedule_late(*args: Any) -> Any:
        handle = schedule(*args)
        if not is_started and is_ending.is_set():
            handle.cancel()
        is_scheduled.set()
        return handle

    async def generate() -> AsyncGenerator[int]:
        try:
            yield 1
        finally:  # closed with the loop
            is_ending.set()
            is_scheduled.wait(WAIT_SECONDS)

    async def wait_for_ever() -> None:
        await asyncio.Event().wait()

    values = generate()
    thread.run(next_value(values))
    monkeypatch.setattr(thread, "_refusal", lambda: None)  # it has looked before the client was closed
    with ThreadPoolExecutor(2) as threads:
        closing = threads.submit(thread.close)
        is_ending.wait(WAIT_SECONDS)
        monkeypatch.setattr(loop, "call_soon_threadsafe", schedule_late)
        late = threads.submit(thread.run, wait_for_ever())
        closing.result(WAIT_SECONDS)
        with pytest.raises(RuntimeError, match="closed"):
            late.result(WAIT_SECONDS)


class UnclosableTransport(httpx.AsyncBaseTransport):
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        raise AssertionError(request)

    async def aclose(self) -> None:
        raise OSError("the connections cannot be closed")


def test_a_client_whose_connections_cannot_be_closed_ends_its_thread() -> None:
    before = client_threads()
    ringback = SyncRingbackClient(BASE_URL, transport=UnclosableTransport())

    with pytest.raises(OSError, match="cannot be closed"):
        ringback.close()

    assert client_threads() == before


def test_a_client_that_is_dropped_ends_its_thread() -> None:
    before = client_threads()
    ringback: Any = create_client(answer_call)
    ringback.call("call_1")

    ringback = None
    gc.collect()

    assert client_threads() == before


def test_an_invalid_url_starts_no_thread() -> None:
    before = client_threads()

    with pytest.raises(ValueError, match="base URL"):
        SyncRingbackClient("ftp://ringback.example")

    assert client_threads() == before


def test_a_callback_that_would_wait_for_itself_gets_an_error() -> None:
    def respond(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"events": [], "cursor": "a", "truncated": True})

    with create_client(respond) as ringback:

        def read_health() -> None:
            ringback.healthy()

        with pytest.raises(RuntimeError, match="the client's own thread"):
            list(ringback.events(cursor="old", on_truncated=read_health))


INTERRUPTED = """
import asyncio, os, signal, httpx
from ringback.client import SyncRingbackClient

forever = asyncio.Event()

async def respond(request):
    os.kill(os.getpid(), signal.SIGINT)
    try:
        await forever.wait()
    finally:
        os.write(1, b"cancelled\\n")

ringback = SyncRingbackClient("http://ringback.example", transport=httpx.MockTransport(respond))
try:
    ringback.call("call_1")
except KeyboardInterrupt:
    os.write(1, b"interrupted\\n")
ringback.close()
os.write(1, b"closed\\n")
"""


def test_an_interrupt_ends_the_request_and_leaves_the_client_usable() -> None:
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", INTERRUPTED],
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )

    assert (ended.returncode, ended.stderr) == (0, "")
    assert sorted(ended.stdout.split()) == ["cancelled", "closed", "interrupted"]


def test_a_request_of_another_thread_ends_when_the_client_is_closed() -> None:
    is_inside = threading.Event()

    async def hold(_: httpx.Request) -> httpx.Response:
        is_inside.set()
        await asyncio.Event().wait()
        raise NotImplementedError

    ringback = SyncRingbackClient(BASE_URL, transport=httpx.MockTransport(hold))
    with ThreadPoolExecutor(1) as threads:
        request = threads.submit(ringback.call, "call_1")
        assert is_inside.wait(WAIT_SECONDS)
        ringback.close()

        with pytest.raises(RuntimeError, match="closed during the request"):
            request.result(WAIT_SECONDS)


def test_a_script_that_does_not_close_its_client_ends() -> None:
    program = "from ringback.client import SyncRingbackClient; ringback = SyncRingbackClient('http://127.0.0.1:1')"
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )

    assert (ended.returncode, ended.stderr) == (0, "")
