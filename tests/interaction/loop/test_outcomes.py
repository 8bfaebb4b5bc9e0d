"""However a call ends, its callback and its row say the same: a result, an error, an upstream that went, a time that is up."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from ringback.bootstrap import Environment
from scripts.ports import free_port
from tests.support.application import (
    CallbackReceiver,
    RunningApplication,
    running_application,
    running_with_upstream,
    serving_callbacks,
    start_upstream_call,
    wait_until_ended,
)
from tests.support.clock import OffsetClock
from tests.support.upstreams import WAIT_SECONDS, ControlledUpstream, make_http_config, serving


@pytest.fixture(scope="module")
async def service(
    module_path_factory: pytest.TempPathFactory,
) -> AsyncGenerator[tuple[RunningApplication, CallbackReceiver]]:
    """For tests whose calls end by themselves."""
    async with running_with_upstream(module_path_factory.mktemp("service"), ControlledUpstream()) as running:
        yield running


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
    service: tuple[RunningApplication, CallbackReceiver], tool: str, status: str, outcome: str
) -> None:
    ringback, phone = service
    alice = await ringback.create_agent_client("alice")
    call = await start_upstream_call(alice, tool, phone, correlation_id=f"ends as {outcome}")
    callback = await phone.wait_for_callback(f"ends as {outcome}")

    assert (callback.call_id, callback.status, callback.outcome) == (call.id, status, outcome)
    final = await alice.call(call.id)
    assert (final.status, final.outcome) == (status, outcome)


@pytest.mark.requirement("R33")
async def test_an_upstreams_own_error_is_kept_as_it_came(
    service: tuple[RunningApplication, CallbackReceiver],
) -> None:
    ringback, phone = service
    alice = await ringback.create_agent_client("alice")
    final = await wait_until_ended(alice, await start_upstream_call(alice, "refuse", phone))

    assert final.error is not None
    assert (final.error.code, final.error.message) == ("upstream_error", "not today")
    assert final.error.jsonrpc == {"code": -32042, "message": "not today", "data": {"retry": False}}


@pytest.mark.requirement("R11")
@pytest.mark.requirement("R33")
async def test_an_upstream_that_dies_ends_only_its_own_calls(tmp_path: Path) -> None:
    mortal, steady = ControlledUpstream(), ControlledUpstream()
    async with (
        serving(mortal.app()) as doomed,
        serving(steady.app()) as server,
        serving_callbacks() as phone,
        running_application(
            tmp_path, make_http_config(doomed.url), make_http_config(server.url, name="steady")
        ) as ringback,
    ):
        alice = await ringback.create_agent_client("alice")
        lost = [await start_upstream_call(alice, "hold", phone, correlation_id=f"lost-{number}") for number in range(5)]
        kept = (await alice.start_call("steady", "hold")).call
        await asyncio.wait_for(mortal.wait_until_held(5), WAIT_SECONDS)
        await asyncio.wait_for(steady.wait_until_held(1), WAIT_SECONDS)

        await doomed.kill_server()
        assert {(await wait_until_ended(alice, call)).outcome for call in lost} == {"unknown"}
        assert {(await phone.wait_for_callback(f"lost-{number}")).outcome for number in range(5)} == {"unknown"}

        steady.release.set()
        assert (await wait_until_ended(alice, kept)).outcome == "result"


@pytest.mark.requirement("R33")
async def test_an_upstream_that_stays_unreachable_rejects_calls_that_were_never_sent(tmp_path: Path) -> None:
    away = make_http_config(f"http://127.0.0.1:{free_port()}/mcp")
    async with (
        serving_callbacks() as phone,
        running_application(tmp_path, away, connect_patience_seconds=0.05) as ringback,
    ):
        alice = await ringback.create_agent_client("alice")
        final = await wait_until_ended(alice, await start_upstream_call(alice, "echo", phone))

        assert (final.outcome, final.dispatched_at, final.runs) == ("rejected", None, 0)
        assert (await phone.wait_for_callback("echo")).outcome == "rejected"


@pytest.mark.requirement("R33")
async def test_a_call_past_its_deadline_is_timed_out_and_cancelled_upstream(tmp_path: Path) -> None:
    stage, clock = ControlledUpstream(), OffsetClock()
    clock.stop()
    async with running_with_upstream(tmp_path, stage, environment=Environment(clock=clock)) as (ringback, phone):
        alice = await ringback.create_agent_client("alice")
        call = await start_upstream_call(alice, "hold", phone, timeout_seconds=0.5)
        await asyncio.wait_for(stage.wait_until_held(1), WAIT_SECONDS)
        clock.resume()
        final = await wait_until_ended(alice, call)

        assert final.outcome == "timed_out"
        await asyncio.wait_for(stage.cancelled.wait(), WAIT_SECONDS)
