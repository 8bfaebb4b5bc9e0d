"""What a principal whose connections hold many unread bytes gets, over REST and in a response to a start."""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Any

import httpx
import pytest

from ringback.api.context import ApiConfig
from ringback.domain import jsontext
from ringback.domain.call_outcome import completion_from_result
from ringback.services.limits.unread_responses import PRINCIPAL_UNREAD_BYTES_MAX, UnreadResponses
from tests.support.service import CALL_BODY, ServiceUnderTest

LARGE_RESULT = jsontext.dumps({"content": [{"type": "text", "text": "x" * 1_000_000}], "isError": False})
KEY = {"Idempotency-Key": "once"}


@pytest.fixture
def unread(service: ServiceUnderTest) -> Generator[UnreadResponses]:
    config: ApiConfig = service.app.state.config
    yield config.unread_responses
    assert config.unread_responses.unread_bytes == 0


async def test_reads_of_large_results_wait_until_earlier_ones_are_read_and_starts_are_answered(
    service: ServiceUnderTest, alice: httpx.AsyncClient, unread: UnreadResponses
) -> None:
    started = (await alice.post("/v1/calls", json=CALL_BODY, headers=KEY)).json()
    ended = await service.finish_call(started["call_id"], completion_from_result(LARGE_RESULT, is_error=False))
    path, token = f"/v1/calls/{ended.id}/result", {"resume_token": started["resume_token"]}
    unread.reserve_bytes(ended.principal, PRINCIPAL_UNREAD_BYTES_MAX)

    refused = [await alice.get(path), await alice.post("/v1/resume", json=token)]
    repeated = await alice.post("/v1/calls", json=CALL_BODY, headers=KEY)

    for answer in refused:
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "10")
        assert answer.json()["quota"] == "unread_response_bytes"
    assert (repeated.status_code, "result" in repeated.json()) == (200, False)
    assert repeated.json()["call"]["status"] == "completed"
    unread.release_bytes(ended.principal, PRINCIPAL_UNREAD_BYTES_MAX)
    assert (await alice.get(path)).content == LARGE_RESULT
    part = await alice.get(path, headers={"Range": "bytes=5-600004"})
    assert (part.status_code, part.content) == (206, LARGE_RESULT[5:600_005])
    assert jsontext.dumps((await alice.post("/v1/resume", json=token)).json()["result"]) == LARGE_RESULT
    assert "result" in (await alice.post("/v1/calls", json=CALL_BODY, headers=KEY)).json()


async def test_requests_for_one_large_result_at_once_read_it_once_beside_the_event_loop_and_refused_ones_do_not(
    service: ServiceUnderTest, alice: httpx.AsyncClient, unread: UnreadResponses, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = (await alice.post("/v1/calls", json=CALL_BODY, headers=KEY)).json()
    ended = await service.finish_call(started["call_id"], completion_from_result(LARGE_RESULT, is_error=False))
    path, token = f"/v1/calls/{ended.id}/result", {"resume_token": started["resume_token"]}
    scanning, scan = list[str](), service.store.scan

    async def count_scan(principal: Any, work: Callable[[Any], Awaitable[Any]]) -> Any:
        scanning.append(principal)
        return await scan(principal, work)

    monkeypatch.setattr(service.store, "scan", count_scan)
    answers = await asyncio.gather(*(alice.get(path) for _ in range(30)))
    assert {(answer.status_code, answer.content == LARGE_RESULT) for answer in answers} == {(200, True)}
    assert (await alice.head(path)).headers["content-length"] == str(len(LARGE_RESULT))
    assert len(scanning) == 1

    unread.reserve_bytes(ended.principal, PRINCIPAL_UNREAD_BYTES_MAX)
    assert (await alice.get(path)).status_code == (await alice.post("/v1/resume", json=token)).status_code == 429
    assert len(scanning) == 1
    unread.release_bytes(ended.principal, PRINCIPAL_UNREAD_BYTES_MAX)
    assert (await alice.post("/v1/calls", json=CALL_BODY, headers=KEY)).json()["result"]
    assert scanning == [ended.principal] * 2


async def _never_scan(*_: object) -> None:
    raise AssertionError("the result was read")


async def test_a_response_that_sends_a_small_part_or_nothing_of_a_large_result_reserves_no_more(
    service: ServiceUnderTest, alice: httpx.AsyncClient, unread: UnreadResponses, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = (await alice.post("/v1/calls", json=CALL_BODY, headers=KEY)).json()
    ended = await service.finish_call(started["call_id"], completion_from_result(LARGE_RESULT, is_error=False))
    path, etag = f"/v1/calls/{ended.id}/result", f'"{ended.result_sha256}"'
    unread.reserve_bytes(ended.principal, PRINCIPAL_UNREAD_BYTES_MAX)

    head = await alice.head(path)
    part = await alice.get(path, headers={"Range": "bytes=5-104"})
    part_refused = await alice.get(path, headers={"Range": "bytes=5-600004"})
    monkeypatch.setattr(service.store, "scan", _never_scan)
    unchanged = await alice.get(path, headers={"If-None-Match": etag})
    outside = await alice.get(path, headers={"Range": "bytes=2000000-"})
    unread.release_bytes(ended.principal, PRINCIPAL_UNREAD_BYTES_MAX)

    assert (head.status_code, head.headers["content-length"]) == (200, str(len(LARGE_RESULT)))
    assert (part.status_code, part.content) == (206, LARGE_RESULT[5:105])
    assert part_refused.status_code == 429
    assert (unchanged.status_code, unchanged.headers["etag"], outside.status_code) == (304, etag, 416)
