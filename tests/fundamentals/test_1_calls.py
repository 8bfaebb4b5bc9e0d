"""Calls: start a tool on any MCP server without waiting for it."""

import asyncio

import pytest

from ringback.client import Conflict, InvalidRequest, RingbackClient
from tests.support.application import RunningApplication
from tests.support.report_upstream import IMPOSSIBLE_TOPIC, ReportUpstream
from tests.support.upstreams import WAIT_SECONDS


async def test_starting_a_call_returns_at_once_while_the_tool_goes_on(
    alice: RingbackClient, reports: ReportUpstream
) -> None:
    started = await alice.start_call("reports", "build_report", {"topic": "tides"})

    assert started.call.status == "working"
    await reports.wait_until_begun()

    reports.finish.set()
    call = await alice.wait(started.call.id, timeout_seconds=WAIT_SECONDS)
    assert (call.status, call.outcome) == ("completed", "result")


@pytest.mark.requirement("R12")
async def test_a_call_survives_its_client(ringback: RunningApplication, reports: ReportUpstream) -> None:
    """The client that started the call disconnects. Another client finds the call and its result by the agent's own ids."""
    async with await ringback.create_agent_client("alice") as first:
        await first.start_call("reports", "build_report", {"topic": "tides"}, client_session_id="session-1")
        await reports.wait_until_begun()
    reports.finish.set()

    second = await ringback.create_agent_client("alice")
    (call,) = [call async for call in second.calls(client_session_id="session-1")]
    call = await second.wait(call.id, timeout_seconds=WAIT_SECONDS)
    result = await second.result(call.id)
    assert result["content"][0]["text"] == "All about tides."


@pytest.mark.requirement("R14")
async def test_a_quick_call_returns_its_result_in_the_response(alice: RingbackClient, reports: ReportUpstream) -> None:
    reports.finish.set()

    started = await alice.start_call("reports", "build_report", {"topic": "tides"}, wait_seconds=60)

    assert started.call.status == "completed"
    assert started.result is not None
    assert started.result["content"][0]["text"] == "All about tides."


@pytest.mark.requirement("R13")
async def test_requests_with_one_idempotency_key_start_one_call(alice: RingbackClient, reports: ReportUpstream) -> None:
    """A client that lost the first response repeats the request, and the tool runs only once."""
    requests = [
        alice.start_call("reports", "build_report", {"topic": "tides"}, idempotency_key="tides-of-today")
        for _ in range(3)
    ]
    started = await asyncio.gather(*requests)
    await reports.wait_until_begun()

    assert len({each.call.id for each in started}) == 1
    assert reports.begun_topics == ["tides"]

    with pytest.raises(Conflict):
        await alice.start_call("reports", "build_report", {"topic": "winds"}, idempotency_key="tides-of-today")


@pytest.mark.requirement("R33")
async def test_a_call_reports_how_it_ended(alice: RingbackClient, reports: ReportUpstream) -> None:
    """The tool ran, so the call is completed; its result says that the tool failed."""
    reports.finish.set()

    started = await alice.start_call("reports", "build_report", {"topic": IMPOSSIBLE_TOPIC})
    call = await alice.wait(started.call.id, timeout_seconds=WAIT_SECONDS)

    assert (call.status, call.outcome) == ("completed", "tool_error")
    assert (await alice.result(call.id))["isError"]


async def test_a_call_can_be_cancelled(alice: RingbackClient, reports: ReportUpstream) -> None:
    started = await alice.start_call("reports", "build_report", {"topic": "tides"})
    await reports.wait_until_begun()

    await alice.cancel(started.call.id)

    call = await alice.wait(started.call.id, timeout_seconds=WAIT_SECONDS)
    assert (call.status, call.outcome) == ("cancelled", "cancelled")


async def test_an_invalid_request_is_refused_before_anything_starts(
    alice: RingbackClient, reports: ReportUpstream
) -> None:
    with pytest.raises(InvalidRequest, match="Did you mean 'build_report'"):
        await alice.start_call("reports", "build_reprot", {"topic": "tides"})
    with pytest.raises(InvalidRequest, match="topic"):
        await alice.start_call("reports", "build_report", {"topik": "tides"})

    assert [call async for call in alice.calls()] == []
    assert reports.begun_topics == []
