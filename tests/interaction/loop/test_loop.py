"""The loop, whole: call a tool, hang up, get rung back, rejoin, pull the result."""

import asyncio
from pathlib import Path

import pytest

from ringback.bootstrap import Environment
from ringback.client import Gone, NotFound
from tests.support.application import SECRET, call_stage, ended, on_stage
from tests.support.clock import ShiftedClock
from tests.support.engine import until
from tests.support.upstreams import WAIT_SECONDS, Stage

AGENTS = 20
REPEATS = 50


@pytest.mark.requirement("R12")
@pytest.mark.requirement("R16")
@pytest.mark.requirement("R18")
@pytest.mark.requirement("R19")
@pytest.mark.requirement("R21")
async def test_the_whole_loop(tmp_path: Path) -> None:
    stage = Stage()
    async with on_stage(tmp_path, stage) as (ringback, phone):
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
    async with on_stage(tmp_path, Stage()) as (ringback, phone):
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
    async with on_stage(tmp_path, stage) as (ringback, phone):
        alice = await ringback.agent("alice")
        repeats = (call_stage(alice, "echo", phone, idempotency_key="once") for _ in range(REPEATS))
        calls = await asyncio.gather(*repeats)
        await ended(alice, calls[0])

    assert len({call.id for call in calls}) == 1
    assert len(stage.calls) == 1


# -- on the way -------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R03")
@pytest.mark.requirement("R20")
async def test_progress_is_in_the_log_and_on_the_call_and_rings_nobody_who_did_not_ask(tmp_path: Path) -> None:
    stage = Stage()
    async with on_stage(tmp_path, stage) as (ringback, phone):
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
    async with on_stage(tmp_path, Stage(), world=Environment(clock=clock)) as (ringback, phone):
        alice = await ringback.agent("alice")
        await call_stage(alice, "echo", phone)
        token = (await phone.ring("echo")).resume_token or ""
        assert (await alice.resume(token)).result is not None

        clock.advance(7 * 86400 + 1)

        with pytest.raises(Gone):
            await alice.resume(token)
