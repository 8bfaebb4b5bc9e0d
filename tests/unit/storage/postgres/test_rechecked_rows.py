"""Statements whose rows another node changes after their snapshots and before their locks.

PostgreSQL then locks the newer row, and evaluates the statement's conditions again; if the row is in another partition now, it
ends the statement, and the unit runs again. The window is some microseconds; a view in the place of a table that the statement
reads first holds it open.
"""

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final, TypeVar

import asyncpg
import pytest

from ringback.domain.attempt_category import AttemptCategory
from ringback.domain.call import CallPhase
from ringback.domain.call_rows import CallChange
from ringback.domain.clock import seconds
from ringback.domain.delivery import DeliveryKind, DeliveryState, RetryDecision, build_delivery_update
from ringback.domain.ports import Transaction
from ringback.notifier.call_ends import LeasedCompletion
from ringback.storage.postgres.store import PostgresStore
from tests.support.builders import make_call, make_delivery, make_webhook
from tests.support.clock import FakeClock
from tests.support.engine import Engine, wait_until
from tests.support.limits import WAIT_SECONDS
from tests.support.stored_work import COMPLETED_RESULT
from tests.support.stores import make_sealer

T = TypeVar("T")

MAKE_GATE: Final = """
CREATE SCHEMA gate;
CREATE FUNCTION gate.wait() RETURNS void LANGUAGE sql VOLATILE AS 'SELECT pg_advisory_xact_lock(7)';
CREATE FUNCTION gate.read_controls() RETURNS SETOF public.upstream_controls LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM gate.wait();
    RETURN QUERY SELECT * FROM public.upstream_controls;
END $$;
CREATE FUNCTION gate.read_catch_ups() RETURNS SETOF public.catch_ups LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM gate.wait();
    RETURN QUERY SELECT * FROM public.catch_ups;
END $$;
CREATE VIEW gate.upstream_controls AS SELECT * FROM gate.read_controls();
CREATE VIEW gate.catch_ups AS SELECT * FROM gate.read_catch_ups();
"""
LOCK_GATE: Final = "SELECT pg_advisory_lock(7)"
OPEN_GATE: Final = "SELECT pg_advisory_unlock(7)"
WAITING: Final = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory' AND datname = current_database()"


@pytest.fixture
async def gated(
    url: str, admin: "asyncpg.Connection[asyncpg.Record]", clock: FakeClock
) -> AsyncGenerator[PostgresStore]:
    """A store that waits at the gate within leases of queued calls, and while it finds the receivers of events."""
    await admin.execute(MAKE_GATE)
    store = PostgresStore(
        f"{url}{'&' if '?' in url else '?'}search_path=gate,public", clock=clock, sealer=make_sealer()
    )
    await store.open()
    yield store
    await store.close()
    await admin.execute("DROP SCHEMA gate CASCADE")


@asynccontextmanager
async def held_at_gate(
    admin: "asyncpg.Connection[asyncpg.Record]", unit: Coroutine[Any, Any, T]
) -> AsyncGenerator[asyncio.Task[T]]:
    """The unit waits at the gate until the end of the context."""

    async def waits_at_gate() -> bool:
        return await admin.fetchval(WAITING) > 0

    await admin.execute(LOCK_GATE)
    running = asyncio.create_task(unit)
    await wait_until(waits_at_gate)
    async with asyncio.timeout(WAIT_SECONDS):
        yield running
        await admin.execute(OPEN_GATE)


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

    await store.write(insert)
    lease = gated.write(lambda tx: tx.call_queue.lease_queued("git", owner="one", token="t", until=until, limit=8))
    async with held_at_gate(admin, lease) as leasing:
        await store.write(change)
    leased = {call.id: call for call in await leasing}

    stored = {call.id: await store.read(lambda tx, call=call: tx.calls.get(call.id)) for call in calls}
    expected = calls if still_queued else [calls[0], calls[2]]
    assert leased == {call.id: stored[call.id] for call in expected}
    after = stored[changed.id]
    assert after is not None
    assert (after.phase, after.token_version - changed.token_version) == (
        (CallPhase.RUNNING, 1) if still_queued else (CallPhase.PARKED, 0)
    )


async def test_an_end_whose_progress_is_delivered_at_this_moment_is_written(
    gated: PostgresStore, store: PostgresStore, admin: "asyncpg.Connection[asyncpg.Record]", clock: FakeClock
) -> None:
    call = make_call(phase=CallPhase.RUNNING, lease_owner="one", lease_token="held", lease_until=clock.now())
    webhook, engine = make_webhook(), Engine(gated, clock)
    leased = {"lease_owner": "one", "lease_token": "t", "lease_until": clock.now(), "state": DeliveryState.LEASED}
    progress = make_delivery(webhook_id=webhook.id, call_id=call.id, seq=None, kind=DeliveryKind.PROGRESS)
    sent = make_delivery(webhook_id=webhook.id, call_id=call.id, seq=None, kind=DeliveryKind.PROGRESS, **leased)
    update = build_delivery_update(
        sent, RetryDecision(state=DeliveryState.DELIVERED), category=AttemptCategory.DELIVERED, now=clock.now()
    )
    await Engine(store, clock).insert_calls(call)
    await Engine(store, clock).insert_webhooks(webhook)
    await store.write(lambda tx: tx.deliveries.insert([progress, sent]))

    end = LeasedCompletion(
        call_id=call.id, principal=call.principal, lease_token="held", completion=COMPLETED_RESULT, progress=None
    )
    async with held_at_gate(admin, gated.write(lambda tx: engine.recorder.finish_leased_calls(tx, [end]))) as ending:
        await store.write(lambda tx: tx.delivery_queue.apply_updates([update]))
        await store.write(lambda tx: tx.webhook_deliveries.cancel_open(webhook.id, now=tx.now(), limit=10))
    (ended,) = await ending

    assert ended is not None
    states = {each.id: each.state for each in await Engine(store, clock).read_deliveries()}
    assert (states.pop(sent.id), states.pop(progress.id)) == (DeliveryState.DELIVERED, DeliveryState.CANCELLED)
    assert list(states.values()) == [DeliveryState.PENDING]
    assert [(each.seq, each.call_id) for each in await engine.read_events()] == [(1, call.id)]
