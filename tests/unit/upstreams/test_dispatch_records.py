"""Only the tools/call of a call has its dispatch record: a refusal in the middle of a task or a stream takes nothing back."""

import asyncio

import httpx2
import pytest

from ringback.domain import jsontext
from ringback.upstreams.dispatch_records import (
    DISPATCH_RECORD,
    enter_dispatch_record,
    get_dispatch_record,
    leave_dispatch_record,
)
from ringback.upstreams.faults import FaultCounter
from ringback.upstreams.transports.guarded_http import GuardedTransport
from ringback.upstreams.transports.large_results import LargeResults
from tests.support.clock import FakeClock

URL = "https://mcp.example/mcp"


class Record:
    async def record_unsent(self) -> None: ...

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
