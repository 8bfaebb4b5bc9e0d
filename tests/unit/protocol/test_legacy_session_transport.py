"""Legacy sessions that outlive connections: a resumable session is not ended, and no wait for it is endless."""

from collections.abc import AsyncIterator

import httpx2
import pytest
from mcp_types import ErrorData

from ringback.domain import jsontext
from ringback.protocol.errors import LoginRequired, RequestFailed, ResponseLost, SessionGone
from ringback.protocol.legacy_session_transport import (
    RETRY_SECONDS_MAX,
    SESSION_ID_LENGTH_MAX,
    LegacySessionTransport,
)
from ringback.protocol.sessions import SESSION_HEADER
from ringback.protocol.transport_errors import to_request_error

URL = "http://upstream.example/mcp"
EVENTS = {"content-type": "text/event-stream"}
RESUMING_REQUEST = {"last-event-id": "7"}


class ScriptedSessionTransport(httpx2.AsyncBaseTransport):
    def __init__(self, outcome: httpx2.Response | Exception) -> None:
        self._outcome = outcome
        self.methods: list[str] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.methods.append(request.method)
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome


class InterruptedStream(httpx2.AsyncByteStream):
    def __init__(self, *chunks: bytes) -> None:
        self._chunks = chunks

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            yield chunk
        raise httpx2.ReadError("reset by peer")


async def events(outcome: httpx2.Response | Exception) -> list[httpx2.ServerSentEvent]:
    """What is read on from a session that was rejoined."""
    client = httpx2.AsyncClient(
        transport=LegacySessionTransport(ScriptedSessionTransport(outcome), rejoined="s1"), trust_env=False
    )
    async with client, client.stream("GET", URL, headers=RESUMING_REQUEST) as response:
        return [event async for event in httpx2.EventSource(response)]


def failure(event: httpx2.ServerSentEvent) -> RequestFailed:
    message = jsontext.loads(event.data)
    assert message["id"] is None
    return to_request_error(ErrorData.model_validate(message["error"]))


@pytest.mark.parametrize("status", [400, 404, 405, 410])
async def test_an_unknown_session_counts_as_ended(status: int) -> None:
    (event,) = await events(httpx2.Response(status))

    assert isinstance(failure(event), SessionGone)


@pytest.mark.parametrize(
    "outcome",
    [
        httpx2.ConnectError("refused"),
        httpx2.Response(409),
        httpx2.Response(502),
        httpx2.Response(200, headers={"content-type": "text/html"}),
    ],
    ids=["refused", "busy", "proxy", "no-events"],
)
async def test_any_other_failure_is_retried(outcome: httpx2.Response | Exception) -> None:
    (event,) = await events(outcome)

    assert type(failure(event)) is ResponseLost


async def test_a_call_whose_session_requires_a_login_can_be_resumed_after_it() -> None:
    (event,) = await events(LoginRequired("sign in", scope="tools", tokens_version=3))

    required = failure(event)
    assert isinstance(required, LoginRequired)
    assert (str(required), required.scope, required.tokens_version) == ("sign in", "tools", 3)


@pytest.mark.parametrize(
    ("chunks", "seconds"),
    [
        ([b"retry: 30000\nid: 8\ndata:\n\n"], 30.0),
        ([b"id: 8\r\nret", b"ry:500\r\n\r\n"], 0.5),
        ([b"retry: 1000\n\n", b"retry: 2000\n\n"], 2.0),
        ([b"retry: 999999999999\n\n"], RETRY_SECONDS_MAX),
        ([b"data: retry: 7000\n\n", b"retry: soon\n\n", b"retry: 5000"], 0.0),
    ],
)
async def test_a_resumed_stream_says_when_to_read_it_on(chunks: list[bytes], seconds: float) -> None:
    stream = httpx2.Response(200, headers=EVENTS, stream=InterruptedStream(*chunks))
    transport = LegacySessionTransport(ScriptedSessionTransport(stream), rejoined="s1")
    async with httpx2.AsyncClient(transport=transport, trust_env=False) as client:
        await client.get(URL, headers=RESUMING_REQUEST)

    assert transport.retry_seconds == seconds


async def test_a_stream_that_just_ends_says_so() -> None:
    first, last = await events(httpx2.Response(200, headers=EVENTS, content=b"id: 8\ndata: {}\n\n"))

    assert (first.id, first.data) == ("8", "{}")
    assert type(failure(last)) is ResponseLost


async def test_an_event_that_was_cut_off_is_skipped_and_the_place_before_it_stays() -> None:
    stream = InterruptedStream(b"id: 8\ndata: {}\n\n", b'event: message\ndata: {"half')
    first, cut, last = await events(httpx2.Response(200, headers=EVENTS, stream=stream))

    assert (first.event, first.id) == ("message", "8")
    assert cut.event not in {"message", ""}
    assert (type(failure(last)), last.event, last.id) == (ResponseLost, "message", "8")


@pytest.mark.parametrize("probe_status", [200, 400])
async def test_a_session_is_known_by_the_response_to_initialize_and_not_to_the_probe_before_it(
    probe_status: int,
) -> None:
    """Servers on the SDK's 1.x open a session for any first request, and end it when they refuse the request."""
    probe, initialize, later = (
        httpx2.Response(status, headers={SESSION_HEADER: session_id})
        for status, session_id in ((probe_status, "of the probe"), (200, "s1"), (200, "another"))
    )
    transport = LegacySessionTransport(httpx2.MockTransport(lambda _: responses.pop(0)))
    responses = [probe, initialize, later]
    async with httpx2.AsyncClient(transport=transport, trust_env=False) as client:
        await client.post(URL)
        await client.post(URL)
        await client.post(URL, headers={SESSION_HEADER: "s1"})

    assert transport.session_id == "s1"


@pytest.mark.parametrize("session_id", ["", "x" * (SESSION_ID_LENGTH_MAX + 1)])
async def test_a_name_that_is_none_or_too_long_is_not_kept(session_id: str) -> None:
    transport = LegacySessionTransport(
        ScriptedSessionTransport(httpx2.Response(200, headers={SESSION_HEADER: session_id}))
    )
    async with httpx2.AsyncClient(transport=transport, trust_env=False) as client:
        await client.post(URL)

    assert transport.session_id is None


@pytest.mark.parametrize(
    ("names", "rejoined", "sent"),
    [(0, None, ["DELETE"]), (1, None, []), (0, "s1", [])],
    ids=["free", "named", "another's"],
)
async def test_only_a_session_without_a_resuming_runner_is_ended(
    names: int, rejoined: str | None, sent: list[str]
) -> None:
    inner = ScriptedSessionTransport(httpx2.Response(200))
    transport = LegacySessionTransport(inner, rejoined=rejoined)
    transport.resumable_calls = names
    async with httpx2.AsyncClient(transport=transport, trust_env=False) as client:
        assert (await client.delete(URL)).is_success

    assert inner.methods == sent


async def test_the_stream_that_a_session_listens_on_is_the_sdks_own_matter() -> None:
    transport = LegacySessionTransport(ScriptedSessionTransport(httpx2.ConnectError("refused")))
    async with httpx2.AsyncClient(transport=transport, trust_env=False) as client:
        with pytest.raises(httpx2.ConnectError):
            await client.get(URL, headers=RESUMING_REQUEST)
