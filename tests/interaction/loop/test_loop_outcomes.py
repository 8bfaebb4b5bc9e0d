"""However a call ends, its callback and its row say the same: a result, an error, an upstream that went, a time that is up."""

import asyncio
from pathlib import Path

import pytest

from ringback.bootstrap import Environment
from tests.support.application import call_stage, ended, listening, on_stage, running_application
from tests.support.clock import ShiftedClock
from tests.support.upstreams import WAIT_SECONDS, Stage, free_port, http_config, serving


@pytest.mark.requirement("R33")
@pytest.mark.parametrize(
    ("tool", "status", "outcome"),
    [
        ("echo", "completed", "result"),
        ("fail", "completed", "tool_error"),
        ("refuse", "failed", "upstream_error"),
    ],
)
async def test_the_callback_and_the_call_say_how_the_tool_ended(
    tmp_path: Path, tool: str, status: str, outcome: str
) -> None:
    async with on_stage(tmp_path, Stage()) as (ringback, phone):
        alice = await ringback.agent("alice")
        call = await call_stage(alice, tool, phone)
        callback = await phone.ring(tool)

        assert (callback.status, callback.outcome) == (status, outcome)
        final = await alice.call(call.id)
        assert (final.status, final.outcome) == (status, outcome)


@pytest.mark.requirement("R33")
async def test_an_upstreams_own_error_is_kept_as_it_came(tmp_path: Path) -> None:
    async with on_stage(tmp_path, Stage()) as (ringback, phone):
        alice = await ringback.agent("alice")
        final = await ended(alice, await call_stage(alice, "refuse", phone))

    assert final.error == {"code": -32042, "message": "not today", "data": {"retry": False}}


@pytest.mark.requirement("R11")
@pytest.mark.requirement("R33")
async def test_an_upstream_that_dies_takes_only_its_own_calls_along(tmp_path: Path) -> None:
    mortal, steady = Stage(), Stage()
    async with (
        serving(mortal.app()) as doomed,
        serving(steady.app()) as server,
        listening() as phone,
        running_application(tmp_path, http_config(doomed.url), http_config(server.url, name="steady")) as ringback,
    ):
        alice = await ringback.agent("alice")
        lost = [await call_stage(alice, "hold", phone, correlation_id=f"lost-{number}") for number in range(5)]
        kept = (await alice.start_call("steady", "hold")).call
        await asyncio.wait_for(mortal.until_inside(5), WAIT_SECONDS)
        await asyncio.wait_for(steady.until_inside(1), WAIT_SECONDS)

        await doomed.kill()
        assert {(await ended(alice, call)).outcome for call in lost} == {"unknown"}
        assert {(await phone.ring(f"lost-{number}")).outcome for number in range(5)} == {"unknown"}

        steady.release.set()
        assert (await ended(alice, kept)).outcome == "result"


@pytest.mark.requirement("R33")
async def test_an_upstream_that_stays_away_rejects_what_was_never_sent(tmp_path: Path) -> None:
    away = http_config(f"http://127.0.0.1:{free_port()}/mcp")
    async with listening() as phone, running_application(tmp_path, away, connect_patience_seconds=0.05) as ringback:
        alice = await ringback.agent("alice")
        final = await ended(alice, await call_stage(alice, "echo", phone))

        assert (final.outcome, final.dispatched_at, final.runs) == ("rejected", None, 0)
        assert (await phone.ring("echo")).outcome == "rejected"


@pytest.mark.requirement("R33")
async def test_a_call_past_its_deadline_is_timed_out_and_its_upstream_is_told(tmp_path: Path) -> None:
    stage, clock = Stage(), ShiftedClock()
    clock.stop()
    async with on_stage(tmp_path, stage, world=Environment(clock=clock)) as (ringback, phone):
        alice = await ringback.agent("alice")
        call = await call_stage(alice, "hold", phone, timeout_seconds=0.5)
        await asyncio.wait_for(stage.until_inside(1), WAIT_SECONDS)
        clock.resume()
        final = await ended(alice, call)

        assert final.outcome == "timed_out"
        await asyncio.wait_for(stage.cancelled.wait(), WAIT_SECONDS)
