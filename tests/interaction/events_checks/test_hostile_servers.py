"""`ringback check-server` ends, and says why, whatever a server sends and for however long."""

import asyncio
import itertools
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, Final

import pytest
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ringback.cli.check_report import CheckVerdict
from ringback.cli.server_checks.callbacks import ReceivedPost
from ringback.cli.server_checks.cases import ImpossibleRun
from ringback.cli.server_checks.message_stream import FRAMES_MAX, MessageStream, StreamFrame
from ringback.cli.server_checks.run import RunOptions, ServerUnreachable, run_checks, select_cases
from ringback.cli.server_checks.sse import BUFFER_BYTES_MAX, SseFrame, SseParser, StreamTooLong
from ringback.cli.server_checks.subject import CheckTimeouts, EventChoice
from tests.support.events_server import EventsServer, serving_events
from tests.support.limits import WAIT_SECONDS
from tests.support.slow_bodies import send_slowly

DEEP_JSON: Final = b"[" * 200_000
DATA_LINE: Final = b"data: " + b"x" * 1000 + b"\n"
ALICE: Final = {"authorization": "Bearer alice"}
HANDSHAKES: Final = ("server/discover", "initialize")


def stream_comments() -> Response:
    """A byte now and then, so that no limit on the pause between two reads is reached."""
    return StreamingResponse(send_slowly(b": x\n"), media_type="text/event-stream")


def stream_endlessly(line: bytes) -> Response:
    async def stream() -> AsyncGenerator[bytes]:
        while True:
            yield line * 1000
            await asyncio.sleep(0)  # the client runs on the same loop

    return StreamingResponse(stream(), media_type="text/event-stream")


def stream_events_without_pause() -> Response:
    def encode(kind: str) -> bytes:
        frame = {"jsonrpc": "2.0", "method": f"notifications/events/{kind}", "params": {"cursor": "c"}}
        return f"data: {json.dumps(frame)}\n\n".encode()

    async def stream() -> AsyncGenerator[bytes]:
        yield encode("active")
        async for event in send_slowly(encode("event")):
            yield event

    return StreamingResponse(stream(), media_type="text/event-stream")


def send_deep_json() -> Response:
    return Response(DEEP_JSON, media_type="application/json")


def send_another_version_type() -> Response:
    result = {"jsonrpc": "2.0", "id": 1, "result": {"protocolVersion": {"a": "date"}, "capabilities": {}}}
    return Response(json.dumps(result), media_type="application/json")


def redirect_to_mail() -> Response:
    return Response(status_code=302, headers={"location": "mailto:nobody"})


def list_endless_minimum() -> Response:
    part = '{"type": "integer", "minimum": 1e999}'
    schema = '{"properties": {"a": ' + part + '}, "required": ["a"]}'
    event = '{"name": "note.added", "delivery": ["poll"], "payloadSchema": {}, "inputSchema": ' + schema + "}"
    body = '{"jsonrpc": "2.0", "id": 1, "result": {"events": [' + event + "]}}"
    return Response(body, media_type="application/json")


def open_unsendable_session() -> Response:
    result: dict[str, Any] = {"protocolVersion": "2025-11-25", "capabilities": {}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "result": result})
    return Response(body, media_type="application/json", headers={"mcp-session-id": "\xff"})


class HostileServer(EventsServer):
    def __init__(self, responses: Mapping[str, Callable[[], Response]], fault: str = "") -> None:
        super().__init__(fault)
        self._responses = responses

    async def respond(self, request: Request) -> Response:
        message = json.loads(await request.body() or b"{}")
        respond = self._responses.get(message.get("method"))
        return await super().respond(request) if respond is None else respond()


@pytest.mark.parametrize(
    ("respond", "reason"),
    [
        pytest.param(stream_comments, "no response within 0.2 s", id="comments-for-ever"),
        pytest.param(lambda: stream_endlessly(DATA_LINE), "more than .* bytes", id="an-event-without-end"),
        pytest.param(lambda: stream_endlessly(b":\n"), "more than .* comments", id="endless-comments"),
        pytest.param(send_deep_json, "without a JSON-RPC response", id="deep-json"),
    ],
)
async def test_a_hostile_handshake_ends_the_run_with_its_reason(respond: Callable[[], Response], reason: str) -> None:
    timeouts = CheckTimeouts(handshake_seconds=0.2 if respond is stream_comments else WAIT_SECONDS)
    async with asyncio.timeout(WAIT_SECONDS), serving_events(HostileServer(dict.fromkeys(HANDSHAKES, respond))) as url:
        with pytest.raises(ServerUnreachable, match=f"modern: .*{reason}.*legacy: .*{reason}"):
            await run_checks(RunOptions(url=url, timeouts=timeouts), select_cases(["capability"]))


async def test_a_handshake_with_members_of_other_types_ends_the_run_with_its_reason() -> None:
    server = HostileServer({"server/discover": send_deep_json, "initialize": send_another_version_type})
    async with serving_events(server) as url:
        with pytest.raises(ServerUnreachable, match="legacy: TypeError"):
            await run_checks(RunOptions(url=url), select_cases(["capability"]))


async def test_a_run_ends_although_the_server_never_finishes_an_unsubscribe() -> None:
    cases = select_cases(["ttl-omitted-means-default"])
    async with (
        asyncio.timeout(WAIT_SECONDS),
        serving_events(HostileServer({"events/unsubscribe": stream_comments})) as url,
    ):
        options = RunOptions(url=url, credentials=ALICE, timeouts=CheckTimeouts(close_seconds=0.2))
        results = await run_checks(options, cases)

    assert [each.verdict for each in results] == [CheckVerdict.PASSED]


async def test_a_server_without_events_that_never_finishes_its_list_ends_the_run() -> None:
    server = HostileServer({"events/list": stream_comments}, "no-events")
    async with asyncio.timeout(WAIT_SECONDS), serving_events(server) as url:
        options = RunOptions(url=url, timeouts=CheckTimeouts(reply_seconds=2.0))
        results = await run_checks(options, select_cases(["list-implemented"]))

    assert [each.verdict for each in results] == [CheckVerdict.FAILED]
    assert "no complete response within 2 s" in results[0].observed


@pytest.mark.parametrize(
    ("responses", "case"),
    [
        ({"events/poll": redirect_to_mail}, "poll-implemented"),
        ({"events/stream": redirect_to_mail}, "stream-implemented"),
        ({"events/list": list_endless_minimum}, "descriptor-input-schema"),
        ({"initialize": open_unsendable_session}, "capability-both-handshakes"),
    ],
)
async def test_what_no_request_can_be_made_from_fails_the_case_and_not_the_run(
    responses: Mapping[str, Callable[[], Response]], case: str
) -> None:
    async with asyncio.timeout(WAIT_SECONDS), serving_events(HostileServer(responses)) as url:
        results = await run_checks(RunOptions(url=url, credentials=ALICE), select_cases([case]))

    assert [each.verdict for each in results] in ([CheckVerdict.FAILED], [CheckVerdict.WARNED])


async def test_json_of_too_many_levels_fails_the_case_and_not_the_run() -> None:
    async with serving_events(HostileServer({"events/poll": send_deep_json})) as url:
        results = await run_checks(RunOptions(url=url, credentials=ALICE), select_cases(["poll-implemented"]))

    assert [each.verdict for each in results] == [CheckVerdict.FAILED]


async def test_a_stream_that_ends_at_once_is_reported_with_its_response() -> None:
    refuse = {"events/stream": lambda: Response("no such page", status_code=404)}
    async with serving_events(HostileServer(refuse)) as url:
        cases = select_cases(["stream-implemented", "stream-error-before-open"])
        results = await run_checks(RunOptions(url=url, credentials=ALICE), cases)

    seen = "HTTP 404 without a JSON-RPC response: 'no such page'"
    assert [(each.verdict, each.observed) for each in results] == [
        (CheckVerdict.FAILED, f"no notifications/events/active within 5 s, but {seen}"),
        (CheckVerdict.FAILED, seen),
    ]


async def test_a_stream_that_is_never_idle_needs_no_heartbeat() -> None:
    timeouts = CheckTimeouts(active_seconds=WAIT_SECONDS, heartbeat_seconds=0.2, silence_seconds=WAIT_SECONDS)
    async with serving_events(HostileServer({"events/stream": stream_events_without_pause})) as url:
        options = RunOptions(url=url, credentials=ALICE, timeouts=timeouts)
        (result,) = await run_checks(options, select_cases(["stream-heartbeat-required"]))

    assert result.verdict is CheckVerdict.UNTESTABLE
    assert "never idle" in result.observed


def refuse_at_a_quota() -> Response:
    error = {
        "code": -32013,
        "message": "ResourceExhausted: subscriptions",
        "data": {"limit": "subscriptions", "max": 1},
    }
    return Response(json.dumps({"jsonrpc": "2.0", "id": 1, "error": error}), media_type="application/json")


@pytest.mark.parametrize("refuse", [refuse_at_a_quota, lambda: Response(status_code=429)], ids=["quota", "http-429"])
@pytest.mark.parametrize(
    ("method", "case"),
    [
        ("events/list", "list-implemented"),
        ("events/subscribe", "subscribe-webhook-only"),
        ("events/poll", "poll-implemented"),
    ],
)
async def test_a_server_that_limits_requests_breaks_no_rule(
    method: str, case: str, refuse: Callable[[], Response]
) -> None:
    async with serving_events(HostileServer({method: refuse})) as url:
        options = RunOptions(url=url, credentials=ALICE, choice=EventChoice(name="note.added"))
        (result,) = await run_checks(options, select_cases([case]))

    assert result.verdict is CheckVerdict.UNTESTABLE, result.observed
    assert "limit" in result.observed


async def test_a_list_of_more_pages_than_a_run_reads_is_not_said_to_repeat_itself() -> None:
    numbers = itertools.count()

    def list_next_page() -> Response:
        result: dict[str, Any] = {"events": [], "nextCursor": f"page-{next(numbers)}"}
        return Response(json.dumps({"jsonrpc": "2.0", "id": 1, "result": result}), media_type="application/json")

    async with serving_events(HostileServer({"events/list": list_next_page})) as url:
        (result,) = await run_checks(RunOptions(url=url, credentials=ALICE), select_cases(["list-pagination"]))

    assert (result.verdict, result.observed) == (CheckVerdict.UNTESTABLE, "the list goes on after 100 pages")


class FailingPolls(EventsServer):
    """A server whose polls end without a readable response, unless nothing has happened since their cursor."""

    async def respond(self, request: Request) -> Response:
        message = json.loads(await request.body() or b"{}")
        cursor = message.get("params", {}).get("cursor")
        if message.get("method") == "events/poll" and cursor and cursor != self.log.cursor(len(self.log.events)):
            return redirect_to_mail()
        return await super().respond(request)


async def test_an_observation_that_fails_is_reported_by_the_checks_about_it_and_by_no_other() -> None:
    cases = select_cases(["occurrences", "poll", "cursor-resumes", "cursor-moves-past", "stream-resumes"])
    async with serving_events(FailingPolls()) as url:
        results = await run_checks(RunOptions(url=url, credentials=ALICE, emit_tool="emit"), cases)

    failed = {each.case.id: each.observed for each in results if each.verdict is CheckVerdict.FAILED}
    assert failed.keys() == {"cursor-resumes", "poll-has-more-completes"}
    assert all("the HTTP request failed: InvalidURL" in observed for observed in failed.values())


async def test_a_tool_that_ends_without_a_response_ends_the_run_instead_of_failing_each_check_about_events() -> None:
    async with serving_events(HostileServer({"tools/call": redirect_to_mail})) as url:
        options = RunOptions(url=url, credentials=ALICE, emit_tool="emit")
        with pytest.raises(ImpossibleRun, match=r'the tool "emit" that makes an event happen failed: .*InvalidURL'):
            await run_checks(options, select_cases(["occurrences"]))


class LostSubscribes(EventsServer):
    """Makes each subscription, and the response to it is unreadable."""

    async def respond(self, request: Request) -> Response:
        is_subscribe = json.loads(await request.body() or b"{}").get("method") == "events/subscribe"
        response = await super().respond(request)
        return redirect_to_mail() if is_subscribe else response


async def test_a_subscription_whose_response_was_lost_is_ended_after_the_run() -> None:
    server = LostSubscribes()
    async with serving_events(server) as url:
        await run_checks(RunOptions(url=url, credentials=ALICE), select_cases(["subscribe-webhook-only"]))

    assert [each.is_live for each in server.webhooks.by_key.values()] == [False]


def test_a_callback_of_too_many_levels_has_no_members() -> None:
    post = ReceivedPost(method="POST", target="/", headers=(), body=DEEP_JSON, at=0.0)

    assert (post.json, post.envelope_type) == ({}, None)


@pytest.mark.parametrize("line", [DATA_LINE, b"x" * 1000])
def test_an_event_or_line_without_end_is_refused_within_its_limit(line: bytes) -> None:
    parser = SseParser()

    def feed_for_ever() -> None:
        while True:
            parser.feed(line * 1000)

    with pytest.raises(StreamTooLong, match=str(BUFFER_BYTES_MAX)):
        feed_for_ever()


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_lines_of_a_stream_end_in_each_way_of_the_standard_wherever_chunks_end(end: bytes) -> None:
    parser, text = SseParser(), end.join([b": open", b"id: 1", b"data: a", b"data:b", b"", b"data", b"data", b"", b""])

    frames = [frame for byte in text for frame in parser.feed(bytes([byte]))]

    assert frames == [SseFrame("open", is_comment=True), SseFrame("a\nb"), SseFrame("\n")]


def test_data_of_earlier_events_does_not_count() -> None:
    parser, half = SseParser(), b"data:" + b"x" * (BUFFER_BYTES_MAX // 2) + b"\n\n"

    assert [len(parser.feed(half)) for _ in range(4)] == [1, 1, 1, 1]


async def test_a_wait_for_a_frame_looks_at_each_frame_once() -> None:
    stream, looked_at = MessageStream(1, 0.0), list[str | None]()
    waiting = asyncio.ensure_future(stream.wait_for(lambda frame: looked_at.append(frame.comment) is not None, 60.0))
    for comment in ("a", "b", "c"):
        stream.add(StreamFrame(0.0, comment=comment))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    stream.end()

    assert await waiting is None
    assert looked_at == ["a", "b", "c"]


def test_a_stream_keeps_a_bounded_number_of_frames() -> None:
    stream = MessageStream(1, 0.0)
    for _ in range(FRAMES_MAX):
        stream.add(StreamFrame(0.0, comment=""))

    with pytest.raises(StreamTooLong, match=str(FRAMES_MAX)):
        stream.add(StreamFrame(0.0, comment=""))
