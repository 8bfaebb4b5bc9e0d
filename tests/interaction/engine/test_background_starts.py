"""While many clients of one principal only start calls, its earlier calls keep ending."""

import asyncio
from itertools import count, takewhile

from ringback.domain.call import Call
from ringback.domain.ports import Transaction
from ringback.post_commit import CallLeases
from tests.interaction.engine.test_dispatched_by_lease import granting_leases
from tests.support.builders import make_call
from tests.support.engine import Engine, ScriptedUpstreams
from tests.support.examples import ALICE, BOB
from tests.support.limits import WAIT_SECONDS

CLIENTS, STARTS, CAPACITY = 32, 320, 16
STARTS_FOR_END_MAX = 3
"""In the long run. Of starts with priority, there were ten for each end."""


async def start_call(engine: Engine, call: Call, *, is_background: bool = True) -> None:
    """Start a call as `Calls.start_call` does; by default, for a principal with many unfinished calls."""

    async def insert(tx: Transaction, leases: CallLeases) -> None:
        leased = await leases.lease_new(tx, call, may_dispatch=False)
        await tx.calls.insert(leased or call)
        if leased is None:
            await leases.lease_queued(tx, call.upstream)

    with await engine.admission.wait_for_admission(call.principal, is_background=is_background):
        assert engine.call_handoff.consumer is not None
        leases = engine.call_handoff.consumer()
        await engine.store.write_for(call.principal, lambda tx: insert(tx, leases))


async def test_calls_of_a_principal_end_while_its_clients_only_start_calls(engine: Engine) -> None:
    numbers, deadline = takewhile(lambda number: number < STARTS, count()), engine.clock.now().replace(year=2100)

    async def run_client() -> None:
        for _ in numbers:
            await start_call(engine, make_call(principal=ALICE, deadline_at=deadline))

    async with granting_leases(engine, ScriptedUpstreams(capacity={"git": CAPACITY})), asyncio.timeout(WAIT_SECONDS):
        await asyncio.gather(*(run_client() for _ in range(CLIENTS)))
        used = await engine.store.read(lambda tx: tx.usage.get_usage(ALICE))

    ends = STARTS - used.open_calls
    assert ends * STARTS_FOR_END_MAX >= STARTS - CLIENTS


async def test_a_start_and_an_end_of_another_principal_come_before_most_of_these_starts(engine: Engine) -> None:
    numbers, deadline = takewhile(lambda number: number < STARTS, count()), engine.clock.now().replace(year=2100)
    stored, before_start, before_end = list[Call](), list[int](), list[int]()

    async def run_client() -> None:
        for _ in numbers:
            call = make_call(principal=ALICE, deadline_at=deadline)
            await start_call(engine, call)
            stored.append(call)

    async def run_other() -> None:
        while len(stored) < STARTS - 2 * CLIENTS:
            call, first = make_call(principal=BOB, deadline_at=deadline), len(stored)
            await start_call(engine, call, is_background=False)
            before_start.append(len(stored) - first)
            await engine.wait_until_final(call)
            before_end.append(len(stored) - first)

    async with granting_leases(engine, ScriptedUpstreams(capacity={"git": CAPACITY})), asyncio.timeout(WAIT_SECONDS):
        await asyncio.gather(run_other(), *(run_client() for _ in range(CLIENTS)))

    assert max(before_start) <= CLIENTS  # as many as if these starts had priority, too
    assert max(before_end) <= 4 * CLIENTS
