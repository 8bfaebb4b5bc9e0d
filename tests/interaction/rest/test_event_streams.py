"""Event streams: the same events as in a poll, sent as they are written."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from ringback.domain.call import Progress
from ringback.services.events import event_streams
from ringback.services.limits.quotas import Quotas
from tests.support.api_server import serving_api
from tests.support.engine import wait_until
from tests.support.limits import WAIT_SECONDS
from tests.support.service import CALL_BODY, ServiceUnderTest, running_service

pytestmark = pytest.mark.requirement("R20")

STREAM = "/v1/events/stream"
Frame = dict[str, str]


class EventStreamReader:
    """One open stream, read frame by frame."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._lines = response.aiter_lines()

    async def frame(self) -> Frame:
        """The next frame. A comment has the empty name."""
        async with asyncio.timeout(WAIT_SECONDS):
            fields: Frame = {}
            async for line in self._lines:
                if not line and fields:
                    return fields
                name, _, value = line.partition(":")
                fields[name] = value.strip()
        return fields

    async def event(self) -> dict[str, Any]:
        """The next event. A heartbeat may come before it."""
        while "" in (frame := await self.frame()):
            pass
        event: dict[str, Any] = json.loads(frame["data"])
        assert (frame["id"], frame["event"]) == (event["cursor"], event["name"])
        return event

    async def read_rest(self) -> list[Frame]:
        """All frames until the end of the stream."""
        frames: list[Frame] = []
        while frame := await self.frame():
            frames.append(frame)
        return frames


@pytest.fixture
async def url(service: ServiceUnderTest) -> AsyncGenerator[str]:
    async with serving_api(service.app) as url:
        yield url


@pytest.fixture
async def key(service: ServiceUnderTest) -> str:
    return await service.create_api_key("alice")


@asynccontextmanager
async def open_stream(
    url: str, key: str, *, last_event_id: str | None = None, **question: str
) -> AsyncGenerator[EventStreamReader]:
    headers = {"Authorization": f"Bearer {key}"}
    if last_event_id is not None:
        headers["Last-Event-ID"] = last_event_id
    async with (
        httpx.AsyncClient(base_url=url, headers=headers, timeout=WAIT_SECONDS) as client,
        client.stream("GET", STREAM, params=question) as response,
    ):
        assert response.status_code == 200, await response.aread()
        stream = EventStreamReader(response)
        assert await stream.frame() == {"retry": "2000"}
        yield stream


async def finish_new_call(service: ServiceUnderTest, client: httpx.AsyncClient, **over: str) -> str:
    call_id = (await client.post("/v1/calls", json=CALL_BODY | over)).json()["call"]["id"]
    await service.finish_call(call_id)
    return call_id


async def test_a_stream_sends_the_log_first_and_then_new_events(
    service: ServiceUnderTest, alice: httpx.AsyncClient, url: str, key: str
) -> None:
    past = await finish_new_call(service, alice)
    async with open_stream(url, key) as stream:
        first = await stream.event()
        now = await finish_new_call(service, alice)
        second = await stream.event()
        polled = (await alice.get("/v1/events")).json()["events"]

    assert stream.response.headers["content-type"].startswith("text/event-stream")
    assert [first["data"]["call_id"], second["data"]["call_id"]] == [past, now]
    assert [first, second] == polled


async def test_a_client_that_reconnects_continues_after_its_last_event(
    service: ServiceUnderTest, alice: httpx.AsyncClient, url: str, key: str
) -> None:
    calls = [await finish_new_call(service, alice) for _ in range(3)]
    async with open_stream(url, key) as stream:
        cursor = (await stream.event())["cursor"]

    async with (
        open_stream(url, key, last_event_id=cursor) as by_header,
        open_stream(url, key, cursor=cursor) as by_cursor,
    ):
        found = [[(await stream.event())["data"]["call_id"] for _ in range(2)] for stream in (by_header, by_cursor)]
    async with open_stream(url, key, last_event_id=cursor, cursor="MTpldmVudHM6MA") as both:
        over = await both.event()

    assert found == [calls[1:], calls[1:]]
    assert over["data"]["call_id"] == calls[1]


async def test_a_polyfill_that_reconnects_with_a_parameter_continues_after_its_last_event(
    service: ServiceUnderTest, alice: httpx.AsyncClient, url: str, key: str
) -> None:
    """Browsers' own EventSource sends no API key, so dashboards use a polyfill. Its first reconnect was refused."""
    calls = [await finish_new_call(service, alice) for _ in range(2)]
    async with open_stream(url, key, cursor="MTpldmVudHM6MA") as stream:
        cursor = (await stream.event())["cursor"]

    async with open_stream(url, key, cursor="MTpldmVudHM6MA", lastEventId=cursor) as stream:
        assert (await stream.event())["data"]["call_id"] == calls[1]

    refused = await alice.get("/v1/events", params={"lastEventId": cursor})
    assert refused.status_code == 422


async def test_a_stream_is_filtered_as_a_poll_is(
    service: ServiceUnderTest, alice: httpx.AsyncClient, url: str, key: str
) -> None:
    async with open_stream(url, key, name="call.finished", client_session_id="session-2") as stream:
        await finish_new_call(service, alice)
        running = (await alice.post("/v1/calls", json=CALL_BODY | {"client_session_id": "session-2"})).json()["call"]
        await service.mark_dispatched(running["id"])
        await service.record_progress(running["id"], Progress(progress=1))
        wanted = await finish_new_call(service, alice, client_session_id="session-2")

        assert (await stream.event())["data"]["call_id"] == wanted


async def test_text_that_an_upstream_chose_stays_within_its_frame(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    message = "a\nevent: call.finished\r\n\ndata: {}\n\n\x85"
    call_id = (await alice.post("/v1/calls", json=CALL_BODY)).json()["call"]["id"]
    await service.mark_dispatched(call_id)
    await service.record_progress(call_id, Progress(progress=1, message=message))

    service.services.lifecycle.begin_shutdown()
    answer = await alice.get(STREAM)

    _, frame, end = answer.content.split(b"\n\n")
    assert end == b""
    assert json.loads(frame.partition(b"data: ")[2])["data"]["progress"]["message"] == message


async def test_an_expired_cursor_is_reported_before_any_event(
    service: ServiceUnderTest, alice: httpx.AsyncClient, url: str, key: str
) -> None:
    await finish_new_call(service, alice)
    cursor = (await alice.get("/v1/events")).json()["events"][0]["cursor"]
    await finish_new_call(service, alice)
    service.clock.advance(15 * 86400)
    await service.run_janitor()
    last = await finish_new_call(service, alice)

    async with open_stream(url, key, last_event_id=cursor) as stream:
        truncated, event = await stream.frame(), await stream.event()

    assert truncated == {"event": "truncated", "data": '{"truncated":true}'}
    assert event["data"]["call_id"] == last


async def test_a_stream_without_events_sends_a_comment_and_how_far_the_log_was_read(
    service: ServiceUnderTest, alice: httpx.AsyncClient, url: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_streams, "HEARTBEAT_SECONDS", 0.05)
    await finish_new_call(service, alice)
    end = (await alice.get("/v1/events")).json()["cursor"]

    async with open_stream(url, key, client_session_id="none") as stream:
        assert [await stream.frame() for _ in range(2)] == [{"id": end, "": "still here"}] * 2


async def test_a_stream_ends_so_that_its_key_is_checked_again(
    alice: httpx.AsyncClient, service: ServiceUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_streams, "FOLLOW_SECONDS_MAX", 0)
    await finish_new_call(service, alice)

    answer = await alice.get(STREAM)

    assert answer.content.count(b"\nevent: ") == 1


async def test_a_service_that_stops_ends_its_streams_cleanly(service: ServiceUnderTest, url: str, key: str) -> None:
    async with open_stream(url, key) as stream:
        service.services.lifecycle.begin_shutdown()

        assert [frame for frame in await stream.read_rest() if "" not in frame] == []


async def test_a_client_that_stops_reading_blocks_neither_other_clients_nor_the_shutdown(
    service: ServiceUnderTest, alice: httpx.AsyncClient, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringback.server.LAST_RESPONSES_SECONDS", 1)
    message = "x" * 250_000
    call_id = (await alice.post("/v1/calls", json=CALL_BODY)).json()["call"]["id"]
    await service.mark_dispatched(call_id)
    async with asyncio.timeout(WAIT_SECONDS), serving_api(service.app) as url:
        port = int(url.rpartition(":")[2])
        _, slow = await asyncio.open_connection("127.0.0.1", port, limit=1)
        slow.write(f"GET {STREAM} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {key}\r\n\r\n".encode())
        async with open_stream(url, key) as stream:
            for _ in range(40):  # ten megabytes: more than the socket buffers
                await service.record_progress(call_id, Progress(progress=1, message=message))
            for _ in range(40):
                assert (await stream.event())["name"] == "call.progress"
        service.services.lifecycle.begin_shutdown()
    slow.transport.abort()


async def test_streams_are_counted_and_a_closed_one_frees_its_place(tmp_path: Path) -> None:
    async with running_service(tmp_path, quotas=Quotas(streams=1)) as service, serving_api(service.app) as url:
        key, bobs = await service.create_api_key("alice"), await service.create_api_key("bob")
        alice = await service.create_client("alice")
        async with open_stream(url, key), open_stream(url, bobs):
            refused = await alice.get(STREAM)
        service.services.lifecycle.begin_shutdown()

        async def has_noticed_that_its_reader_went() -> bool:
            return (await alice.get(STREAM)).status_code != 429

        await wait_until(has_noticed_that_its_reader_went)

    assert (refused.status_code, refused.json()["type"]) == (429, "/problems/quota-exceeded")
    assert (refused.json()["quota"], refused.json()["limit"]) == ("streams", 1)
    assert int(refused.headers["retry-after"]) > 0


@pytest.mark.parametrize("question", [{"cursor": "nonsense"}, {"cursor": "MTpjYWxsczo0Mg"}])
async def test_an_invalid_cursor_is_refused_before_the_stream_begins(
    alice: httpx.AsyncClient, question: dict[str, str]
) -> None:
    answer = await alice.get(STREAM, params=question)

    assert (answer.status_code, answer.json()["type"]) == (422, "/problems/invalid-cursor")


async def test_a_stream_with_a_rare_filter_reads_the_whole_log_without_waiting(
    service: ServiceUnderTest, alice: httpx.AsyncClient, url: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringback.storage.rows.events.ROWS_SCANNED_MAX", 3)
    monkeypatch.setattr(event_streams, "FOLLOW_PAGE_SIZE", 2)
    for _ in range(8):
        await finish_new_call(service, alice)
    rare = await finish_new_call(service, alice, client_session_id="rare")

    async with open_stream(url, key, client_session_id="rare") as stream:
        assert (await stream.event())["data"]["call_id"] == rare


async def test_a_full_page_after_another_comes_without_waiting(
    service: ServiceUnderTest, alice: httpx.AsyncClient, url: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_streams, "FOLLOW_PAGE_SIZE", 10)
    calls = [await finish_new_call(service, alice) for _ in range(15)]

    async with open_stream(url, key) as stream:
        assert [(await stream.event())["data"]["call_id"] for _ in calls] == calls
