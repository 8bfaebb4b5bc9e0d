"""Floods of one upstream: how many of its messages are decoded in a second of the clock, and what its calls still get."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import nullcontext
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
from mcp_types import RequestId

from ringback.domain.upstreams import Listing, UpstreamChange
from ringback.upstreams import message_flow
from ringback.upstreams.catalog.catalog_refresher import RELIST_INTERVAL_SECONDS_MAX, CatalogRefresher
from ringback.upstreams.faults import Fault, FaultCounter
from ringback.upstreams.message_flow import MessageFlow, StreamFlow
from ringback.upstreams.transports.event_stream import CheckedEventStream
from ringback.upstreams.transports.guarded_http import GuardedTransport
from ringback.upstreams.transports.large_results import LargeResults
from ringback.upstreams.transports.paced_streams import PacedStreams
from ringback.upstreams.transports.progress_floods import leave_out_outdated
from tests.support.clock import FakeClock

FLOOD = 15_000
CHUNK_BYTES = 64 * 1024
RESULT: dict[str, Any] = {"jsonrpc": "2.0", "id": 7, "result": {"content": []}}


def encode(message: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(message).encode() + b"\n\n"


def progress(number: int) -> bytes:
    params = {"progressToken": 7, "progress": number, "message": "m" * 400}
    return encode({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})


def log_message(number: int) -> bytes:
    return encode({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": number}})


def odd_notification(number: int) -> bytes:
    """Its method does not come first, so only decoding shows what it is."""
    return encode({"params": {"data": number}, "jsonrpc": "2.0", "method": "notifications/message"})


def question(number: int) -> bytes:
    return encode({"jsonrpc": "2.0", "id": number, "method": "elicitation/create", "params": {"message": "q"}})


class ChunkedStream(httpx2.AsyncByteStream):
    def __init__(self, events: Iterable[bytes], *, chunk_bytes: int, before_chunk: Callable[[], object]) -> None:
        self._events = events
        self._chunk_bytes = chunk_bytes
        self._before_chunk = before_chunk

    async def __aiter__(self) -> AsyncIterator[bytes]:
        chunk = b""
        for event in self._events:
            chunk += event
            if len(chunk) >= self._chunk_bytes:
                self._before_chunk()
                yield chunk
                chunk = b""
        yield chunk


class Upstream:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.faults = FaultCounter("noisy", clock=self.clock)
        self.refused: list[RequestId] = []
        self.takes_refusals = True
        self.chunk_bytes = CHUNK_BYTES
        self.before_chunk: Callable[[], object] = int

    async def _refuse(self, request_id: RequestId) -> bool:
        self.refused.append(request_id)
        return self.takes_refusals

    def open_stream(self, events: Iterable[bytes]) -> CheckedEventStream:
        return CheckedEventStream(
            ChunkedStream(events, chunk_bytes=self.chunk_bytes, before_chunk=self.before_chunk),
            request_id=7,
            limit=1_000_000,
            faults=self.faults,
            large_results=LargeResults(),
            paced_streams=PacedStreams(),
            refuse_request=self._refuse,
        )

    async def receive(self, events: Iterable[bytes]) -> list[tuple[float, Any]]:
        """What the session gets, with the times."""
        return [
            (self.clock.monotonic(), json.loads(event.removeprefix(b"data: ")))
            async for event in self.open_stream(events)
        ]


def count_in_busiest_second(received: list[tuple[float, Any]]) -> int:
    """The most messages of any second after the first two, in which the bursts are used up."""
    counts = dict[int, int]()
    for at, _ in received:
        counts[int(at)] = counts.get(int(at), 0) + 1
    return max((count for second, count in counts.items() if second >= 2), default=0)


async def test_a_progress_flood_is_coalesced_and_its_call_ends_with_the_latest_progress_and_the_result() -> None:
    upstream = Upstream()
    received = await upstream.receive([*map(progress, range(FLOOD)), encode(RESULT)])

    numbers = [message["params"]["progress"] for _, message in received[:-1]]
    assert received[-1][1] == RESULT
    assert (numbers[0], numbers[-1]) == (0, FLOOD - 1)
    assert all(earlier < later for earlier, later in pairwise(numbers))
    limit = message_flow.STREAM_FORWARD_LIMIT
    assert len(numbers) <= limit.burst + limit.per_second * upstream.clock.monotonic() + 2
    assert upstream.faults.counts == {str(Fault.DROPPED): FLOOD - len(numbers)}


LONG_FLOOD = 10_000
QUESTIONS = 600


def short_progress(number: int) -> bytes:
    params = {"progressToken": 7, "progress": number}
    return encode({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})


def frame_plainly(event: bytes) -> bytes:
    return event


def frame_with_crlf(event: bytes) -> bytes:
    return b"event: message\r\n" + event.replace(b"\n", b"\r\n")


def frame_with_cr(event: bytes) -> bytes:
    return b"event: message\r" + event.replace(b"\n", b"\r")


def frame_with_id(event: bytes) -> bytes:
    return b"id: 12_5\nevent: message\n" + event


@pytest.mark.parametrize("frame", [frame_plainly, frame_with_crlf, frame_with_cr, frame_with_id])
async def test_a_result_waits_neither_for_the_clock_nor_for_decoding_behind_ten_thousand_progress_messages(
    frame: Callable[[bytes], bytes],
) -> None:
    upstream = Upstream()
    events = [*map(short_progress, range(LONG_FLOOD)), log_message(1), encode(RESULT)]
    received = [event async for event in upstream.open_stream(map(frame, events))]

    *earlier, last_progress, log, result = [json.loads(event.partition(b"data: ")[2]) for event in received]
    assert (last_progress["params"]["progress"], log["method"], result) == (
        LONG_FLOOD - 1,
        "notifications/message",
        RESULT,
    )
    assert upstream.clock.monotonic() < 2
    limit = message_flow.STREAM_FORWARD_LIMIT
    assert len(earlier) <= limit.burst + 2 * limit.per_second
    assert upstream.faults.counts[str(Fault.DROPPED)] == LONG_FLOOD - len(earlier) - 1


async def test_progress_in_large_chunks_is_left_out_though_a_permit_is_free_when_each_of_them_arrives() -> None:
    upstream, event_count, chunk_count = Upstream(), 2 * FLOOD, 0
    upstream.chunk_bytes = 6 * CHUNK_BYTES
    pause_seconds = 2 / message_flow.STREAM_FORWARD_LIMIT.per_second
    upstream.faults.flow.intake.consume_permit(0, int(message_flow.INTAKE_LIMIT.burst) - 10_000)

    def free_permit() -> None:
        nonlocal chunk_count
        chunk_count += 1
        upstream.clock.advance(pause_seconds)

    upstream.before_chunk = free_permit
    received = await upstream.receive([*map(short_progress, range(event_count)), encode(RESULT)])

    limit = message_flow.STREAM_FORWARD_LIMIT
    assert chunk_count >= 6
    assert limit.burst + chunk_count <= len(received) <= limit.burst + 4 * chunk_count
    assert received[-1][1] == RESULT
    assert upstream.clock.monotonic() == pytest.approx(
        pause_seconds * chunk_count
    )  # nothing but these: reading waits for no permit
    assert upstream.faults.counts == {str(Fault.DROPPED): event_count + 1 - len(received)}


async def test_outdated_progress_of_one_token_leaves_that_of_another_and_all_log_messages() -> None:
    def other_progress(number: int) -> bytes:
        return short_progress(number).replace(b'"progressToken": 7', b'"progressToken": 8')

    events = [
        event for number in range(20) for event in (short_progress(number), other_progress(number), log_message(number))
    ]
    rest, count = leave_out_outdated(b"".join([b"data: the end of an event\n\n", *events, b"data: the begin"]))

    expected = [*map(log_message, range(19)), short_progress(19), other_progress(19), log_message(19)]
    assert rest == b"".join([b"data: the end of an event\n\n", *expected, b"data: the begin"])
    assert count == 2 * 19


@pytest.mark.parametrize("make", [log_message, odd_notification])
async def test_other_floods_are_read_slowly_and_pass_on_few_messages_a_second(make: Any) -> None:
    upstream = Upstream()
    received = await upstream.receive([*map(make, range(3_000)), encode(RESULT)])

    assert received[-1][1] == RESULT
    limit = message_flow.STREAM_FORWARD_LIMIT
    buffered = 2 * int(message_flow.STREAM_FORWARD_LIMIT.burst)  # passed on before the result, at once
    assert count_in_busiest_second(received[: -buffered - 1]) <= limit.per_second + 1
    assert upstream.faults.counts.keys() & {"slowed", "dropped_notifications"}


@pytest.mark.parametrize("takes_refusals", [True, False])
async def test_questions_above_the_limit_are_refused_at_once_and_the_result_behind_them_arrives(
    takes_refusals: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    upstream = Upstream()
    upstream.takes_refusals = takes_refusals
    received = await upstream.receive([*map(question, range(QUESTIONS)), encode(RESULT)])

    asked = {message["id"] for _, message in received[:-1]}
    assert received[-1][1] == RESULT
    assert upstream.clock.monotonic() < 5
    limit = message_flow.REQUEST_LIMIT
    assert limit.burst <= len(asked) <= limit.burst + 5 * limit.per_second + message_flow.REQUEST_SHARE.burst
    assert asked.isdisjoint(upstream.refused)
    assert len(upstream.refused) == (QUESTIONS - len(asked) if takes_refusals else 1)


async def test_a_refusal_over_http_is_posted_in_the_session_of_the_stream() -> None:
    posted: list[httpx2.Request] = []

    async def respond(request: httpx2.Request) -> httpx2.Response:
        posted.append(request)
        if len(posted) > 1:
            return httpx2.Response(202)
        events = b"".join([*map(question, range(200)), encode(RESULT)])
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=events)

    faults = FaultCounter("noisy", clock=FakeClock())
    transport = GuardedTransport(httpx2.MockTransport(respond), faults=faults, large_results=LargeResults())
    async with httpx2.AsyncClient(transport=transport) as client:
        call = {"jsonrpc": "2.0", "id": 7, "method": "tools/call"}
        response = await client.post("http://noisy.test/mcp", json=call, headers={"mcp-session-id": "s1"})

    refusals = [json.loads(request.content) for request in posted[1:]]
    assert response.content.endswith(encode(RESULT))
    assert 0 < len(refusals) == 200 - response.content.count(b"elicitation/create")
    assert all(refusal["error"]["code"] == -32000 for refusal in refusals)
    assert {request.headers["mcp-session-id"] for request in posted} == {"s1"}


async def test_comments_and_blank_lines_pass_nothing_on_and_are_read_slowly() -> None:
    upstream = Upstream()
    lines = 2 * message_flow.INTAKE_LIMIT.burst
    received = await upstream.receive([b": x\n" * 1000 + b"\n" * 1000] * int(lines / 2000) + [encode(RESULT)])

    assert [message for _, message in received] == [RESULT]
    assert upstream.clock.monotonic() >= message_flow.INTAKE_LIMIT.burst / message_flow.INTAKE_LIMIT.per_second - 1


async def test_all_streams_of_an_upstream_share_one_rate_and_a_quiet_stream_does_not_wait_for_it() -> None:
    upstream = Upstream()
    for _ in range(6):
        await upstream.receive(map(progress, range(1_000)))
    flow, before = upstream.faults.flow, upstream.clock.monotonic()
    assert flow.forwarded.wait_seconds(before) > 0

    received = await upstream.receive([*map(progress, range(10)), question(1), encode(RESULT)])

    assert [message.get("method", "result").rpartition("/")[2] for _, message in received] == [
        *["progress"] * 10,
        "create",
        "result",
    ]
    assert upstream.clock.monotonic() == before


async def test_reading_beyond_the_rate_of_the_upstream_waits_for_streams_that_need_much() -> None:
    clock = FakeClock()
    flow = MessageFlow(clock=clock)
    noisy: list[StreamFlow] = [flow.open_stream() for _ in range(10)]
    for _ in range(100):
        for each in noisy:
            await each.take_in(1_000)
    read = 1_000 * 1_000 - message_flow.INTAKE_LIMIT.burst
    assert clock.monotonic() >= 0.9 * read / message_flow.INTAKE_LIMIT.per_second
    before = clock.monotonic()
    assert not await flow.open_stream().take_in(1_000)
    assert clock.monotonic() == before


async def test_floods_of_several_streams_are_read_slice_by_slice_in_turns_of_the_event_loop() -> None:
    upstream = Upstream()
    read: list[int] = [0] * 5

    async def receive(stream: int) -> None:
        def count_lines() -> Iterable[bytes]:
            for _ in range(40):
                read[stream] += 1
                yield b": x\n" * message_flow.SLICE_LINES

        upstream.chunk_bytes = 1
        await upstream.receive(count_lines())

    tasks = [asyncio.create_task(receive(stream)) for stream in range(5)]
    for _ in range(3):
        await asyncio.sleep(0)  # each has begun
    while not all(task.done() for task in tasks):
        before = sum(read)
        await asyncio.sleep(0)
        assert sum(read) - before <= message_flow.SLICES_IN_TURN
        assert max(read) - min(read) <= 2

    assert read == [40] * 5


async def test_a_flood_is_one_warning_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    upstream = Upstream()
    await upstream.receive(map(progress, range(2_000)))
    upstream.faults.increment(Fault.SLOWED)
    assert [record.message for record in caplog.records] == ["upstream.flooding"]
    upstream.clock.advance(60)
    upstream.faults.increment(Fault.SLOWED)
    assert len(caplog.records) == 2


async def test_an_event_of_several_data_lines_keeps_them() -> None:
    lines = json.dumps(RESULT, indent=1).encode().replace(b"\n", b"\ndata: ")
    (text,) = [event async for event in Upstream().open_stream([b"data: " + lines + b"\n\n"])]
    data = b"\n".join(line.removeprefix(b"data: ") for line in text.splitlines())
    assert json.loads(data) == RESULT


async def test_a_storm_of_changed_lists_fetches_them_less_and_less_often() -> None:
    clock, fetched_at = FakeClock(), list[float]()

    async def report_changes() -> AsyncIterator[UpstreamChange]:
        while clock.monotonic() < 3_600:
            yield UpstreamChange(upstream="noisy", listing=Listing.TOOLS)
        clock.advance(100)
        yield UpstreamChange(upstream="noisy", listing=Listing.TOOLS)

    class CountingRefresher(CatalogRefresher):
        async def refresh_listing(self, listing: Listing, *, age_seconds_max: float) -> bool:
            fetched_at.append(clock.monotonic())
            return listing is Listing.TOOLS and age_seconds_max > 0

    cache: Any = SimpleNamespace(subscribe_changes=lambda: nullcontext(report_changes()))
    unused: Any = None
    refresher = CountingRefresher(
        cache, upstream="noisy", clock=clock, faults=unused, replaced=unused, open_listing_session=unused
    )
    await refresher.refresh_changed_listings()

    assert fetched_at[:4] == [0, 1, 3, 7]
    assert len(fetched_at) <= 3_600 / RELIST_INTERVAL_SECONDS_MAX + 8
