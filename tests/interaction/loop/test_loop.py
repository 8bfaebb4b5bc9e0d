"""The loop, whole: call a tool, hang up, get rung back, rejoin, pull the result."""

import asyncio
from pathlib import Path

import pytest

from ringback.bootstrap import Environment
from ringback.client import Gone, NotFound
from tests.support.application import SECRET, running_with_upstream, start_upstream_call, wait_until_ended
from tests.support.clock import OffsetClock
from tests.support.engine import wait_until
from tests.support.upstreams import WAIT_SECONDS, ControlledUpstream

AGENTS, AGENTS_DEEP = 8, 20
REPEATS, REPEATS_DEEP = 20, 50


@pytest.mark.requirement("R12")
@pytest.mark.requirement("R16")
@pytest.mark.requirement("R18")
@pytest.mark.requirement("R19")
@pytest.mark.requirement("R21")
async def test_the_whole_loop(tmp_path: Path) -> None:
    stage = ControlledUpstream()
    async with running_with_upstream(tmp_path, stage) as (ringback, phone):
        async with await ringback.create_agent_client("alice") as first:
            await first.register_webhook(phone.url, secret=SECRET, client_session_id="session-1")
            started = await first.start_call(
                "stage", "hold", {"text": "hello"}, client_session_id="session-1", correlation_id="report-1"
            )
            await asyncio.wait_for(stage.wait_until_held(1), WAIT_SECONDS)
        stage.release.set()

        callback = await phone.wait_for_callback("report-1")
        assert (callback.call_id, callback.outcome) == (started.call.id, "result")
        assert (callback.client_session_id, callback.correlation_id) == ("session-1", "report-1")

        second = await ringback.create_agent_client("alice")
        resumed = await second.resume(callback.resume_token or "")
        assert resumed.call.id == started.call.id
        assert resumed.result is not None
        assert resumed.result["content"] == [{"type": "text", "text": '{"text": "hello"}'}]


@pytest.mark.requirement("R21")
@pytest.mark.requirement("R25")
async def test_many_agents_at_once_each_get_callbacks_for_their_own_calls(tmp_path: Path, *, deep: bool) -> None:
    count = AGENTS_DEEP if deep else AGENTS
    async with running_with_upstream(tmp_path, ControlledUpstream()) as (ringback, phone):
        agents = [await ringback.create_agent_client(f"agent-{number}") for number in range(count)]
        calls = await asyncio.gather(
            *(start_upstream_call(agent, "echo", phone, correlation_id=f"work-{n}") for n, agent in enumerate(agents))
        )
        callbacks = [await phone.wait_for_callback(f"work-{number}") for number in range(count)]

        assert [callback.call_id for callback in callbacks] == [call.id for call in calls]
        tokens = [callback.resume_token or "" for callback in callbacks]
        resumed = [await agent.resume(token) for agent, token in zip(agents, tokens, strict=True)]
        assert [each.call.id for each in resumed] == [call.id for call in calls]
        with pytest.raises(NotFound):
            await agents[0].resume(tokens[1])
    assert len(phone.callbacks) == count


@pytest.mark.requirement("R13")
async def test_one_key_sent_many_times_at_once_runs_the_tool_once(tmp_path: Path, *, deep: bool) -> None:
    count = REPEATS_DEEP if deep else REPEATS
    stage = ControlledUpstream()
    async with running_with_upstream(tmp_path, stage) as (ringback, phone):
        alice = await ringback.create_agent_client("alice")
        repeats = (start_upstream_call(alice, "echo", phone, idempotency_key="once") for _ in range(count))
        calls = await asyncio.gather(*repeats)
        await wait_until_ended(alice, calls[0])

    assert len({call.id for call in calls}) == 1
    assert len(stage.calls) == 1


# -- on the way -------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R03")
@pytest.mark.requirement("R20")
async def test_progress_is_in_the_log_and_on_the_call_and_is_sent_to_subscribers_only(tmp_path: Path) -> None:
    stage = ControlledUpstream()
    async with running_with_upstream(tmp_path, stage) as (ringback, phone):
        alice = await ringback.create_agent_client("alice")
        call = await start_upstream_call(alice, "halfway", phone)

        async def half_is_told() -> bool:
            return (await alice.call(call.id)).progress is not None

        await wait_until(half_is_told)
        stage.release.set()
        final = await wait_until_ended(alice, call)
        await phone.wait_for_callback("halfway")

        assert final.progress is not None
        assert (final.progress.progress, final.progress.total) == (2, 2)
        names = [event.name async for event in alice.events(call_id=call.id)]
        assert (names[0], names[-1]) == ("call.progress", "call.finished")
    assert [callback.name for callback in phone.callbacks] == ["call.finished"]


@pytest.mark.requirement("R33")
async def test_a_result_and_its_tokens_go_together_when_their_time_has_come(tmp_path: Path) -> None:
    clock = OffsetClock()
    async with running_with_upstream(tmp_path, ControlledUpstream(), environment=Environment(clock=clock)) as (
        ringback,
        phone,
    ):
        alice = await ringback.create_agent_client("alice")
        await start_upstream_call(alice, "echo", phone)
        token = (await phone.wait_for_callback("echo")).resume_token or ""
        assert (await alice.resume(token)).result is not None

        clock.advance(7 * 86400 + 1)

        with pytest.raises(Gone):
            await alice.resume(token)
