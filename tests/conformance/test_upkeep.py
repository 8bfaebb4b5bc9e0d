"""What the janitor of an idle node asks: when rows of each kind need it."""

from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta

from ringback.domain.call import CallPhase, CallStatus
from ringback.domain.circuit_breaker import CircuitBreaker
from ringback.domain.clock import from_epoch_milliseconds
from ringback.domain.delivery import DeliveryState
from ringback.domain.insight_rows import HourKey
from ringback.domain.insights import hour_of
from ringback.domain.mcp_sessions import McpSession, McpSessionId, SessionState
from ringback.domain.ports import Store, Transaction
from ringback.domain.upkeep import Upkeep
from tests.support.builders import make_call, make_delivery, make_identity_erasure, make_webhook
from tests.support.clock import START
from tests.support.examples import ALICE

EARLIER = START - timedelta(hours=1)
ANY_TIME = from_epoch_milliseconds(0)


TOMORROW = START + timedelta(days=1)


async def find_first(
    store: Store, *, due_after: datetime = TOMORROW, latest: datetime = TOMORROW
) -> dict[Upkeep, datetime]:
    return dict(await store.read(lambda tx: tx.upkeep.find_first(due_after=due_after, latest=latest)))


async def test_an_empty_store_needs_nothing(store: Store) -> None:
    assert await find_first(store) == {}


async def test_the_first_instant_of_each_kind_is_found(store: Store) -> None:
    async def insert(tx: Transaction) -> None:
        for started in (START, EARLIER):
            await tx.calls.insert(make_call(deadline_at=started))
            await tx.webhooks.insert(make_webhook(expires_at=started))
        await tx.deliveries.insert(
            [
                make_delivery(state=DeliveryState.LEASED, lease_token="lease_1", lease_until=START),
                make_delivery(state=DeliveryState.HELD, give_up_at=EARLIER),
                make_delivery(state=DeliveryState.DELIVERED, finished_at=EARLIER),
            ]
        )
        await tx.erasures.insert(make_identity_erasure(ALICE))

    await store.write(insert)

    assert await find_first(store) == {
        Upkeep.CALL_DEADLINES: EARLIER,
        Upkeep.WEBHOOK_EXPIRIES: EARLIER,
        Upkeep.DELIVERY_LEASES: START,
        Upkeep.HELD_DELIVERIES: EARLIER,
        Upkeep.ENDED_DELIVERIES: EARLIER,
        Upkeep.OPEN_ERASURES: ANY_TIME,
    }


async def test_what_ages_is_found_by_its_first_change(store: Store) -> None:
    session = McpSession(
        id=McpSessionId("1" * 32),
        principal=ALICE,
        upstreams=None,
        endpoint="/mcp",
        state=SessionState(initialize={}),
        created_at=EARLIER,
        expires_at=EARLIER,
    )

    async def insert(tx: Transaction) -> None:
        await tx.origin_breakers.save_breaker("https://agent.example", CircuitBreaker(failures=1))
        await tx.mcp_sessions.save(session)
        await tx.unused_logins.mark(["git"], now=EARLIER)
        await tx.insights.add_counts({HourKey(ALICE, "git", hour_of(EARLIER)): Counter()})

    await store.write(insert)

    assert await find_first(store) == {
        Upkeep.ORIGINS: START,
        Upkeep.MCP_SESSIONS: EARLIER,
        Upkeep.UNUSED_LOGINS: EARLIER,
        Upkeep.HOURS: hour_of(EARLIER),
    }


async def test_a_running_call_needs_the_janitor_once_its_lease_ends(store: Store) -> None:
    call = make_call(
        status=CallStatus.WORKING, phase=CallPhase.RUNNING, lease_owner="node-1", lease_token="l", lease_until=START
    )
    await store.write(lambda tx: tx.calls.insert(call))

    assert await find_first(store) == {Upkeep.CALL_LEASES: START}


async def test_deliveries_due_after_every_schedule_are_late(store: Store) -> None:
    await store.write(lambda tx: tx.deliveries.insert([make_delivery(due_at=START)]))

    assert await find_first(store, due_after=START) == {}
    assert await find_first(store, due_after=EARLIER) == {Upkeep.LATE_DELIVERIES: ANY_TIME}


async def test_leases_that_end_later_than_any_lease_lasts_are_late(store: Store) -> None:
    leased = {"lease_token": "lease_1", "lease_until": START}

    async def find_late() -> list[bool]:
        return [Upkeep.LATE_LEASES in await find_first(store, latest=each) for each in (START, EARLIER)]

    await store.write(lambda tx: tx.deliveries.insert([make_delivery(state=DeliveryState.LEASED, **leased)]))
    assert await find_late() == [False, True]
    await store.write(lambda tx: tx.delivery_maintenance.release_expired_leases(now=START, limit=10))

    running = make_call(status=CallStatus.WORKING, phase=CallPhase.RUNNING, lease_owner="node-1", **leased)
    await store.write(lambda tx: tx.calls.insert(running))
    assert await find_late() == [False, True]


async def test_leases_of_calls_that_are_too_long_are_shortened_in_bounded_steps_and_stay_their_holders(
    store: Store,
) -> None:
    leased = {"phase": CallPhase.RUNNING, "lease_owner": "node-1", "lease_token": "lease_1"}
    long = [make_call(**leased, lease_until=START + timedelta(days=40)) for _ in range(3)]
    others = [make_call(**leased, lease_until=START), make_call()]

    async def insert(tx: Transaction) -> None:
        for call in (*long, *others):
            await tx.calls.insert(call)

    await store.write(insert)
    shortened = [
        await store.write(lambda tx: tx.upkeep.shorten_call_leases(ends_after=START, until=START, limit=2))
        for _ in range(3)
    ]

    assert shortened == [2, 1, 0]
    found = await store.read(lambda tx: tx.calls.get_many([each.id for each in (*long, *others)]))
    wanted = [*(replace(each, lease_until=START) for each in long), *others]
    assert sorted(found, key=lambda call: call.id) == sorted(wanted, key=lambda call: call.id)


async def test_leases_of_deliveries_that_are_too_long_are_shortened_and_stay_their_holders(store: Store) -> None:
    leased = {"state": DeliveryState.LEASED, "lease_token": "lease_1", "attempts": 1}
    long = make_delivery(**leased, lease_until=START + timedelta(days=40))
    usual = make_delivery(**leased, lease_until=START)
    await store.write(lambda tx: tx.deliveries.insert([long, usual]))

    async def shorten() -> int:
        return await store.write(lambda tx: tx.upkeep.shorten_delivery_leases(ends_after=START, until=START, limit=10))

    assert (await shorten(), await shorten()) == (1, 0)
    assert await store.read(lambda tx: tx.deliveries.get(long.id)) == replace(long, lease_until=START)
    assert await store.read(lambda tx: tx.deliveries.get(usual.id)) == usual
