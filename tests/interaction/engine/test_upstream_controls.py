"""Paused and draining upstreams: what runs, what waits, and how long another node goes by what it has read."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from ringback.domain.call import CallPhase
from ringback.domain.errors import UpstreamDraining
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Caller, Scope
from ringback.domain.upstream_rows import UpstreamIntake
from ringback.domain.upstreams import ToolCatalog
from ringback.services.upstreams.upstream_controls import REREAD_SECONDS, UpstreamControls
from tests.support.calls import make_calls
from tests.support.clock import FakeClock
from tests.support.engine import Engine, ScriptedUpstreams
from tests.support.examples import ALICE
from tests.support.stores import StoreWrapper

pytestmark = pytest.mark.requirement("R22")

OPERATOR = Caller(principal=ALICE, scopes=frozenset({Scope.ADMIN}))


class Catalog:
    """Every name is an upstream."""

    def has_upstream(self, upstream: str) -> bool:
        return bool(upstream)


def make_controls(engine: Engine) -> UpstreamControls:
    return UpstreamControls(store=engine.store, clock=engine.clock, catalog=cast("ToolCatalog", Catalog()))


async def test_calls_of_a_paused_upstream_stay_queued_until_it_is_resumed(engine: Engine) -> None:
    controls, upstreams = make_controls(engine), ScriptedUpstreams(capacity={"git": 4, "time": 4})
    await controls.set_intake(OPERATOR, "git", UpstreamIntake.PAUSED)
    (waiting,), (other,) = make_calls(engine, 1, upstream="git"), make_calls(engine, 1, upstream="time")

    async with engine.running_runner(upstreams):
        await engine.insert_calls(waiting)
        await engine.insert_calls(other)
        await engine.wait_until_final(other)
        phase = (await engine.read_call(waiting)).phase
        await controls.set_intake(OPERATOR, "git", UpstreamIntake.OPEN)
        await engine.wait_until_final(waiting)

    assert phase is CallPhase.QUEUED
    assert [each.id for each in upstreams.called] == [other.id, waiting.id]


async def test_another_node_refuses_calls_of_a_draining_upstream_within_a_second(
    still: Engine, fake_clock: FakeClock
) -> None:
    operators_node, other_node = make_controls(still), make_controls(still)
    await other_node.require_not_draining("git")
    await operators_node.set_intake(OPERATOR, "git", UpstreamIntake.DRAINING)

    with pytest.raises(UpstreamDraining):
        await operators_node.require_not_draining("git")
    await other_node.require_not_draining("git")
    fake_clock.advance(REREAD_SECONDS)
    with pytest.raises(UpstreamDraining):
        await other_node.require_not_draining("git")
    await other_node.require_not_draining("time")


class SlowReads(StoreWrapper):
    """A store whose reads return once a test says so, with what they have read."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.has_read, self.may_return = asyncio.Event(), asyncio.Event()

    async def read(self, work: Callable[[Transaction], Awaitable[Any]]) -> Any:
        value = await super().read(work)
        self.has_read.set()
        await self.may_return.wait()
        return value


async def test_a_reading_that_began_before_a_drain_does_not_undo_it(still: Engine) -> None:
    store = SlowReads(still.store)
    controls = UpstreamControls(store=store, clock=still.clock, catalog=cast("ToolCatalog", Catalog()))

    reading = asyncio.create_task(controls.read_intakes())
    await store.has_read.wait()
    await controls.set_intake(OPERATOR, "git", UpstreamIntake.DRAINING)
    store.may_return.set()

    assert await reading == {"git": UpstreamIntake.DRAINING}
    with pytest.raises(UpstreamDraining):
        await controls.require_not_draining("git")


async def test_texts_read_whether_an_upstream_is_paused_once_a_second_for_all_calls_and_never_for_a_running_one(
    still: Engine, fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    operators_node, other_node = make_controls(still), make_controls(still)
    waiting, elsewhere = make_calls(still, 1, upstream="git")[0], make_calls(still, 1, upstream="time")[0]
    running = replace(waiting, phase=CallPhase.RUNNING)
    await operators_node.set_intake(OPERATOR, "git", UpstreamIntake.PAUSED)
    reads: list[object] = []
    read = other_node.read_intakes

    async def count_read() -> object:
        reads.append(None)
        return await read()

    monkeypatch.setattr(other_node, "read_intakes", count_read)

    assert [await other_node.is_paused(each) for each in (running, waiting, elsewhere, waiting)] == [
        False,
        True,
        False,
        True,
    ]
    assert len(reads) == 1
    await operators_node.set_intake(OPERATOR, "git", UpstreamIntake.OPEN)
    fake_clock.advance(REREAD_SECONDS)
    assert [await other_node.is_paused(each) for each in (running, waiting, waiting)] == [False, False, False]
    assert len(reads) == 2


async def test_a_removed_upstream_can_still_be_resumed(still: Engine) -> None:
    await make_controls(still).set_intake(OPERATOR, "git", UpstreamIntake.PAUSED)

    class EmptyCatalog:
        def has_upstream(self, upstream: str) -> bool:  # noqa: ARG002 - the port's signature
            return False

    after_restart = UpstreamControls(store=still.store, clock=still.clock, catalog=cast("ToolCatalog", EmptyCatalog()))
    await after_restart.set_intake(OPERATOR, "git", UpstreamIntake.OPEN)

    assert await after_restart.read_intakes() == {}
