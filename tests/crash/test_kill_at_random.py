"""`kill -9` of the service at random moments under load, again and again on one database."""

import asyncio
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from ringback.waits import wait_first
from tests.support.crash_checks import wait_for_finished_events, wait_until_final
from tests.support.processes import WAIT_SECONDS, post_unless_killed, running_process
from tests.support.receivers import NO_CONTENT, respond_with, serving_receiver
from tests.support.upstreams import ControlledUpstream, serving, wait_until_true

CALLS = 60


@pytest.mark.requirement("R35")
async def test_kills_at_random_moments_lose_no_acknowledged_call_and_repeat_none(tmp_path: Path, *, deep: bool) -> None:
    chance = random.Random(20261120)
    acknowledged_calls: list[str] = []
    async with (
        serving((stage := ControlledUpstream()).app()) as upstream,
        serving_receiver(respond_with(NO_CONTENT)) as receiver,
    ):
        spec: dict[str, Any] = {"folder": str(tmp_path), "upstream": upstream.url}
        for number in range(100 if deep else 3):
            async with running_process(**spec) as doomed:
                if number % 20 == 0:  # each receives all later calls, so five are enough
                    await post_unless_killed(doomed.url, "/v1/webhooks", {"url": receiver.url(f"/{number}")})
                starting = asyncio.create_task(start_calls_in_sequence(doomed.url, f"{number}", acknowledged_calls))
                if number == 0:  # on a slow machine every other kill may come before the first acknowledgement
                    await wait_until_true(lambda: bool(acknowledged_calls))
                await wait_first(asyncio.shield(starting), timeout_seconds=chance.uniform(0.05, 0.8))
                await doomed.kill()
                await starting

        async with running_process(**spec) as revived:
            for call_id in acknowledged_calls:
                call = await wait_until_final(revived, call_id)
                events = await wait_for_finished_events(revived, receiver, call_id)
                assert call["outcome"] in {"result", "unknown"}
                assert len(events) == 1

    assert acknowledged_calls
    sent = [params.arguments["key"] for params in stage.calls if params.arguments]
    assert len(sent) == len(set(sent)), "a tool was started twice"


async def start_calls_in_sequence(url: str, name: str, acknowledged_calls: list[str]) -> None:
    """Start calls until the service is gone; those that it acknowledged are noted."""
    async with httpx.AsyncClient(base_url=url, timeout=WAIT_SECONDS) as client:
        with suppress(httpx.TransportError):
            for index in range(CALLS):
                call = {"upstream": "stage", "tool": "echo", "arguments": {"key": f"{name}-{index}"}}
                response = await client.post("/v1/calls", json=call, headers={"Idempotency-Key": f"{name}-{index}"})
                assert response.status_code == 202, response.text
                acknowledged_calls.append(response.json()["call"]["id"])
