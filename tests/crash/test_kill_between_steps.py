"""`kill -9` of the service between any two steps of the loop, each with real processes and sockets.

register │ start and lease │ dispatch │ …the tool runs… │ finish and lease │ …POST… │ record the attempt
         │ start, then lease (no room) ┘                │ finish, then lease (ordered) ┘
"""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.crash_checks import wait_for_finished_events, wait_until_final
from tests.support.engine import wait_until
from tests.support.processes import WAIT_SECONDS, post_unless_killed, running_process
from tests.support.receivers import NO_CONTENT, respond_with, serving_receiver
from tests.support.upstreams import ControlledUpstream, serving

START = "Calls.start_call.<locals>"
REGISTER = "WebhookRegistrations.register_webhook.<locals>"
LEASE = "Runner._lease_queued_calls"
DISPATCH = "LeasedCall._write_dispatched"
FINISH = "CompletionBatcher._record_completions"
CLAIM = "DeliveryLeasing._lease_due"
SETTLE = "AttemptRecorder.record_attempts"

STEPS = [
    (REGISTER, False),
    (REGISTER, True),
    (START, False),
    (START, True),
    (DISPATCH, False),
    (DISPATCH, True),
    (FINISH, False),
    (FINISH, True),
    (CLAIM, True),
    (SETTLE, False),
    (SETTLE, True),
]
STEPS_AFTER_DISPATCH = {(DISPATCH, True), (FINISH, False)}
"""The call was dispatched and its end was not recorded, so its outcome is unknown."""

CALL = {"upstream": "stage", "tool": "echo", "arguments": {"say": "hello"}, "correlation_id": "c1"}
KEY = {"Idempotency-Key": "one-and-only"}


@pytest.mark.requirement("R35")
@pytest.mark.requirement("R13")
@pytest.mark.parametrize(
    ("unit", "after"), STEPS, ids=[f"{'after' if after else 'before'} {unit}" for unit, after in STEPS]
)
async def test_a_kill_between_two_steps_loses_nothing_acknowledged_and_runs_nothing_twice(
    *, unit: str, after: bool, tmp_path: Path
) -> None:
    stage = ControlledUpstream()
    async with serving(stage.app()) as upstream, serving_receiver(respond_with(NO_CONTENT)) as receiver:
        spec: dict[str, Any] = {"folder": str(tmp_path), "upstream": upstream.url}
        async with running_process(**spec, unit=unit, after=after) as doomed:
            webhook = {"url": receiver.url(), "correlation_id": "all", "ordered": unit == CLAIM}
            registered = await post_unless_killed(doomed.url, "/v1/webhooks", webhook)
            started = registered and await post_unless_killed(doomed.url, "/v1/calls", CALL, **KEY)
            assert await doomed.wait_until_dead() == -9

        async with running_process(**spec) as revived:
            if registered is None:
                registered = await post_unless_killed(revived.url, "/v1/webhooks", webhook)
            again = await post_unless_killed(revived.url, "/v1/calls", CALL, **KEY)
            assert again is not None
            assert started is None or again["call"]["id"] == started["call"]["id"]
            call = await wait_until_final(revived, again["call"]["id"])
            events = await wait_for_finished_events(revived, receiver, call["id"])

    expected = ("failed", "unknown") if (unit, after) in STEPS_AFTER_DISPATCH else ("completed", "result")
    assert (call["status"], call["outcome"]) == expected
    assert len(stage.calls) <= 1
    assert len(events) == 1
    assert {event["data"]["correlation_id"] for event in events.values()} == {"c1"}


@pytest.mark.requirement("R35")
async def test_a_kill_right_after_a_call_that_found_no_room_was_leased_runs_it_once(tmp_path: Path) -> None:
    stage = ControlledUpstream()
    async with serving(stage.app()) as upstream:
        spec: dict[str, Any] = {"folder": str(tmp_path), "upstream": upstream.url}
        async with running_process(**spec, unit=LEASE, after=True, max_concurrent=1) as doomed:
            holding = await post_unless_killed(doomed.url, "/v1/calls", CALL | {"tool": "hold"})
            await asyncio.wait_for(stage.wait_until_held(1), WAIT_SECONDS)
            waiting = await post_unless_killed(doomed.url, "/v1/calls", CALL)
            stage.release.set()
            assert await doomed.wait_until_dead() == -9

        assert holding is not None
        assert waiting is not None
        assert len(stage.calls) == 1
        async with running_process(**spec) as revived:
            ended = [await wait_until_final(revived, each["call"]["id"]) for each in (holding, waiting)]

    assert [call["outcome"] for call in ended] == ["result", "result"]
    assert len(stage.calls) == 2


@pytest.mark.requirement("R35")
async def test_a_kill_before_a_waiting_clients_call_is_sent_leaves_it_unknown_and_unsent(tmp_path: Path) -> None:
    """Its client has received no call id. With its idempotency key it finds the call, and the tool never runs."""
    stage = ControlledUpstream()
    async with serving(stage.app()) as upstream:
        spec: dict[str, Any] = {"folder": str(tmp_path), "upstream": upstream.url}
        async with running_process(**spec, unit=START, after=True) as doomed:
            await wait_until_connected(doomed.url)
            assert await post_unless_killed(doomed.url, "/v1/calls", CALL | {"wait_seconds": 30}, **KEY) is None
            assert await doomed.wait_until_dead() == -9

        async with running_process(**spec) as revived:
            again = await post_unless_killed(revived.url, "/v1/calls", CALL | {"wait_seconds": 30}, **KEY)
            assert again is not None
            call = await wait_until_final(revived, again["call"]["id"])

    assert (call["status"], call["outcome"]) == ("failed", "unknown")
    assert stage.calls == []


async def wait_until_connected(url: str) -> None:
    """Wait until the upstream has an open session: only then is a call marked as dispatched as it is accepted."""

    async def is_connected() -> bool:
        (upstream,) = (await http.get("/v1/upstreams")).json()["upstreams"]
        return upstream["state"] == "ready"

    async with httpx.AsyncClient(base_url=url, timeout=WAIT_SECONDS) as http:
        await wait_until(is_connected)
