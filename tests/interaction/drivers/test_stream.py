"""Calls in legacy sessions: a response that was lost is read from the event stream, from the last event that arrived."""

import asyncio
from dataclasses import replace

import mcp_types as types
import pytest
from mcp.server.streamable_http import EventCallback

from ringback.backoff import Backoff
from ringback.domain.call import CallPhase, CallStatus
from ringback.domain.call_outcome import CallOutcome
from ringback.runner.drivers import stream
from ringback.upstreams.config import Isolation
from tests.support.calls import (
    answer_call,
    insert_call_to,
    make_call_to,
    notify_execution,
    request_cancel,
    run_until_handle,
    running_runner,
    running_with_app,
    wait_for_call,
    wait_for_handle,
    wait_for_input_request,
)
from tests.support.clock import OffsetClock
from tests.support.engine import Engine
from tests.support.legacy_upstream import ACCEPTED_ANSWER, LegacyUpstream, RecordedEventStore, ReplayOfAllStreams
from tests.support.upstreams import WAIT_SECONDS, make_http_config, open_upstreams, serving

OWN_SESSION_CALL = Isolation.CALL


async def test_the_stream_position_is_saved_while_the_tool_runs(engine: Engine) -> None:
    stage, call = LegacyUpstream(), await insert_call_to(engine, "work")

    async with running_with_app(engine, stage.app()):
        kept = await wait_for_handle(engine, call)
        stage.release.set()
        (ended,) = await engine.wait_until_final(call)

    assert kept.handle is not None
    assert kept.handle.driver == "stream"
    assert kept.handle.data["session_id"] == stage.sessions[-1]
    assert (ended.outcome, ended.runs, ended.handle) == (CallOutcome.RESULT, 1, None)
    assert stage.effects == ["work"]


@pytest.mark.requirement("R09")
async def test_an_answer_whose_connection_broke_is_read_over_another(engine: Engine) -> None:
    stage, call = LegacyUpstream(), await insert_call_to(engine, "work")

    async with running_with_app(engine, stage.app()) as server:
        before = await wait_for_handle(engine, call)
        server.drop_connections()
        await wait_for_call(engine, call, lambda found: found.handle != before.handle)
        stage.release.set()
        (ended,) = await engine.wait_until_final(call)

    assert (ended.outcome, ended.runs) == (CallOutcome.RESULT, 1)
    assert stage.effects == ["work"]


@pytest.mark.requirement("R09")
@pytest.mark.requirement("R35")
async def test_the_next_process_reads_on_where_this_one_stopped(engine: Engine) -> None:
    stage, call = LegacyUpstream(), await insert_call_to(engine, "work")

    async with serving(stage.app()) as server:
        config = make_http_config(server.url)
        await run_until_handle(engine, config, call)
        between = await engine.read_call(call)
        async with running_runner(engine, config):
            await stage.wait_until(lambda: stage.count("GET", resuming=True))
            stage.release.set()
            (ended,) = await engine.wait_until_final(call)

    assert (between.phase, between.status) == (CallPhase.QUEUED, CallStatus.WORKING)
    assert (ended.outcome, ended.runs) == (CallOutcome.RESULT, 1)
    assert ended.progress is not None
    assert (ended.progress.progress, ended.progress.message) == (2, "nearly done")
    assert stage.effects == ["work"]
    assert not stage.cancelled.is_set()


async def test_an_answer_that_came_in_between_is_still_there(engine: Engine) -> None:
    stage, call = LegacyUpstream(), await insert_call_to(engine, "work")

    async with serving(stage.app()) as server:
        config = make_http_config(server.url)
        await run_until_handle(engine, config, call)
        stage.release.set()
        async with running_runner(engine, config):
            (ended,) = await engine.wait_until_final(call)

    assert (ended.outcome, stage.effects) == (CallOutcome.RESULT, ["work"])


class ResponseAfterReplay(RecordedEventStore):
    """Keeps the answer when everything before it was replayed, and before the stream that is read on gets an id of its own."""

    def __init__(self, stage: LegacyUpstream) -> None:
        super().__init__()
        self._stage = stage
        self._answered = asyncio.Event()

    async def store_event(self, stream_id: str, message: types.JSONRPCMessage | None) -> str:
        event_id = await super().store_event(stream_id, message)
        if isinstance(message, types.JSONRPCResponse) and self._stage.release.is_set():
            self._answered.set()
        return event_id

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        stream_id = await super().replay_events_after(last_event_id, send_callback)
        self._stage.release.set()
        await asyncio.wait_for(self._answered.wait(), WAIT_SECONDS)
        return stream_id


@pytest.mark.requirement("R35")
async def test_a_response_stored_behind_the_replay_is_fetched_from_the_same_position(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "READ_TIMEOUT", Backoff(first_seconds=0.2, longest_seconds=300.0))
    monkeypatch.setattr(stream, "RESUME_BACKOFF", Backoff(first_seconds=0.1, longest_seconds=60.0))
    stage, call = LegacyUpstream(), await insert_call_to(engine, "work")

    async with serving(stage.app(events=ResponseAfterReplay(stage))) as server:
        config = make_http_config(server.url)
        await run_until_handle(engine, config, call)
        async with running_runner(engine, config):
            (ended,) = await engine.wait_until_final(call)

    assert (ended.outcome, stage.effects) == (CallOutcome.RESULT, ["work"])
    assert stage.count("GET", resuming=True) >= 2


@pytest.mark.requirement("R35")
async def test_a_call_never_ends_with_the_response_to_another_request(engine: Engine) -> None:
    stage = LegacyUpstream()
    calls = [make_call_to(engine, "work", arguments={"number": number}) for number in range(2)]
    await engine.insert_calls(*calls)

    async with serving(stage.app(events=ReplayOfAllStreams())) as server:
        config = make_http_config(server.url)
        await run_until_handle(engine, config, *calls)
        stage.release.set()
        async with running_runner(engine, config):
            await engine.wait_until_final(*calls)

    for number, call in enumerate(calls):
        assert f'{{\\"number\\": {number}}}'.encode() in (await engine.read_result(call) or b"")


async def test_several_calls_of_one_session_are_read_on_side_by_side(engine: Engine) -> None:
    stage = LegacyUpstream()
    calls = [make_call_to(engine, "work", arguments={"number": number}) for number in range(3)]
    await engine.insert_calls(*calls)

    async with serving(stage.app()) as server:
        config = make_http_config(server.url)
        await run_until_handle(engine, config, *calls)
        async with running_runner(engine, config):
            await stage.wait_until(lambda: stage.count("GET", resuming=True) >= len(calls))
            stage.release.set()
            await engine.wait_until_final(*calls)

    for number, call in enumerate(calls):
        assert f'{{\\"number\\": {number}}}'.encode() in (await engine.read_result(call) or b"")
    assert len(stage.effects) == 3


@pytest.mark.requirement("R33")
async def test_a_call_whose_session_ended_ends_as_unknown(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "SESSION_GONE_SECONDS", 0.0)
    monkeypatch.setattr(stream, "RESUME_BACKOFF", Backoff(first_seconds=0.01, longest_seconds=0.01))
    stage, call = LegacyUpstream(), await insert_call_to(engine, "work")

    async with serving(stage.app()) as server:
        config = make_http_config(server.url)
        await run_until_handle(engine, config, call)
        await stage.end_session(server.url)
        async with running_runner(engine, config):
            (ended,) = await engine.wait_until_final(call)

    assert (ended.status, ended.outcome, stage.effects) == (CallStatus.FAILED, CallOutcome.UNKNOWN, ["work"])
    assert ended.error is not None
    assert "no longer knows the session" in ended.error["message"]


async def test_a_deadline_decides_when_no_answer_ever_comes(engine: Engine, clock: OffsetClock) -> None:
    stage, call = LegacyUpstream(), await insert_call_to(engine, "work")

    async with serving(stage.app()) as server:
        config = make_http_config(server.url)
        await run_until_handle(engine, config, call)
        async with running_runner(engine, config):
            await stage.wait_until(lambda: stage.count("GET", resuming=True))
            clock.advance(2 * 3600)
            await notify_execution(engine, call)
            (ended,) = await engine.wait_until_final(call)

    assert ended.outcome is CallOutcome.TIMED_OUT
    assert stage.cancelled.is_set()


async def test_a_server_that_keeps_no_events_is_called_like_any_other(engine: Engine) -> None:
    stage, call = LegacyUpstream(), await insert_call_to(engine, "work")

    app = stage.app(keeps_events=False)
    async with running_with_app(engine, app) as server:
        await wait_for_call(engine, call, lambda found: found.progress is not None)
        running = await engine.read_call(call)
        server.drop_connections()
        (ended,) = await engine.wait_until_final(call)

    assert running.handle is None
    assert ended.outcome is CallOutcome.UNKNOWN


# -- sessions ---------------------------------------------------------------------------------------------------------------


async def test_a_session_is_ended_unless_a_runner_resumes_it(engine: Engine) -> None:
    stage, quick, slow = LegacyUpstream(), make_call_to(engine, "work"), make_call_to(engine, "work")

    async with (
        serving(stage.app()) as server,
        open_upstreams(replace(make_http_config(server.url), isolation=OWN_SESSION_CALL)) as upstreams,
    ):
        stage.release.set()
        await engine.insert_calls(quick)
        async with engine.running_runner(upstreams):
            await engine.wait_until_final(quick)
            await stage.wait_until(lambda: stage.count("DELETE"))
        stage.release.clear()
        await engine.insert_calls(slow)
        async with engine.running_runner(upstreams, drain_seconds=0.01):
            await wait_for_handle(engine, slow)
        async with engine.running_runner(upstreams):
            await stage.wait_until(lambda: stage.count("GET", resuming=True))
            stage.release.set()
            (ended,) = await engine.wait_until_final(slow)

    assert ended.outcome is CallOutcome.RESULT
    assert (stage.effects, stage.count("DELETE")) == (["work", "work"], 1)


# -- cancelling -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keeps_events", [True, False], ids=["events", "no-events"])
async def test_cancelling_reaches_the_tool(engine: Engine, *, keeps_events: bool) -> None:
    stage, call = LegacyUpstream(), await insert_call_to(engine, "work")

    app = stage.app(keeps_events=keeps_events)
    async with running_with_app(engine, app):
        await wait_for_call(
            engine, call, lambda found: found.progress is not None and bool(found.handle) is keeps_events
        )
        await request_cancel(engine, call)
        (ended,) = await engine.wait_until_final(call)
        await stage.cancelled.wait()

    assert ended.outcome is CallOutcome.CANCELLED


async def test_cancelling_reaches_a_tool_that_another_process_called(engine: Engine) -> None:
    stage, call = LegacyUpstream(), await insert_call_to(engine, "work")

    async with serving(stage.app()) as server:
        config = make_http_config(server.url)
        await run_until_handle(engine, config, call)
        await request_cancel(engine, call)
        async with running_runner(engine, config):
            (ended,) = await engine.wait_until_final(call)
        await stage.cancelled.wait()

    assert ended.outcome is CallOutcome.CANCELLED


# -- questions --------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R32")
@pytest.mark.parametrize("isolation", [Isolation.SHARED, OWN_SESSION_CALL])
@pytest.mark.parametrize("keeps_events", [True, False], ids=["events", "no-events"])
async def test_an_elicitation_is_answered_in_the_session_of_the_call(
    engine: Engine, *, keeps_events: bool, isolation: Isolation
) -> None:
    stage, call = LegacyUpstream(), await insert_call_to(engine, "ask")

    async with serving(stage.app(keeps_events=keeps_events)) as server:
        config = replace(make_http_config(server.url), isolation=isolation)
        async with running_runner(engine, config):
            asked = await wait_for_input_request(engine, call)
            await answer_call(engine, call, {"r1.1": ACCEPTED_ANSWER})
            await stage.wait_until(lambda: stage.answers)
            working = await wait_for_call(engine, call, lambda found: not found.input_responses)
            stage.release.set()
            (ended,) = await engine.wait_until_final(call)

    assert asked.input_requests["r1.1"].params["message"] == "Really?"
    assert "_meta" not in asked.input_requests["r1.1"].params
    assert (stage.answers[0].action, stage.answers[0].content) == ("accept", {"sure": True})
    assert (working.status, working.input_requests) == (CallStatus.WORKING, {})
    assert ended.outcome is CallOutcome.RESULT


@pytest.mark.requirement("R32")
@pytest.mark.parametrize("isolation", list(Isolation))
async def test_a_question_is_answered_by_the_next_process(
    engine: Engine, clock: OffsetClock, isolation: Isolation
) -> None:
    stage, call = LegacyUpstream(), await insert_call_to(engine, "ask", deadline_in=24 * 3600)

    async with serving(stage.app()) as server:
        config = replace(make_http_config(server.url), isolation=isolation)
        async with running_runner(engine, config, drain_seconds=0.01):
            await wait_for_input_request(engine, call)
            await wait_for_handle(engine, call)
        clock.advance(3 * 3600)
        await answer_call(engine, call, {"r1.1": ACCEPTED_ANSWER})
        async with running_runner(engine, config):
            await stage.wait_until(lambda: stage.answers)
            stage.release.set()
            (ended,) = await engine.wait_until_final(call)

    assert (ended.outcome, ended.runs, stage.effects) == (CallOutcome.RESULT, 1, ["ask"])
    assert stage.answers[0].action == "accept"


@pytest.mark.parametrize("isolation", list(Isolation))
async def test_a_call_that_accepts_no_input_gets_no_elicitation(engine: Engine, isolation: Isolation) -> None:
    stage, call = LegacyUpstream(), await insert_call_to(engine, "ask", accepts_input=False)

    async with serving(stage.app()) as server:
        config = replace(make_http_config(server.url), isolation=isolation)
        async with running_runner(engine, config):
            (ended,) = await engine.wait_until_final(call)

    assert ended.outcome is CallOutcome.UPSTREAM_ERROR
    assert ended.input_round == 0
