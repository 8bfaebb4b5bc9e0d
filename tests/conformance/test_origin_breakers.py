"""The breakers of origins."""

from collections.abc import Mapping
from datetime import timedelta

from ringback.domain.circuit_breaker import CLOSED_BREAKER, CircuitBreaker
from ringback.domain.ports import Store
from tests.support.clock import START, FakeClock

HERE, THERE = "https://here.example", "https://there.example:8443"
OPEN = CircuitBreaker(failures=10, openings=1, paused_until=START + timedelta(seconds=15))


async def save(store: Store, origin: str, breaker: CircuitBreaker) -> None:
    await store.write(lambda tx: tx.origin_breakers.save_breaker(origin, breaker))


async def breakers(store: Store, *origins: str) -> Mapping[str, CircuitBreaker]:
    return await store.read(lambda tx: tx.origin_breakers.get_breakers(origins))


async def test_a_breaker_is_read_back_as_it_was_saved_last(store: Store) -> None:
    await save(store, HERE, CircuitBreaker(failures=1))
    await save(store, HERE, OPEN)
    await save(store, THERE, CircuitBreaker(failures=3))

    assert await breakers(store, HERE, THERE, "https://unknown.example") == {
        HERE: OPEN,
        THERE: CircuitBreaker(failures=3),
    }
    assert await breakers(store, THERE) == {THERE: CircuitBreaker(failures=3)}
    assert await breakers(store) == {}


async def test_a_closed_breaker_leaves_nothing_behind(store: Store) -> None:
    await save(store, HERE, OPEN)
    await save(store, HERE, CLOSED_BREAKER)

    assert await breakers(store, HERE) == {}


async def test_breakers_that_nothing_happens_to_any_more_are_removed_in_bounded_steps(
    store: Store, clock: FakeClock
) -> None:
    for number in range(3):
        await save(store, f"https://old-{number}.example", OPEN)
    clock.advance(1)
    await save(store, HERE, OPEN)

    async def remove() -> int:
        return await store.write(lambda tx: tx.origin_breakers.remove(cutoff=START + timedelta(seconds=1), limit=2))

    assert [await remove(), await remove(), await remove()] == [2, 1, 0]
    assert await breakers(store, HERE) == {HERE: OPEN}
