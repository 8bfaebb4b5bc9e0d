"""Only the tools/call of a call has its dispatch record: a refusal in the middle of a task or a stream takes nothing back."""

import asyncio

import httpx2
import pytest

from ringback.domain import jsontext
from ringback.upstreams import dispatch_records
from ringback.upstreams.dispatch_records import (
    DISPATCH_RECORD,
    enter_dispatch_record,
    get_dispatch_record,
    leave_dispatch_record,
    recording_slow_wait,
)
from ringback.upstreams.faults import FaultCounter
from ringback.upstreams.transports.guarded_http import GuardedTransport
from ringback.upstreams.transports.large_results import LargeResults
from tests.support.clock import FakeClock

URL = "https://mcp.example/mcp"


class Record:
    is_unsent = False

    async def record_unsent(self) -> None: ...

    async def wait_unsent(self, seconds: float) -> None: ...

    async def record_dispatch(self) -> None: ...


class Refusing(httpx2.AsyncBaseTransport):
    def __init__(self) -> None:
        self.records: list[object] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.records.append(request.extensions.get(DISPATCH_RECORD))
        return httpx2.Response(401)


@pytest.mark.parametrize(
    ("verb", "message", "has_record"),
    [
        ("POST", {"id": 1, "method": "tools/call"}, True),
        ("POST", {"id": 1, "method": "tasks/get"}, False),
        ("POST", {"id": 1, "result": {}}, False),
        ("POST", {"method": "notifications/cancelled"}, False),
        ("GET", None, False),
    ],
)
async def test_only_a_tool_call_has_the_record_of_its_call(
    verb: str, message: dict[str, object] | None, *, has_record: bool
) -> None:
    inner, record = Refusing(), Record()
    transport = GuardedTransport(inner, faults=FaultCounter("git", clock=FakeClock()), large_results=LargeResults())
    enter_dispatch_record(record)

    await transport.handle_async_request(httpx2.Request(verb, URL, content=jsontext.dumps(message)))
    assert inner.records == [record if has_record else None]


async def test_a_session_that_a_call_opens_forgets_the_call() -> None:
    record = Record()
    enter_dispatch_record(record)

    async def run_session() -> object:
        leave_dispatch_record()
        return get_dispatch_record()

    assert await asyncio.create_task(run_session()) is None
    assert get_dispatch_record() is record


class SlowRecord:
    """Its commit of `record_unsent` ends once the test lets it."""

    is_unsent = False

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.has_begun, self.may_end = asyncio.Event(), asyncio.Event()

    async def record_unsent(self) -> None:
        self.has_begun.set()
        await self.may_end.wait()
        self.steps.append("unsent")

    async def wait_unsent(self, seconds: float) -> None: ...

    async def record_dispatch(self) -> None: ...


@pytest.mark.parametrize("failure", [None, OSError("no connection")])
async def test_a_slow_wait_ends_after_its_record_so_that_a_dispatch_is_committed_later(
    monkeypatch: pytest.MonkeyPatch, failure: OSError | None
) -> None:
    monkeypatch.setattr(dispatch_records, "SLOW_SECONDS", 0.0)
    record = SlowRecord()

    async def wait_slowly() -> None:
        async with recording_slow_wait(record):
            await record.has_begun.wait()
            asyncio.get_running_loop().call_soon(record.may_end.set)
            if failure is not None:
                raise failure

    (ended,) = await asyncio.gather(wait_slowly(), return_exceptions=True)
    assert (ended, record.steps) == (failure, ["unsent"])


async def test_a_quick_wait_records_nothing() -> None:
    record = SlowRecord()
    async with recording_slow_wait(record):
        await asyncio.sleep(0)
    assert not record.has_begun.is_set()
