"""Adopting and reporting: the requests, and their repetition after a lost response."""

from typing import Any

import httpx
import respx

from ringback.client import RingbackClient
from ringback.schemas import examples
from tests.support.mocked_requests import get_last_request, parse_body

STARTED: dict[str, Any] = {"call": examples.WORKING_CALL, "resume_token": "token", "webhooks": []}
RESULT = {"content": [{"type": "text", "text": "done"}]}


async def test_a_report_sends_exactly_the_given_values(client: RingbackClient, service: respx.MockRouter) -> None:
    route = service.post("/v1/calls/report").respond(202, json=STARTED)

    started = await client.report("build-1", "farm", "build_report", result=RESULT, correlation_id="c1")

    assert started.call.id == examples.CALL_ID
    assert parse_body(get_last_request(route)) == {
        "key": "build-1",
        "upstream": "farm",
        "tool": "build_report",
        "result": RESULT,
        "correlation_id": "c1",
    }


async def test_an_adoption_names_the_task(client: RingbackClient, service: respx.MockRouter) -> None:
    route = service.post("/v1/calls/adopt").respond(202, json=STARTED)

    await client.adopt("git", "task-1", tool="git_log")

    assert parse_body(get_last_request(route)) == {"upstream": "git", "task_id": "task-1", "tool": "git_log"}


async def test_both_are_repeated_when_their_response_is_lost(client: RingbackClient, service: respx.MockRouter) -> None:
    answers = [httpx.ConnectError("no response"), httpx.Response(202, json=STARTED)]
    report, adopt = service.post("/v1/calls/report"), service.post("/v1/calls/adopt")
    report.side_effect = answers
    adopt.side_effect = list(answers)

    await client.report("build-1", "farm", "build_report")
    await client.adopt("git", "task-1")

    assert (report.call_count, adopt.call_count) == (2, 2)
