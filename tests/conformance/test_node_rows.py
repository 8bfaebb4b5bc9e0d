"""What the nodes of a service decide together: who has a duty, and how fast a webhook receives."""

from datetime import datetime, timedelta

import pytest

from ringback.domain.ports import Store
from tests.support.builders import make_webhook
from tests.support.clock import START

LATER = START + timedelta(seconds=30)


async def acquire(store: Store, owner: str, *, seconds: float = 0.0) -> bool:
    """Acquire the duty for 30 seconds, so many seconds after the start."""
    now = START + timedelta(seconds=seconds)
    return await store.write(
        lambda tx: tx.leaders.acquire("watch", owner=owner, until=now + timedelta(seconds=30), now=now)
    )


async def test_one_owner_at_a_time_has_a_duty(store: Store) -> None:
    assert await acquire(store, "first")

    assert not await acquire(store, "second", seconds=29.9)


async def test_an_owner_extends_its_own_lease(store: Store) -> None:
    await acquire(store, "first")

    assert await acquire(store, "first", seconds=20)
    assert not await acquire(store, "second", seconds=40)


async def test_a_duty_is_held_until_its_lease_runs_out_or_is_released(store: Store) -> None:
    async def is_held(seconds: float) -> bool:
        return await store.read(lambda tx: tx.leaders.is_held("watch", now=START + timedelta(seconds=seconds)))

    assert not await is_held(0)
    await acquire(store, "first")
    assert (await is_held(29.9), await is_held(30)) == (True, False)

    await store.write(lambda tx: tx.leaders.release("watch", owner="first"))
    assert not await is_held(0)


async def test_a_lease_that_ran_out_goes_to_the_next_owner_who_asks(store: Store) -> None:
    await acquire(store, "first")

    assert await acquire(store, "second", seconds=30)
    assert not await acquire(store, "first", seconds=31)


async def test_a_released_duty_is_free_at_once_and_no_node_releases_that_of_another(store: Store) -> None:
    await acquire(store, "first")
    await store.write(lambda tx: tx.leaders.release("watch", owner="second"))
    assert not await acquire(store, "second")

    await store.write(lambda tx: tx.leaders.release("watch", owner="first"))

    assert await acquire(store, "second")


async def test_a_lease_that_is_too_long_is_shortened_and_stays_its_owners(store: Store) -> None:
    async def shorten(*, ends_after: datetime) -> None:
        await store.write(lambda tx: tx.leaders.shorten_lease("watch", ends_after=ends_after, until=LATER))

    await acquire(store, "first", seconds=86_400)
    await shorten(ends_after=LATER)

    assert not await acquire(store, "second", seconds=29.9)
    assert await acquire(store, "first", seconds=29.9)
    await shorten(ends_after=START + timedelta(seconds=60))
    assert not await acquire(store, "second", seconds=59)


async def test_a_rate_is_kept_to_the_microsecond_and_ends_with_its_webhook(store: Store) -> None:
    webhook = make_webhook()
    await store.write(lambda tx: tx.webhooks.insert(webhook))
    assert await store.write(lambda tx: tx.webhook_rates.lock(webhook.id)) == 0.0

    await store.write(lambda tx: tx.webhook_rates.save(webhook.id, full_at=1_795_000_000.123456))

    assert await store.write(lambda tx: tx.webhook_rates.lock(webhook.id)) == pytest.approx(
        1_795_000_000.123456, abs=1e-6
    )
    assert await store.write(lambda tx: tx.webhooks.delete(webhook.id))
