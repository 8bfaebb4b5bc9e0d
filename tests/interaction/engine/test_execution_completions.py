"""A leased call ends with the result of its tool or with a failure before or after the dispatch."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from ringback.domain.call import Call, CallStatus
from ringback.domain.call_outcome import CallCompletion, CallOutcome
from ringback.domain.event import EventName
from ringback.runner.drivers.driver import BoundDriverPort
from ringback.upstreams.errors import UpstreamUnreachable
from tests.support.engine import Engine, OnProgress, ScriptedUpstreams
from tests.support.executions import lease_new_call, run_execution
from tests.support.stored_work import COMPLETED_RESULT, RESULT


async def test_a_call_ends_with_the_result_of_its_tool(engine: Engine) -> None:
    call = await lease_new_call(engine)

    await run_execution(engine.make_execution(call, ScriptedUpstreams()))

    ended = await engine.read_call(call)
    assert (ended.status, ended.outcome, ended.runs) == (CallStatus.COMPLETED, CallOutcome.RESULT, 1)
    assert (ended.lease_owner, ended.lease_token, ended.lease_until) == (None, None, None)
    assert ended.dispatched_at is not None
    assert await engine.read_result(call) == RESULT
    assert [event.name for event in await engine.read_events()] == [EventName.CALL_FINISHED]


async def test_a_call_is_marked_as_dispatched_before_the_upstream_receives_it(engine: Engine) -> None:
    call = await lease_new_call(engine)
    stored: list[Call] = []

    async def look(driven_call: Call, on_progress: OnProgress) -> CallCompletion:
        stored.append(await engine.read_call(call))
        return COMPLETED_RESULT

    await run_execution(engine.make_execution(call, ScriptedUpstreams(look)))

    assert stored[0].dispatched_at is not None
    assert stored[0].runs == 1


class FailingUpstreams(ScriptedUpstreams):
    """Upstreams where asking for a session fails."""

    def __init__(self, problem: Exception) -> None:
        super().__init__()
        self._problem = problem

    @asynccontextmanager
    async def open_call_session(self, call: Call) -> AsyncGenerator[BoundDriverPort]:  # noqa: ARG002 - a Sessions' name
        raise self._problem
        yield self


@pytest.mark.requirement("R33")
async def test_a_call_whose_upstream_stays_unreachable_ends_as_never_dispatched(engine: Engine) -> None:
    call = await lease_new_call(engine)

    await run_execution(engine.make_execution(call, FailingUpstreams(UpstreamUnreachable("cannot connect, for 30 s."))))

    ended = await engine.read_call(call)
    assert (ended.outcome, ended.dispatched_at, ended.runs) == (CallOutcome.REJECTED, None, 0)
    assert (ended.error or {})["message"] == "Upstream 'git' could not be reached: cannot connect, for 30 s."


@pytest.mark.requirement("R33")
async def test_a_call_that_ran_before_is_unknown_and_not_rejected_if_its_upstream_stays_unreachable(
    engine: Engine,
) -> None:
    call = await lease_new_call(engine, runs=1, rerun_allowed=True)  # queued again after its first runner had died

    await run_execution(engine.make_execution(call, FailingUpstreams(UpstreamUnreachable("cannot connect."))))

    ended = await engine.read_call(call)
    assert ended.outcome is CallOutcome.UNKNOWN
    assert (ended.error or {})["message"] == (
        "Upstream 'git' could not be reached: cannot connect. An earlier run of this call was lost: its tool may have done "
        "its work."
    )


@pytest.mark.requirement("R33")
async def test_a_bug_while_the_tool_runs_leaves_the_call_unknown(engine: Engine) -> None:
    call = await lease_new_call(engine)

    async def stumble(driven_call: Call, on_progress: OnProgress) -> CallCompletion:
        raise ZeroDivisionError

    await run_execution(engine.make_execution(call, ScriptedUpstreams(stumble)))

    assert (await engine.read_call(call)).outcome is CallOutcome.UNKNOWN


async def test_a_driver_that_is_cancelled_from_inside_leaves_the_call_unknown(engine: Engine) -> None:
    call = await lease_new_call(engine)

    async def give_up(driven_call: Call, on_progress: OnProgress) -> CallCompletion:
        raise asyncio.CancelledError

    await run_execution(engine.make_execution(call, ScriptedUpstreams(give_up)))

    assert (await engine.read_call(call)).outcome is CallOutcome.UNKNOWN


async def test_a_bug_before_the_dispatch_rejects_the_call(engine: Engine) -> None:
    call = await lease_new_call(engine)

    await run_execution(engine.make_execution(call, FailingUpstreams(ZeroDivisionError())))

    assert (await engine.read_call(call)).outcome is CallOutcome.REJECTED


async def test_a_leased_call_keeps_its_deadline_and_its_age(engine: Engine) -> None:
    """The execution writes the row as it read it, with its own changes."""
    call = await lease_new_call(engine)

    await run_execution(engine.make_execution(call, ScriptedUpstreams()))

    ended = await engine.read_call(call)
    assert (ended.created_at, ended.deadline_at) == (call.created_at, call.deadline_at)
    assert ended.expires_at == (ended.finished_at or call.created_at) + timedelta(days=7)
