"""Each upstream runs calls up to its capacity, principals take turns, and a broken upstream delays no other."""

import asyncio
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Final

import pytest

from ringback.domain.call import CallStatus
from ringback.domain.call_outcome import CallOutcome
from ringback.domain.principal import DEFAULT_SCOPES, ApiKey, Principal
from ringback.runner.leasing import PossibleCallers
from ringback.services.access.api_keys import ApiKeys
from ringback.services.erasure_batches import erase_identity
from tests.support.builders import make_identity_erasure
from tests.support.calls import make_calls, request_cancel
from tests.support.engine import WAIT_SECONDS, BlockingTool, Engine, ScriptedUpstreams, wait_until
from tests.support.examples import ALICE, BOB
from tests.support.stores import FailingStore
from tests.support.upstreams import ControlledUpstream, make_http_config, open_upstreams, serving

MANY, MANY_DEEP = 110, 300
"""Calls at once on one upstream: the pool of the SDK's own HTTP client has 100 connections."""
ONE_CALLER: Final = {"possible_callers": PossibleCallers.ONE}
"""All places of an upstream are the only caller's."""
KEY_OWNERS: Final = {"possible_callers": PossibleCallers.KEY_OWNERS}
NEVER_POLLING: Final = {**KEY_OWNERS, "poll_seconds": 3600.0}


async def create_key(engine: Engine, principal: Principal, *, lifetime_seconds: float | None = None) -> ApiKey:
    key, _ = await ApiKeys(store=engine.store, ids=engine.ids).create_key(
        principal, name="test", scopes=DEFAULT_SCOPES, upstreams=None, lifetime_seconds=lifetime_seconds
    )
    return key


# -- how many at once, and who is next --------------------------------------------------------------------------------------


async def test_an_upstream_runs_as_many_calls_at_once_as_its_capacity(engine: Engine) -> None:
    calls, tool = make_calls(engine, 7), BlockingTool()
    await engine.insert_calls(*calls)

    async with engine.running_runner(ScriptedUpstreams(tool, capacity={"git": 3}), **ONE_CALLER):
        await tool.wait_until_inside(3)
        queued = [call for call in [await engine.read_call(call) for call in calls] if call.dispatched_at is None]
        tool.release.set()
        await engine.wait_until_final(*calls)

    assert [call.lease_token for call in queued] == [None] * 4
    assert tool.inside_max == 3


async def test_each_upstream_has_its_own_capacity(engine: Engine) -> None:
    tool = BlockingTool()
    await engine.insert_calls(*make_calls(engine, 5, upstream="git"), *make_calls(engine, 5, upstream="time"))

    async with engine.running_runner(ScriptedUpstreams(tool, capacity={"git": 1, "time": 2}), **ONE_CALLER):
        await tool.wait_until_inside(3)
        assert sorted(call.upstream for call in tool.inside) == ["git", "time", "time"]
        tool.release.set()


@pytest.mark.requirement("R11")
async def test_principals_take_turns_on_a_busy_upstream(engine: Engine) -> None:
    calls = [*make_calls(engine, 6, principal=ALICE), *make_calls(engine, 2, principal=BOB)]
    upstreams = ScriptedUpstreams(capacity={"git": 1})
    await engine.insert_calls(*calls)

    async with engine.running_runner(upstreams):
        await engine.wait_until_final(*calls)

    assert [call.principal for call in upstreams.called] == [ALICE, BOB, ALICE, BOB, ALICE, ALICE, ALICE, ALICE]


@pytest.mark.requirement("R11")
async def test_calls_of_one_principal_that_go_on_for_hours_leave_places_to_others(engine: Engine) -> None:
    """They kept all places of the upstream: turns between principals are of use only when a place becomes free."""
    endless, tool = make_calls(engine, 12, principal=ALICE), BlockingTool()
    await engine.insert_calls(*endless)

    async with engine.running_runner(ScriptedUpstreams(tool, capacity={"git": 8})):
        await tool.wait_until_inside(6)
        others = make_calls(engine, 2, principal=BOB)
        await engine.insert_calls(*others)
        await tool.wait_until_inside(8)
        inside = Counter(call.principal for call in tool.inside)
        tool.release.set()
        await engine.wait_until_final(*endless, *others)

    assert inside == {ALICE: 6, BOB: 2}
    assert tool.inside_max == 8


@pytest.mark.requirement("R11")
async def test_a_start_is_not_delayed_by_another_principal_that_has_calls_in_the_queue(engine: Engine) -> None:
    endless, (other,), tool = make_calls(engine, 12), make_calls(engine, 1, principal=BOB), BlockingTool()

    async with engine.running_runner(ScriptedUpstreams(tool, capacity={"git": 8}), poll_seconds=3600.0):
        await engine.insert_calls(*endless)
        await tool.wait_until_inside(6)
        await engine.insert_calls(other)
        await tool.wait_until_inside(7)
        assert other.id in {call.id for call in tool.inside}
        tool.release.set()
        await engine.wait_until_final(*endless, other)


@pytest.mark.requirement("R11")
async def test_the_only_principal_with_a_key_has_all_places_of_an_upstream(engine: Engine) -> None:
    """It left a quarter of them to nobody."""
    calls, tool = make_calls(engine, 12), BlockingTool()
    for _ in range(2):
        await create_key(engine, ALICE)
    await engine.insert_calls(*calls)

    async with engine.running_runner(ScriptedUpstreams(tool, capacity={"git": 8}), **NEVER_POLLING):
        await tool.wait_until_inside(8)
        tool.release.set()
        await engine.wait_until_final(*calls)


@pytest.mark.requirement("R11")
async def test_queued_calls_begin_when_the_key_of_the_only_other_principal_is_revoked(engine: Engine) -> None:
    calls, tool = make_calls(engine, 12), BlockingTool()
    await create_key(engine, ALICE)
    other = await create_key(engine, BOB)
    await engine.insert_calls(*calls)

    async with engine.running_runner(ScriptedUpstreams(tool, capacity={"git": 8}), **NEVER_POLLING):
        await tool.wait_until_inside(6)
        await ApiKeys(store=engine.store, ids=engine.ids).revoke_key(other.id)
        await tool.wait_until_inside(8)
        tool.release.set()
        await engine.wait_until_final(*calls)

    assert tool.inside_max == 8


@pytest.mark.requirement("R11")
async def test_queued_calls_begin_when_the_only_other_principal_is_erased(engine: Engine) -> None:
    calls, tool = make_calls(engine, 12), BlockingTool()
    for principal in (ALICE, BOB):
        await create_key(engine, principal)
    await engine.insert_calls(*calls)

    async with engine.running_runner(ScriptedUpstreams(tool, capacity={"git": 8}), **NEVER_POLLING):
        await tool.wait_until_inside(6)
        await engine.store.write(lambda tx: erase_identity(tx, make_identity_erasure(BOB, requested_at=tx.now())))
        await tool.wait_until_inside(8)
        tool.release.set()
        await engine.wait_until_final(*calls)


@pytest.mark.requirement("R11")
async def test_queued_calls_begin_soon_after_the_key_of_the_only_other_principal_has_expired(engine: Engine) -> None:
    calls, tool = make_calls(engine, 12), BlockingTool()
    await create_key(engine, ALICE)
    await create_key(engine, BOB, lifetime_seconds=0.2)
    await engine.insert_calls(*calls)

    async with engine.running_runner(ScriptedUpstreams(tool, capacity={"git": 8}), **KEY_OWNERS, poll_seconds=0.05):
        await tool.wait_until_inside(8)
        tool.release.set()
        await engine.wait_until_final(*calls)


@pytest.mark.requirement("R28")
async def test_hundreds_of_calls_run_at_once_on_one_upstream(engine: Engine, *, deep: bool) -> None:
    count = MANY_DEEP if deep else MANY
    stage, calls = ControlledUpstream(), make_calls(engine, count, upstream="stage", tool="hold", arguments={})
    await engine.insert_calls(*calls)

    async with serving(stage.app()) as server:
        config = replace(make_http_config(server.url), max_concurrent=count)
        async with open_upstreams(config) as upstreams, engine.running_runner(upstreams, **ONE_CALLER):
            await asyncio.wait_for(stage.wait_until_held(count), 3 * WAIT_SECONDS)
            stage.release.set()
            ended = await engine.wait_until_final(*calls)

    assert {call.outcome for call in ended} == {CallOutcome.RESULT}
    assert len(stage.calls) == count


@pytest.mark.requirement("R11")
async def test_an_unreachable_upstream_does_not_delay_the_others(engine: Engine) -> None:
    waiting, served = make_calls(engine, 20, upstream="away"), make_calls(engine, 20, upstream="git")
    await engine.insert_calls(*waiting, *served)

    async with engine.running_runner(ScriptedUpstreams(capacity={"away": 4, "git": 4}, away=frozenset({"away"}))):
        ended = await engine.wait_until_final(*served)

    assert {call.outcome for call in ended} == {CallOutcome.RESULT}
    left = [await engine.read_call(call) for call in waiting]
    assert {(call.status, call.dispatched_at, call.lease_token) for call in left} == {(CallStatus.WORKING, None, None)}


async def test_a_call_queued_later_begins_at_once(engine: Engine) -> None:
    (call,) = make_calls(engine, 1)

    async with engine.running_runner(ScriptedUpstreams(), poll_seconds=3600.0):
        await engine.insert_calls(call)
        (ended,) = await engine.wait_until_final(call)

    assert ended.outcome is CallOutcome.RESULT


async def test_a_store_that_fails_for_a_while_delays_calls_and_loses_none(
    engine: Engine, unsteady: FailingStore
) -> None:
    calls = make_calls(engine, 5)
    await engine.insert_calls(*calls)
    unsteady.refusals = 3

    async with engine.running_runner(ScriptedUpstreams(), poll_seconds=0.01):
        ended = await engine.wait_until_final(*calls)

    assert {call.outcome for call in ended} == {CallOutcome.RESULT}


# -- cancelling -------------------------------------------------------------------------------------------------------------


async def test_hundreds_of_cancellations_at_once_all_take_effect(engine: Engine) -> None:
    stage, calls = ControlledUpstream(), make_calls(engine, 60, upstream="stage", tool="hold", arguments={})
    await engine.insert_calls(*calls)

    async with serving(stage.app()) as server, open_upstreams(make_http_config(server.url)) as upstreams:
        async with engine.running_runner(upstreams):
            await asyncio.wait_for(stage.wait_until_held(len(calls)), WAIT_SECONDS)
            await asyncio.gather(*(request_cancel(engine, call) for call in calls))
            ended = await engine.wait_until_final(*calls)
        await wait_until(partial(is_empty, stage))

    assert {call.outcome for call in ended} == {CallOutcome.CANCELLED}


async def is_empty(stage: ControlledUpstream) -> bool:
    return stage.held_count == 0
