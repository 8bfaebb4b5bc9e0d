"""The whole service in trouble: a full disk, a worker that fails, a receiver that is away, and a stop amid all of it."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from ringback.bootstrap import Environment
from ringback.domain.errors import ShuttingDown
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import DEFAULT_SCOPES, Caller, Principal
from ringback.services.calls.call_starts import StartCallRequest
from scripts.ports import free_port
from tests.support.application import (
    SECRET,
    running_application,
    running_with_upstream,
    serving_callbacks,
    start_upstream_call,
    wait_until_ended,
)
from tests.support.clock import OffsetClock
from tests.support.engine import wait_until
from tests.support.receivers import NO_CONTENT, respond_with, response, serving_receiver
from tests.support.stores import FOREVER, FailingStore, StoreWrapper
from tests.support.upstreams import WAIT_SECONDS, ControlledUpstream, make_http_config, serving

ALICE = Caller(principal=Principal("alice"), scopes=DEFAULT_SCOPES)


# -- trouble inside ---------------------------------------------------------------------------------------------------------


async def test_a_full_disk_refuses_new_calls_and_loses_no_completion(tmp_path: Path) -> None:
    stage, stores = ControlledUpstream(), list[FailingStore]()

    def unsteady(store: Store) -> Store:
        stores.append(FailingStore(store))
        return stores[0]

    async with running_with_upstream(tmp_path, stage, environment=Environment(wrap_store=unsteady)) as (
        ringback,
        phone,
    ):
        alice = await ringback.create_agent_client("alice")
        call = await start_upstream_call(alice, "hold", phone)
        await asyncio.wait_for(stage.wait_until_held(1), WAIT_SECONDS)

        async def is_ready() -> bool:
            return (await ringback.get("/readyz")).status_code == 200

        async def is_refusing() -> bool:
            return (await ringback.get("/readyz")).status_code == 503

        stores[0].refusals = FOREVER
        stage.release.set()
        await wait_until(is_refusing)  # an answer may be a second old
        assert (await alice.call(call.id)).status == "working"

        stores[0].refusals = 0
        assert (await phone.wait_for_callback("hold")).outcome == "result"
        await wait_until(is_ready)


class StoreWithBug(StoreWrapper):
    """A store in which leasing deliveries meets a bug."""

    async def write(self, work: Callable[[Transaction], Awaitable[Any]]) -> Any:
        if getattr(work, "__qualname__", "").startswith("DeliveryLeasing._lease_due"):
            raise ZeroDivisionError
        return await super().write(work)


async def test_a_failing_worker_fails_readiness_and_stops_no_other_worker(tmp_path: Path) -> None:
    async with running_with_upstream(
        tmp_path, ControlledUpstream(), environment=Environment(wrap_store=StoreWithBug)
    ) as (
        ringback,
        phone,
    ):
        alice = await ringback.create_agent_client("alice")
        call = await start_upstream_call(alice, "echo", phone)

        assert (await wait_until_ended(alice, call)).outcome == "result"
        ready = await ringback.get("/readyz")
        assert ready.status_code == 503
        assert ready.json()["failing"] == ["dispatcher"]
        assert (await ringback.get("/healthz")).status_code == 200


@pytest.mark.requirement("R27")
async def test_a_receiver_that_was_unreachable_gets_the_same_callback_later(tmp_path: Path) -> None:
    clock = OffsetClock()
    async with (
        serving(ControlledUpstream().app()) as server,
        serving_receiver(respond_with(response("500 Oops"), NO_CONTENT)) as receiver,
        running_application(tmp_path, make_http_config(server.url), environment=Environment(clock=clock)) as ringback,
    ):
        alice = await ringback.create_agent_client("alice")
        started = await alice.start_call("stage", "echo", callback={"url": receiver.url(), "secret": SECRET})
        await asyncio.wait_for(receiver.arrived.wait(), WAIT_SECONDS)

        async def is_in(state: str) -> bool:
            return [each.state async for each in alice.deliveries(call_id=started.call.id)] == [state]

        await wait_until(lambda: is_in("pending"))
        clock.advance(6)
        await wait_until(lambda: is_in("delivered"))

    first, second = receiver.requests
    assert first.body == second.body
    assert first.headers["webhook-id"] == second.headers["webhook-id"]


# -- stopping, and starting again -------------------------------------------------------------------------------------------


@pytest.mark.requirement("R35")
async def test_after_a_restart_queued_calls_run_and_interrupted_ones_end_as_unknown(tmp_path: Path) -> None:
    stage, port = ControlledUpstream(), free_port()
    later = make_http_config(f"http://127.0.0.1:{port}/mcp", name="later")
    async with serving_callbacks() as phone, serving(stage.app()) as server:
        upstreams = (make_http_config(server.url), later)
        async with running_application(tmp_path, *upstreams) as ringback:
            alice = await ringback.create_agent_client("alice")
            cut = await start_upstream_call(alice, "hold", phone)
            waiting = (await alice.start_call("later", "echo")).call
            await asyncio.wait_for(stage.wait_until_held(1), WAIT_SECONDS)

        async with (
            serving(ControlledUpstream().app(), port=port),
            running_application(tmp_path, *upstreams) as ringback,
        ):
            alice = await ringback.create_agent_client("alice")
            assert (await wait_until_ended(alice, waiting)).outcome == "result"
            assert (await alice.call(cut.id)).outcome == "unknown"
            assert (await phone.wait_for_callback("hold")).outcome == "unknown"

    assert len(stage.calls) == 1
    assert len(phone.callbacks) == 1


async def test_a_service_that_stops_refuses_new_work_and_answers_who_waits(tmp_path: Path) -> None:
    stage = ControlledUpstream()
    async with running_with_upstream(tmp_path, stage, drain_seconds=WAIT_SECONDS) as (ringback, phone):
        alice = await ringback.create_agent_client("alice")
        call = await start_upstream_call(alice, "hold", phone)
        await asyncio.wait_for(stage.wait_until_held(1), WAIT_SECONDS)
        waiting = asyncio.create_task(alice.call(call.id, wait_seconds=60))
        await asyncio.sleep(0)

        ringback.stop.set()

        assert (await asyncio.wait_for(waiting, WAIT_SECONDS)).status == "working"
        assert (await ringback.get("/readyz")).status_code == 503
        with pytest.raises(ShuttingDown):
            await ringback.app.services.calls.start_call(ALICE, StartCallRequest(upstream="stage", tool="echo"))
        stage.release.set()
        assert (await wait_until_ended(alice, call)).outcome == "result"
