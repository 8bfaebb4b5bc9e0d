"""An upstream that stops asking for a login gets the calls that wait for one, without a change of tokens."""

import pytest

from ringback.domain.call import Call, CallPhase, CallStatus, Handle
from ringback.domain.call_outcome import CallCompletion, CallOutcome, failed_completion
from ringback.domain.clock import seconds
from ringback.domain.login_checks import CHECK_SECONDS_MAX, FIRST_CHECK_SECONDS
from ringback.protocol.errors import LoginRequired
from ringback.protocol.upstream_logins import LOGIN_REQUEST_KEY
from ringback.services.logins.login_waits import RESUMED_BATCH_SIZE, check_next_login, continue_resumption
from tests.support.clock import FakeClock
from tests.support.engine import Engine, OnProgress, ScriptedUpstreams
from tests.support.executions import lease_new_call, run_execution
from tests.support.leased_calls import make_leased_call
from tests.support.logins import read_waiting, sign_in
from tests.support.stored_work import COMPLETED_RESULT


class Tool:
    """A tool behind a login, as long as `requires_login`."""

    def __init__(self) -> None:
        self.requires_login = True
        self.runs: list[str] = []

    async def __call__(self, call: Call, on_progress: OnProgress) -> CallCompletion:  # noqa: ARG002 - what a tool is given
        if self.requires_login:
            raise LoginRequired("The upstream requires a login.", tokens_version=None)
        self.runs.append(call.id)
        return COMPLETED_RESULT


async def park_call(engine: Engine, tool: Tool) -> Call:
    call = await lease_new_call(engine)
    await run_execution(engine.make_execution(call, ScriptedUpstreams(tool)))
    return await engine.read_call(call)


async def check_logins(engine: Engine) -> None:
    """Run the checks that are due, and what follows from them, as the janitor does."""
    for unit in (check_next_login, continue_resumption):
        while await engine.store.write(unit):
            pass


async def run_queued(engine: Engine, tool: Tool) -> int:
    """Run the calls that are queued now; returns how many there were."""
    leased = await engine.lease_queued_calls("git", limit=1000)
    for call in leased:
        await run_execution(engine.make_execution(call, ScriptedUpstreams(tool)))
    return len(leased)


async def reject_call(call: Call, on_progress: OnProgress) -> CallCompletion:
    return failed_completion(CallOutcome.REJECTED, "The upstream is away.")


async def test_one_call_is_sent_again_after_a_minute_and_if_it_is_accepted_the_others_follow(
    still: Engine, fake_clock: FakeClock
) -> None:
    tool = Tool()
    waiting = [await park_call(still, tool) for _ in range(3)]
    tool.requires_login = False
    await check_logins(still)
    assert await run_queued(still, tool) == 0, "no check is due yet"

    fake_clock.advance(FIRST_CHECK_SECONDS)
    await check_logins(still)
    assert await run_queued(still, tool) == 1
    await check_logins(still)
    assert await run_queued(still, tool) == 2
    assert sorted(tool.runs) == sorted(call.id for call in waiting)
    assert not await read_waiting(still.store)


async def test_a_check_that_fails_changes_nothing_that_clients_see_and_the_next_one_takes_another_call_later(
    still: Engine, fake_clock: FakeClock
) -> None:
    tool = Tool()
    waiting = [await park_call(still, tool) for _ in range(2)]
    events = len(await still.read_events())
    pause = FIRST_CHECK_SECONDS
    for _ in range(2):
        fake_clock.advance(pause)
        await check_logins(still)
        (queued,) = [
            call for call in [await still.read_call(each) for each in waiting] if call.phase is CallPhase.QUEUED
        ]
        assert (queued.status, list(queued.input_requests)) == (CallStatus.INPUT_REQUIRED, [LOGIN_REQUEST_KEY])
        assert await run_queued(still, tool) == 1
        pause = min(2 * pause, CHECK_SECONDS_MAX)

    for before in waiting:
        after = await still.read_call(before)
        assert (after.phase, after.input_requests, after.input_round) == (
            CallPhase.PARKED,
            before.input_requests,
            before.input_round,
        )
        assert (after.dispatched_at, after.runs) == (None, 0)
    assert len(await still.read_events()) == events
    assert sorted(await read_waiting(still.store)) == sorted(call.id for call in waiting)


async def test_a_login_during_a_check_queues_the_checked_call_once_its_refusal_arrives(
    still: Engine, fake_clock: FakeClock
) -> None:
    tool = Tool()
    call = await park_call(still, tool)
    fake_clock.advance(FIRST_CHECK_SECONDS)
    await check_logins(still)
    (leased,) = await still.lease_queued_calls("git", limit=1000)
    await sign_in(still.store, still.login_waits)
    await run_execution(still.make_execution(leased, ScriptedUpstreams(tool)))
    assert (await still.read_call(call)).phase is CallPhase.QUEUED

    tool.requires_login = False
    assert await run_queued(still, tool) == 1
    ended = await still.read_call(call)
    assert (ended.outcome, ended.runs) == (CallOutcome.RESULT, 1)


async def test_calls_of_another_tool_that_still_requires_a_login_are_tried_once_and_then_wait(
    still: Engine, fake_clock: FakeClock
) -> None:
    """More calls than one batch: the resumption must end although each of them is refused again."""
    tool = Tool()
    for _ in range(RESUMED_BATCH_SIZE + 2):
        await park_call(still, tool)
    fake_clock.advance(FIRST_CHECK_SECONDS)
    await check_logins(still)
    tool.requires_login = False
    assert await run_queued(still, tool) == 1
    tool.requires_login = True

    tried = 0
    while await still.store.write(continue_resumption):
        tried += await run_queued(still, tool)
    tried += await run_queued(still, tool)
    assert tried == RESUMED_BATCH_SIZE + 1
    assert len(await read_waiting(still.store)) == RESUMED_BATCH_SIZE + 1


@pytest.mark.parametrize("by_handle", [True, False])
async def test_the_others_follow_as_soon_as_the_upstream_accepts_the_call(
    still: Engine, fake_clock: FakeClock, *, by_handle: bool
) -> None:
    tool = Tool()
    first, second = [await park_call(still, tool) for _ in range(2)]
    fake_clock.advance(FIRST_CHECK_SECONDS)
    await check_logins(still)
    (leased,) = await still.lease_queued_calls("git", limit=1000)
    accepted = make_leased_call(still, leased)
    if by_handle:
        await accepted.save_handle(Handle(driver="task", data={"task_id": "t"}))
    await accepted.request_input({})
    await check_logins(still)

    checked = await still.read_call(leased)
    other = await still.read_call(second if leased.id == first.id else first)
    assert (checked.status, checked.input_requests) == (CallStatus.WORKING, {})
    assert other.phase is CallPhase.QUEUED


@pytest.mark.parametrize("signs_in", [False, True])
async def test_a_check_that_does_not_reach_the_upstream_does_not_end_the_call(
    still: Engine, fake_clock: FakeClock, *, signs_in: bool
) -> None:
    call = await park_call(still, Tool())
    fake_clock.advance(FIRST_CHECK_SECONDS)
    await check_logins(still)
    (leased,) = await still.lease_queued_calls("git", limit=1000)
    if signs_in:
        await sign_in(still.store, still.login_waits)
    await run_execution(still.make_execution(leased, ScriptedUpstreams(reject_call)))

    after = await still.read_call(call)
    assert after.phase is (CallPhase.QUEUED if signs_in else CallPhase.PARKED)
    assert (after.dispatched_at, after.runs) == (None, 0)
    assert after.input_requests == ({} if signs_in else call.input_requests)


async def test_a_check_without_waiting_calls_ends(still: Engine, fake_clock: FakeClock) -> None:
    await park_call(still, Tool())
    await sign_in(still.store, still.login_waits)
    fake_clock.advance(FIRST_CHECK_SECONDS)
    await check_logins(still)

    due = fake_clock.now() + seconds(CHECK_SECONDS_MAX)
    assert await still.store.write(lambda tx: tx.login_checks.find_due(now=due)) is None
