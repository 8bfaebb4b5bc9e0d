"""Cancelling a call through the whole service: its upstream is cancelled, one callback is sent, and its permit is free."""

import asyncio
from dataclasses import replace
from pathlib import Path

from ringback.client import Call
from ringback.domain.ids import CallId
from scripts.ports import free_port
from tests.support.application import (
    running_application,
    running_with_upstream,
    serving_callbacks,
    start_upstream_call,
    wait_until_ended,
)
from tests.support.engine import wait_until
from tests.support.upstreams import WAIT_SECONDS, ControlledUpstream, make_http_config


async def test_cancelling_a_running_call_cancels_upstream_and_sends_one_callback(tmp_path: Path) -> None:
    stage = ControlledUpstream()
    async with running_with_upstream(tmp_path, stage) as (ringback, phone):
        alice = await ringback.create_agent_client("alice")
        call = await start_upstream_call(alice, "hold", phone)
        await asyncio.wait_for(stage.wait_until_held(1), WAIT_SECONDS)

        assert (await alice.cancel(call.id)).cancel_requested
        await asyncio.wait_for(stage.cancelled.wait(), WAIT_SECONDS)
        assert (await wait_until_ended(alice, call)).outcome == "cancelled"
        assert (await phone.wait_for_callback("hold")).outcome == "cancelled"
        assert (await alice.cancel(call.id)).outcome == "cancelled"
    assert len(phone.callbacks) == 1


async def test_a_call_cancelled_while_it_waits_for_its_upstream_releases_its_capacity_at_once(tmp_path: Path) -> None:
    away = replace(make_http_config(f"http://127.0.0.1:{free_port()}/mcp"), max_concurrent=1)
    async with serving_callbacks() as phone, running_application(tmp_path, away) as ringback:
        alice = await ringback.create_agent_client("alice")
        first, second = [await start_upstream_call(alice, "echo", phone) for _ in range(2)]

        async def has_the_room(call: Call) -> bool:
            row = await ringback.app.store.read(lambda tx: tx.calls.get(CallId(call.id)))
            return row is not None and row.lease_token is not None

        await wait_until(lambda: has_the_room(first))
        assert (await alice.cancel(first.id)).outcome == "cancelled"
        await asyncio.wait_for(wait_until(lambda: has_the_room(second)), WAIT_SECONDS / 4)


async def test_a_call_that_has_ended_stays_as_it_is(tmp_path: Path) -> None:
    async with running_with_upstream(tmp_path, ControlledUpstream()) as (ringback, phone):
        alice = await ringback.create_agent_client("alice")
        call = await start_upstream_call(alice, "echo", phone)
        await wait_until_ended(alice, call)

        assert (await alice.cancel(call.id)).outcome == "result"
