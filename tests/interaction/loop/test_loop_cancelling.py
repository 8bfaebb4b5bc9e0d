"""Cancelling a call through the whole service: its upstream is told, it rings once, and its room is free at once."""

import asyncio
from dataclasses import replace
from pathlib import Path

from ringback.client import Call
from ringback.domain.ids import CallId
from tests.support.application import call_stage, ended, listening, on_stage, running_application
from tests.support.engine import until
from tests.support.upstreams import WAIT_SECONDS, Stage, free_port, http_config


async def test_cancelling_a_running_call_tells_its_upstream_and_rings_once(tmp_path: Path) -> None:
    stage = Stage()
    async with on_stage(tmp_path, stage) as (ringback, phone):
        alice = await ringback.agent("alice")
        call = await call_stage(alice, "hold", phone)
        await asyncio.wait_for(stage.until_inside(1), WAIT_SECONDS)

        assert (await alice.cancel(call.id)).cancel_requested
        await asyncio.wait_for(stage.cancelled.wait(), WAIT_SECONDS)
        assert (await ended(alice, call)).outcome == "cancelled"
        assert (await phone.ring("hold")).outcome == "cancelled"
        assert (await alice.cancel(call.id)).outcome == "cancelled"
    assert len(phone.callbacks) == 1


async def test_a_call_that_is_cancelled_while_it_waits_for_its_upstream_makes_room_at_once(tmp_path: Path) -> None:
    away = replace(http_config(f"http://127.0.0.1:{free_port()}/mcp"), max_concurrent=1)
    async with listening() as phone, running_application(tmp_path, away) as ringback:
        alice = await ringback.agent("alice")
        first, second = [await call_stage(alice, "echo", phone) for _ in range(2)]

        async def has_the_room(call: Call) -> bool:
            row = await ringback.app.store.read(lambda tx: tx.calls.get(CallId(call.id)))
            return row is not None and row.lease_token is not None

        await until(lambda: has_the_room(first))
        assert (await alice.cancel(first.id)).outcome == "cancelled"
        await asyncio.wait_for(until(lambda: has_the_room(second)), WAIT_SECONDS / 4)


async def test_a_call_that_has_ended_stays_as_it_is(tmp_path: Path) -> None:
    async with on_stage(tmp_path, Stage()) as (ringback, phone):
        alice = await ringback.agent("alice")
        call = await call_stage(alice, "echo", phone)
        await ended(alice, call)

        assert (await alice.cancel(call.id)).outcome == "result"
