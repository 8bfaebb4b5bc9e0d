"""`wait_calls`: all calls that match a filter, however many."""

import itertools
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
import respx

from ringback.client import Call, InvalidArgument, NotFound, RingbackClient, awaited_calls
from ringback.client.awaited_calls import ROUND_SECONDS
from ringback.schemas import examples
from tests.support.clock import FakeClock
from tests.support.mocked_requests import get_last_request, list_requests, parse_body, parse_query

PROBLEM_JSON = {"content-type": "application/problem+json"}


class MatchingCalls:
    """A service whose calls match. Each wait lasts its time, and ends early once its calls have ended."""

    def __init__(self, service: respx.MockRouter, clock: FakeClock, *, ended: int, open_calls: int) -> None:
        self._clock = clock
        self._erased: dict[str, int] = {}
        self.documents = [self._make_call(number, is_open=number >= ended) for number in range(ended + open_calls)]
        self.ends_at = {each["id"]: float(number) for number, each in enumerate(self.documents) if number >= ended}
        self.listing = service.get("/v1/calls")
        self.listing.side_effect = self._list
        self.waiting = service.post("/v1/calls/wait", name="wait")
        self.waiting.side_effect = self._wait

    @staticmethod
    def _make_call(number: int, *, is_open: bool) -> dict[str, Any]:
        return {**(examples.WORKING_CALL if is_open else examples.FINISHED_CALL), "id": f"call_{number}"}

    def _list(self, request: httpx.Request) -> httpx.Response:
        start = int(parse_query(request).get("cursor", "0"))
        page = self.documents[start : start + 100]
        following = str(start + 100) if start + 100 < len(self.documents) else None
        return httpx.Response(200, json={"calls": page, "next_cursor": following})

    def erase(self, *call_ids: str) -> None:
        """Erase them before the first wait: 404 of a service that does not remember them, 410 of one that does."""
        self._erased = dict(zip(call_ids, itertools.cycle((404, 410)), strict=False))

    def _wait(self, request: httpx.Request) -> httpx.Response:
        body = parse_body(request)
        for index, call_id in enumerate(body["call_ids"]):
            if status := self._erased.get(call_id):
                return httpx.Response(status, json={"detail": "Erased.", "index": index}, headers=PROBLEM_JSON)
        last = max(self.ends_at[call_id] for call_id in body["call_ids"])
        self._clock.advance(min(body["wait_seconds"], max(0.0, last - self._clock.monotonic())))
        calls = [
            {**(examples.WORKING_CALL if self._is_open(call_id) else examples.FINISHED_CALL), "id": call_id}
            for call_id in body["call_ids"]
        ]
        return httpx.Response(200, json={"calls": calls, "done": not any(map(self._is_open, body["call_ids"]))})

    def _is_open(self, call_id: str) -> bool:
        return self.ends_at[call_id] > self._clock.monotonic()


async def test_all_calls_that_match_are_waited_for_a_hundred_at_a_time(
    client: RingbackClient, service: respx.MockRouter, clock: FakeClock
) -> None:
    matching = MatchingCalls(service, clock, ended=30, open_calls=220)
    progress: list[int] = []

    def record_progress(calls: Sequence[Call]) -> None:
        progress.append(sum(call.final for call in calls))

    calls = await client.wait_calls(correlation_id="batch-7", client_session_id="s1", on_progress=record_progress)

    assert [call.id for call in calls] == [each["id"] for each in matching.documents]
    assert all(call.final for call in calls)
    assert (progress[0], progress[-1]) == (30, 250)
    assert progress == sorted(progress)
    assert all(len(parse_body(each)["call_ids"]) <= 100 for each in list_requests(matching.waiting))
    last_end = max(matching.ends_at.values())
    assert last_end <= clock.monotonic() <= last_end + ROUND_SECONDS
    first, *others = [parse_query(each) for each in list_requests(matching.listing)]
    assert first == {"correlation_id": "batch-7", "client_session_id": "s1"}
    assert [each["cursor"] for each in others] == ["100", "200"]


async def test_a_wait_for_calls_that_match_ends_at_its_time(
    client: RingbackClient, service: respx.MockRouter, clock: FakeClock
) -> None:
    MatchingCalls(service, clock, ended=0, open_calls=100)

    calls = await client.wait_calls(upstream="git", timeout_seconds=20.0)

    assert (sum(call.final for call in calls), clock.monotonic()) == (21, 20.0)


@pytest.mark.parametrize(("ended", "seconds"), [(3, None), (0, 0.0)], ids=["all have ended", "no time"])
async def test_a_wait_that_is_over_at_once_only_reads_the_calls(
    client: RingbackClient, service: respx.MockRouter, ended: int, seconds: float | None
) -> None:
    page = [examples.FINISHED_CALL] * ended or [examples.WORKING_CALL]
    route = service.get("/v1/calls").respond(json={"calls": page, "next_cursor": None})

    calls = await client.wait_calls(since=datetime(2026, 11, 20, tzinfo=UTC), tool="git_log", timeout_seconds=seconds)

    assert [call.status for call in calls] == ["completed" if ended else "working"]
    assert parse_query(get_last_request(route)) == {"tool": "git_log", "since": "2026-11-20T00:00:00+00:00"}


async def test_a_wait_for_every_call_there_is_needs_a_filter(client: RingbackClient) -> None:
    with pytest.raises(InvalidArgument, match="at least one filter: client_session_id, correlation_id"):
        await client.wait_calls()


async def test_more_calls_than_a_wait_can_keep_are_refused(
    client: RingbackClient, service: respx.MockRouter, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(awaited_calls, "MATCHING_CALLS_MAX", 150)
    matching = MatchingCalls(service, clock, ended=250, open_calls=0)
    service.pop("wait")

    with pytest.raises(InvalidArgument, match="More than 150 calls match"):
        await client.wait_calls(client_session_id="s1")

    assert len(list_requests(matching.listing)) == 2


async def test_calls_that_are_erased_during_the_wait_are_left_out(
    client: RingbackClient, service: respx.MockRouter, clock: FakeClock
) -> None:
    matching = MatchingCalls(service, clock, ended=1, open_calls=120)
    matching.erase("call_5", "call_110")

    calls = await client.wait_calls(client_session_id="s1")

    assert {call.id for call in calls} == {f"call_{number}" for number in range(121)} - {"call_5", "call_110"}
    assert all(call.final for call in calls)


async def test_a_problem_that_is_about_no_single_call_ends_the_wait(
    client: RingbackClient, service: respx.MockRouter
) -> None:
    service.get("/v1/calls").respond(json={"calls": [examples.WORKING_CALL], "next_cursor": None})
    service.post("/v1/calls/wait").respond(404, json={"detail": "No such path."}, headers=PROBLEM_JSON)

    with pytest.raises(NotFound, match="No such path"):
        await client.wait_calls(client_session_id="s1")


async def test_the_oldest_calls_are_waited_for_first(
    client: RingbackClient, service: respx.MockRouter, clock: FakeClock
) -> None:
    """Calls end about in the order of their start. Newest first, the progress would stand still until the last ones end."""
    matching = MatchingCalls(service, clock, ended=0, open_calls=150)

    await client.wait_calls(client_session_id="s1")

    first = parse_body(list_requests(matching.waiting)[0])["call_ids"]
    assert first == [f"call_{number}" for number in range(149, 49, -1)]
