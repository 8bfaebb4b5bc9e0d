"""A lease of queued calls while another node changes one of them after the statement's snapshot and before its lock.

PostgreSQL then locks the newer row, and evaluates the statement's conditions again. The window is some microseconds; a view in
the place of a table that the statement reads first holds it open.
"""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Final

import asyncpg
import pytest

from ringback.domain.call import CallPhase
from ringback.domain.call_rows import CallChange
from ringback.domain.clock import seconds
from ringback.domain.ports import Transaction
from ringback.storage.postgres.store import PostgresStore
from tests.support.builders import make_call
from tests.support.clock import FakeClock
from tests.support.engine import wait_until
from tests.support.limits import WAIT_SECONDS
from tests.support.stores import make_sealer

MAKE_GATE: Final = """
CREATE SCHEMA gate;
CREATE FUNCTION gate.read_controls() RETURNS SETOF public.upstream_controls LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(7);
    RETURN QUERY SELECT * FROM public.upstream_controls;
END $$;
CREATE VIEW gate.upstream_controls AS SELECT * FROM gate.read_controls();
"""
LOCK_GATE: Final = "SELECT pg_advisory_lock(7)"
OPEN_GATE: Final = "SELECT pg_advisory_unlock(7)"
WAITING: Final = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory' AND datname = current_database()"


@pytest.fixture
async def gated(
    url: str, admin: "asyncpg.Connection[asyncpg.Record]", clock: FakeClock
) -> AsyncGenerator[PostgresStore]:
    """A store whose leases of queued calls wait at the gate."""
    await admin.execute(MAKE_GATE)
    store = PostgresStore(
        f"{url}{'&' if '?' in url else '?'}search_path=gate,public", clock=clock, sealer=make_sealer()
    )
    await store.open()
    yield store
    await store.close()
    await admin.execute("DROP SCHEMA gate CASCADE")


@pytest.mark.parametrize("still_queued", [True, False])
async def test_a_call_that_changes_under_a_lease_is_leased_as_it_is_now_or_not_at_all(
    gated: PostgresStore,
    store: PostgresStore,
    admin: "asyncpg.Connection[asyncpg.Record]",
    clock: FakeClock,
    *,
    still_queued: bool,
) -> None:
    calls = [make_call(phase=CallPhase.QUEUED) for _ in range(3)]
    changed, until = calls[1], clock.now() + seconds(30)

    async def insert(tx: Transaction) -> None:
        for call in calls:
            await tx.calls.insert(call)

    async def change(tx: Transaction) -> None:
        if still_queued:
            await tx.calls.revoke_tokens(changed.id, now=tx.now())
        else:
            parked = replace(changed, phase=CallPhase.PARKED)
            assert await tx.calls.update(parked, CallChange.PARKED, expected=changed.status, lease_token=None)

    async def waits_at_gate() -> bool:
        return await admin.fetchval(WAITING) > 0

    await store.write(insert)
    await admin.execute(LOCK_GATE)
    leasing = asyncio.create_task(
        gated.write(lambda tx: tx.call_queue.lease_queued("git", owner="one", token="t", until=until, limit=8))
    )
    await wait_until(waits_at_gate)
    async with asyncio.timeout(WAIT_SECONDS):
        await store.write(change)
        await admin.execute(OPEN_GATE)
        leased = {call.id: call for call in await leasing}

    stored = {call.id: await store.read(lambda tx, call=call: tx.calls.get(call.id)) for call in calls}
    expected = calls if still_queued else [calls[0], calls[2]]
    assert leased == {call.id: stored[call.id] for call in expected}
    after = stored[changed.id]
    assert after is not None
    assert (after.phase, after.token_version - changed.token_version) == (
        (CallPhase.RUNNING, 1) if still_queued else (CallPhase.PARKED, 0)
    )
