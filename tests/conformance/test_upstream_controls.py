"""What operators decided about upstreams, and the queue of a paused one."""

from datetime import timedelta

import pytest

from ringback.domain.call import CallPhase
from ringback.domain.ports import Store, Transaction
from ringback.domain.upstream_rows import UpstreamControl, UpstreamIntake
from tests.support.builders import make_call
from tests.support.clock import START
from tests.support.examples import ALICE

pytestmark = pytest.mark.requirement("R22")

PAUSED = UpstreamControl(upstream="git", intake=UpstreamIntake.PAUSED, changed_at=START)
DRAINING = UpstreamControl(upstream="git", intake=UpstreamIntake.DRAINING, changed_at=START + timedelta(seconds=1))


async def lease(store: Store) -> int:
    leased = await store.write(
        lambda tx: tx.call_queue.lease_queued(
            "git", owner="runner-1", token="lease_1", until=START + timedelta(seconds=30), limit=10
        )
    )
    return len(leased)


async def test_the_last_decision_about_each_upstream_is_kept(store: Store) -> None:
    other = UpstreamControl(upstream="time", intake=UpstreamIntake.PAUSED, changed_at=START)
    for control in (PAUSED, other, DRAINING):
        await store.write(lambda tx, each=control: tx.upstream_controls.save(each))
    kept = await store.read(lambda tx: tx.upstream_controls.list_all())
    await store.write(lambda tx: tx.upstream_controls.remove("git"))

    assert sorted(kept, key=lambda each: each.upstream) == [DRAINING, other]
    assert await store.read(lambda tx: tx.upstream_controls.list_all()) == [other]


async def test_no_call_of_a_paused_upstream_is_leased_and_none_takes_a_turn(store: Store) -> None:
    async def insert(tx: Transaction) -> None:
        await tx.upstream_controls.save(PAUSED)
        await tx.calls.insert(make_call(upstream="time", phase=CallPhase.QUEUED))

    await store.write(insert)
    takes_turn = await store.write(lambda tx: tx.call_queue.take_turn("git", ALICE))
    await store.write(lambda tx: tx.calls.insert(make_call(upstream="git", phase=CallPhase.QUEUED)))
    leased_while_paused = await lease(store)
    await store.write(lambda tx: tx.upstream_controls.save(DRAINING))

    assert not takes_turn
    assert leased_while_paused == 0
    assert await lease(store) == 1, "a draining upstream runs what it has"
