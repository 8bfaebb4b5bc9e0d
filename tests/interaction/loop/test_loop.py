"""The loop, whole: call a tool, hang up, get rung back, rejoin, pull the result."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ringback.bootstrap import World
from ringback.client import Call, Gone, NotFound, RingbackClient
from ringback.domain.errors import ShuttingDown
from ringback.domain.ids import CallId
from ringback.domain.ports import Store
from ringback.domain.principal import DEFAULT_SCOPES, Caller, Principal
from ringback.services.calls import StartCall
from tests.support.application import SECRET, Phone, listening, running_application
from tests.support.engine import UnsteadyStore, until
from tests.support.receivers import NO_CONTENT, answering, response, serve
from tests.support.service import ShiftedClock
from tests.support.upstreams import WAIT_SECONDS, Stage, free_port, http_config, serving

AGENTS = 20
REPEATS = 50
ALICE = Caller(principal=Principal("alice"), scopes=DEFAULT_SCOPES)


async def call_stage(agent: RingbackClient, tool: str, phone: Phone, **options: Any) -> Call:
    """Start a call that rings `phone`; its own name is the tool's."""
    named: dict[str, Any] = {"correlation_id": tool} | options
    started = await agent.start_call(
        "stage", tool, {"text": "hello"}, callback={"url": phone.url, "secret": SECRET}, **named
    )
    return started.call


async def ended(agent: RingbackClient, call: Call) -> Call:
    return await asyncio.wait_for(agent.wait(call.id), WAIT_SECONDS)


@pytest.mark.requirement("R12")
@pytest.mark.requirement("R16")
@pytest.mark.requirement("R18")
@pytest.mark.requirement("R19")
@pytest.mark.requirement("R21")
async def test_the_whole_loop(tmp_path: Path) -> None:
    stage = Stage()
    async with (
        serving(stage.app()) as server,
        listening() as phone,
        running_application(tmp_path, http_config(server.url)) as ringback,
    ):
        async with await ringback.agent("alice") as first:
            await first.register_webhook(phone.url, secret=SECRET, client_session_id="session-1")
            started = await first.start_call(
                "stage", "hold", {"text": "hello"}, client_session_id="session-1", correlation_id="report-1"
            )
            await asyncio.wait_for(stage.until_inside(1), WAIT_SECONDS)
        stage.release.set()

        callback = await phone.ring("report-1")
        assert (callback.call_id, callback.outcome) == (started.call.id, "result")
        assert (callback.client_session_id, callback.correlation_id) == ("session-1", "report-1")

        second = await ringback.agent("alice")
        resumed = await second.resume(callback.resume_token or "")
        assert resumed.call.id == started.call.id
        assert resumed.result is not None
        assert resumed.result["content"] == [{"type": "text", "text": '{"text": "hello"}'}]


@pytest.mark.requirement("R21")
@pytest.mark.requirement("R25")
async def test_many_agents_at_once_are_each_rung_for_their_own_work(tmp_path: Path) -> None:
    async with (
        serving(Stage().app()) as server,
        listening() as phone,
        running_application(tmp_path, http_config(server.url)) as ringback,
    ):
        agents = [await ringback.agent(f"agent-{number}") for number in range(AGENTS)]
        calls = await asyncio.gather(
            *(call_stage(agent, "echo", phone, correlation_id=f"work-{n}") for n, agent in enumerate(agents))
        )
        callbacks = [await phone.ring(f"work-{number}") for number in range(AGENTS)]

        assert [callback.call_id for callback in callbacks] == [call.id for call in calls]
        tokens = [callback.resume_token or "" for callback in callbacks]
        resumed = [await agent.resume(token) for agent, token in zip(agents, tokens, strict=True)]
        assert [each.call.id for each in resumed] == [call.id for call in calls]
        with pytest.raises(NotFound):
            await agents[0].resume(tokens[1])
    assert len(phone.callbacks) == AGENTS


@pytest.mark.requirement("R13")
async def test_one_key_sent_many_times_at_once_runs_the_tool_once(tmp_path: Path) -> None:
    stage = Stage()
    async with (
        serving(stage.app()) as server,
        listening() as phone,
        running_application(tmp_path, http_config(server.url)) as ringback,
    ):
        alice = await ringback.agent("alice")
        repeats = (call_stage(alice, "echo", phone, idempotency_key="once") for _ in range(REPEATS))
        calls = await asyncio.gather(*repeats)
        await ended(alice, calls[0])

    assert len({call.id for call in calls}) == 1
    assert len(stage.calls) == 1


# -- outcomes ---------------------------------------------------------------------------------------------------------------


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
    async with (
        serving(Stage().app()) as server,
        listening() as phone,
        running_application(tmp_path, http_config(server.url)) as ringback,
    ):
        alice = await ringback.agent("alice")
        call = await call_stage(alice, tool, phone)
        callback = await phone.ring(tool)

        assert (callback.status, callback.outcome) == (status, outcome)
        final = await alice.call(call.id)
        assert (final.status, final.outcome) == (status, outcome)


@pytest.mark.requirement("R33")
async def test_an_upstreams_own_error_is_kept_as_it_came(tmp_path: Path) -> None:
    async with (
        serving(Stage().app()) as server,
        listening() as phone,
        running_application(tmp_path, http_config(server.url)) as ringback,
    ):
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
    stage = Stage()
    async with (
        serving(stage.app()) as server,
        listening() as phone,
        running_application(tmp_path, http_config(server.url)) as ringback,
    ):
        alice = await ringback.agent("alice")
        final = await ended(alice, await call_stage(alice, "hold", phone, timeout_seconds=0.5))

        assert final.outcome == "timed_out"
        await asyncio.wait_for(stage.cancelled.wait(), WAIT_SECONDS)


# -- cancelling -------------------------------------------------------------------------------------------------------------


async def test_cancelling_a_running_call_tells_its_upstream_and_rings_once(tmp_path: Path) -> None:
    stage = Stage()
    async with (
        serving(stage.app()) as server,
        listening() as phone,
        running_application(tmp_path, http_config(server.url)) as ringback,
    ):
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
    async with (
        serving(Stage().app()) as server,
        listening() as phone,
        running_application(tmp_path, http_config(server.url)) as ringback,
    ):
        alice = await ringback.agent("alice")
        call = await call_stage(alice, "echo", phone)
        await ended(alice, call)

        assert (await alice.cancel(call.id)).outcome == "result"


# -- on the way -------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R03")
@pytest.mark.requirement("R20")
async def test_progress_is_in_the_log_and_on_the_call_and_rings_nobody_who_did_not_ask(tmp_path: Path) -> None:
    stage = Stage()
    async with (
        serving(stage.app()) as server,
        listening() as phone,
        running_application(tmp_path, http_config(server.url)) as ringback,
    ):
        alice = await ringback.agent("alice")
        call = await call_stage(alice, "halfway", phone)

        async def half_is_told() -> bool:
            return (await alice.call(call.id)).progress is not None

        await until(half_is_told)
        stage.release.set()
        final = await ended(alice, call)
        await phone.ring("halfway")

        assert final.progress is not None
        assert (final.progress.progress, final.progress.total) == (2, 2)
        told = [event.name async for event in alice.events(call_id=call.id)]
        assert (told[0], told[-1]) == ("call.progress", "call.finished")
    assert [callback.name for callback in phone.callbacks] == ["call.finished"]


@pytest.mark.requirement("R33")
async def test_a_result_and_its_tokens_go_together_when_their_time_has_come(tmp_path: Path) -> None:
    clock = ShiftedClock()
    async with (
        serving(Stage().app()) as server,
        listening() as phone,
        running_application(tmp_path, http_config(server.url), world=World(clock=clock)) as ringback,
    ):
        alice = await ringback.agent("alice")
        await call_stage(alice, "echo", phone)
        token = (await phone.ring("echo")).resume_token or ""
        assert (await alice.resume(token)).result is not None

        clock.advance(7 * 86400 + 1)

        with pytest.raises(Gone):
            await alice.resume(token)


# -- trouble inside ---------------------------------------------------------------------------------------------------------


async def test_a_full_disk_refuses_new_work_and_loses_no_end(tmp_path: Path) -> None:
    stage, stores = Stage(), list[UnsteadyStore]()

    def unsteady(store: Store) -> Store:
        stores.append(UnsteadyStore(store))
        return stores[0]

    async with (
        serving(stage.app()) as server,
        listening() as phone,
        running_application(tmp_path, http_config(server.url), world=World(store=unsteady)) as ringback,
    ):
        alice = await ringback.agent("alice")
        call = await call_stage(alice, "hold", phone)
        await asyncio.wait_for(stage.until_inside(1), WAIT_SECONDS)

        stores[0].refusals = 1_000_000
        stage.release.set()
        assert (await ringback.get("/readyz")).status_code == 503
        assert (await alice.call(call.id)).status == "working"

        stores[0].refusals = 0
        assert (await phone.ring("hold")).outcome == "result"
        assert (await ringback.get("/readyz")).status_code == 200


class Buggy:
    """A store in which leasing deliveries meets a bug."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.signals = store.signals

    async def read(self, work: Any) -> Any:
        return await self._store.read(work)

    async def write(self, work: Any) -> Any:
        if getattr(work, "__qualname__", "").startswith("Claims._claim"):
            raise ZeroDivisionError
        return await self._store.write(work)


async def test_a_worker_that_fails_turns_readiness_red_and_stops_nobody_else(tmp_path: Path) -> None:
    async with (
        serving(Stage().app()) as server,
        listening() as phone,
        running_application(tmp_path, http_config(server.url), world=World(store=Buggy)) as ringback,
    ):
        alice = await ringback.agent("alice")
        call = await call_stage(alice, "echo", phone)

        assert (await ended(alice, call)).outcome == "result"
        ready = await ringback.get("/readyz")
        assert ready.status_code == 503
        assert ready.json()["failing"] == ["dispatcher"]
        assert (await ringback.get("/healthz")).status_code == 200


@pytest.mark.requirement("R27")
async def test_a_receiver_that_was_away_gets_the_same_callback_later(tmp_path: Path) -> None:
    clock = ShiftedClock()
    async with (
        serving(Stage().app()) as server,
        serve(answering(response("500 Oops"), NO_CONTENT)) as receiver,
        running_application(tmp_path, http_config(server.url), world=World(clock=clock)) as ringback,
    ):
        alice = await ringback.agent("alice")
        started = await alice.start_call("stage", "echo", callback={"url": receiver.url(), "secret": SECRET})
        await asyncio.wait_for(receiver.arrived.wait(), WAIT_SECONDS)

        async def is_in(state: str) -> bool:
            return [each.state async for each in alice.deliveries(call_id=started.call.id)] == [state]

        await until(lambda: is_in("pending"))
        clock.advance(6)
        await until(lambda: is_in("delivered"))

    first, second = receiver.requests
    assert first.body == second.body
    assert first.headers["webhook-id"] == second.headers["webhook-id"]


# -- stopping, and starting again -------------------------------------------------------------------------------------------


@pytest.mark.requirement("R35")
async def test_what_was_queued_runs_and_what_was_cut_off_is_told_after_a_restart(tmp_path: Path) -> None:
    stage, port = Stage(), free_port()
    later = http_config(f"http://127.0.0.1:{port}/mcp", name="later")
    async with listening() as phone, serving(stage.app()) as server:
        upstreams = (http_config(server.url), later)
        async with running_application(tmp_path, *upstreams) as ringback:
            alice = await ringback.agent("alice")
            cut = await call_stage(alice, "hold", phone)
            waiting = (await alice.start_call("later", "echo")).call
            await asyncio.wait_for(stage.until_inside(1), WAIT_SECONDS)

        async with serving(Stage().app(), port=port), running_application(tmp_path, *upstreams) as ringback:
            alice = await ringback.agent("alice")
            assert (await ended(alice, waiting)).outcome == "result"
            assert (await alice.call(cut.id)).outcome == "unknown"
            assert (await phone.ring("hold")).outcome == "unknown"

    assert len(stage.calls) == 1
    assert len(phone.callbacks) == 1


async def test_a_service_that_stops_refuses_new_work_and_answers_who_waits(tmp_path: Path) -> None:
    stage = Stage()
    async with (
        serving(stage.app()) as server,
        listening() as phone,
        running_application(tmp_path, http_config(server.url), drain_seconds=WAIT_SECONDS) as ringback,
    ):
        alice = await ringback.agent("alice")
        call = await call_stage(alice, "hold", phone)
        await asyncio.wait_for(stage.until_inside(1), WAIT_SECONDS)
        waiting = asyncio.create_task(alice.call(call.id, wait_seconds=60))
        await asyncio.sleep(0)

        ringback.stop.set()

        assert (await asyncio.wait_for(waiting, WAIT_SECONDS)).status == "working"
        assert (await ringback.get("/readyz")).status_code == 503
        with pytest.raises(ShuttingDown):
            await ringback.app.services.calls.start(ALICE, StartCall(upstream="stage", tool="echo"))
        stage.release.set()
        assert (await ended(alice, call)).outcome == "result"
