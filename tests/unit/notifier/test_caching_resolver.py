"""Look-ups: shared while they are in flight, cached as long as they say, given up in time, and never in another one's way."""

import asyncio
import socket
from collections import Counter
from ipaddress import ip_address

import pytest

from ringback.domain.principal import Principal
from ringback.notifier.http import caching_resolver as look_ups
from ringback.notifier.http.caching_resolver import AddressCache, CachingResolver, LookupLimiter
from ringback.notifier.http.resolver import LookupFailed, NameNotFound, Resolution, Resolver
from tests.support.clock import FakeClock
from tests.support.resolvers import make_resolution

ALICE, BOB = Principal("alice"), Principal("bob")
ADDRESS = (ip_address("8.8.8.8"),)
HANGING_QUERY_SECONDS = 60


class CountingResolver:
    """Answers each name when the test lets it; how many look-ups of a name there were, and how many were given up."""

    def __init__(self, answer: Resolution | Exception | None = None) -> None:
        self.answer = answer or make_resolution("8.8.8.8")
        self.queried_hosts: Counter[str] = Counter()
        self.given_up: Counter[str] = Counter()
        self.closed = False
        self.release = asyncio.Event()
        self._moved = asyncio.Event()

    async def __call__(self, host: str, /) -> Resolution:
        self.queried_hosts[host] += 1
        self._moved.set()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.given_up[host] += 1
            raise
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def aclose(self) -> None:
        self.closed = True

    async def wait_for_queries(self, count: int) -> None:
        async with asyncio.timeout(HANGING_QUERY_SECONDS):
            while self.queried_hosts.total() < count:
                self._moved.clear()
                await self._moved.wait()


def make_resolver(answer: Resolution | Exception | None = None) -> CountingResolver:
    names = CountingResolver(answer)
    names.release.set()
    return names


def make_limited_resolver(names: Resolver, *, per_principal: int = 2, in_all: int = 4) -> CachingResolver:
    return CachingResolver(names, limiter=LookupLimiter(in_flight_max=in_all, per_principal_max=per_principal))


async def test_callers_for_one_name_share_one_lookup() -> None:
    names = CountingResolver()
    asked = CachingResolver(names)
    waiting = [asyncio.create_task(asked.resolve_host("slow.test", who)) for who in (ALICE, BOB) * 25]
    await names.wait_for_queries(1)
    names.release.set()

    assert await asyncio.gather(*waiting) == [ADDRESS] * 50
    assert names.queried_hosts["slow.test"] == 1


async def test_an_answer_is_served_again_as_long_as_it_says_and_not_longer() -> None:
    names, clock = make_resolver(make_resolution("8.8.8.8", seconds=30)), FakeClock()
    asked = CachingResolver(names, monotonic=clock.monotonic)
    for _ in range(3):
        assert await asked.resolve_host("kept.test", ALICE) == ADDRESS
    clock.advance(29.999)
    await asked.resolve_host("kept.test", BOB)
    assert names.queried_hosts["kept.test"] == 1

    clock.advance(0.001)
    await asked.resolve_host("kept.test", ALICE)
    assert names.queried_hosts["kept.test"] == 2


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Resolution(ttl_seconds=5), NameNotFound),
        (Resolution(ttl_seconds=5, failure="SERVFAIL"), LookupFailed),
        (socket.gaierror(socket.EAI_AGAIN, "again"), LookupFailed),
        (OSError("broken"), LookupFailed),
        (UnicodeError("label"), LookupFailed),
    ],
)
async def test_names_without_an_address_are_cached_for_a_while_too(
    answer: Resolution | Exception, error: type[Exception]
) -> None:
    names, clock = make_resolver(answer), FakeClock()
    asked = CachingResolver(names, monotonic=clock.monotonic)
    for _ in range(3):
        with pytest.raises(error):
            await asked.resolve_host("none.test", ALICE)
    assert names.queried_hosts["none.test"] == 1

    clock.advance(5)
    with pytest.raises(error):
        await asked.resolve_host("none.test", ALICE)
    assert names.queried_hosts["none.test"] == 2


async def test_a_hanging_lookup_is_cancelled_and_releases_its_permit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look_ups, "RESOLVE_SECONDS", 0.01)
    names, permits, clock = CountingResolver(), LookupLimiter(), FakeClock()
    asked = CachingResolver(names, limiter=permits, monotonic=clock.monotonic)
    for _ in range(2):
        with pytest.raises(LookupFailed):
            await asked.resolve_host("hung.test", ALICE)
    await asked.aclose()

    assert names.queried_hosts["hung.test"] == names.given_up["hung.test"] == 1
    assert permits.in_flight == 0


async def test_a_caller_that_leaves_does_not_end_the_lookup_of_the_others() -> None:
    names = CountingResolver()
    asked = CachingResolver(names)
    leaving, staying = (asyncio.create_task(asked.resolve_host("slow.test", ALICE)) for _ in range(2))
    await names.wait_for_queries(1)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    names.release.set()

    assert await staying == ADDRESS


async def test_a_principal_at_its_limit_waits_and_another_one_does_not() -> None:
    names = CountingResolver()
    asked = make_limited_resolver(names, per_principal=2, in_all=4)
    hung = [asyncio.create_task(asked.resolve_host(f"hung-{number}.test", ALICE)) for number in range(10)]
    await names.wait_for_queries(2)
    other = asyncio.create_task(asked.resolve_host("other.test", BOB))
    await names.wait_for_queries(3)

    assert sorted(names.queried_hosts) == ["hung-0.test", "hung-1.test", "other.test"]
    names.release.set()
    assert await asyncio.gather(other, *hung) == [ADDRESS] * 11


async def test_a_name_that_waits_for_the_permit_of_one_principal_is_not_waited_for_by_another() -> None:
    names = CountingResolver(make_resolution("8.8.8.8", seconds=60))
    asked = make_limited_resolver(names, per_principal=1)
    waiting = [asyncio.create_task(asked.resolve_host(name, ALICE)) for name in ("hung.test", "shared.test")]
    await names.wait_for_queries(1)
    other = asyncio.create_task(asked.resolve_host("shared.test", BOB))
    await names.wait_for_queries(2)

    assert sorted(names.queried_hosts) == ["hung.test", "shared.test"]
    names.release.set()
    await asyncio.gather(other, *waiting)
    assert names.queried_hosts["shared.test"] == 1


async def test_a_caller_without_a_permit_in_time_gets_a_failed_lookup() -> None:
    names = CountingResolver()
    asked = make_limited_resolver(names, per_principal=1)
    hung = asyncio.create_task(asked.resolve_host("hung.test", ALICE))
    await names.wait_for_queries(1)
    with pytest.raises(LookupFailed):
        await asked.resolve_host("other.test", ALICE, until=asyncio.get_running_loop().time())

    assert names.queried_hosts["other.test"] == 0
    names.release.set()
    await hung


async def test_closing_gives_up_what_is_in_flight_and_what_waits() -> None:
    names = CountingResolver()
    asked = make_limited_resolver(names, per_principal=1)
    waiting = [asyncio.create_task(asked.resolve_host(f"hung-{number}.test", ALICE)) for number in range(3)]
    await names.wait_for_queries(1)
    await asked.aclose()

    ends = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(end) for end in ends] == [LookupFailed] * 3
    assert names.closed
    assert names.given_up.total() == 1
    with pytest.raises(LookupFailed):
        await asked.resolve_host("late.test", BOB)


async def test_a_resolver_with_a_bug_is_not_mistaken_for_a_name_that_fails() -> None:
    asked = CachingResolver(make_resolver(ZeroDivisionError()))
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            await asked.resolve_host("any.test", ALICE)


def test_the_least_recently_used_name_is_evicted() -> None:
    cache = AddressCache(monotonic=FakeClock().monotonic, names_max=2)
    for name in ("a.test", "b.test"):
        cache.put(name, make_resolution("8.8.8.8", seconds=60))
    cache.get("a.test")
    cache.put("c.test", make_resolution("8.8.8.8", seconds=60))

    assert [name for name in ("a.test", "b.test", "c.test") if cache.get(name)] == ["a.test", "c.test"]


# -- permits ----------------------------------------------------------------------------------------------------------------


async def acquire_permit(permits: LookupLimiter, *principals: Principal) -> list[asyncio.Task[None]]:
    """One task for each, in this order, after its first step."""
    tasks = [asyncio.create_task(permits.acquire_permit(principal)) for principal in principals]
    await asyncio.sleep(0)
    return tasks


async def are_done(*tasks: asyncio.Task[None]) -> list[bool]:
    for _ in range(3):
        await asyncio.sleep(0)
    return [task.done() for task in tasks]


async def test_a_released_permit_goes_to_the_principal_with_the_fewest() -> None:
    permits = LookupLimiter(in_flight_max=4, per_principal_max=4)
    await acquire_permit(permits, *[ALICE] * 4)
    more = await acquire_permit(permits, ALICE, ALICE, BOB, BOB)
    assert await are_done(*more) == [False] * 4

    permits.release_permit(ALICE)
    assert await are_done(*more) == [False, False, True, False]
    permits.release_permit(ALICE)
    assert await are_done(*more) == [False, False, True, True]
    permits.release_permit(ALICE)
    assert await are_done(*more) == [True, False, True, True]


async def test_a_caller_that_leaves_the_queue_at_any_time_loses_no_permit() -> None:
    permits = LookupLimiter(in_flight_max=1, per_principal_max=1)
    await permits.acquire_permit(ALICE)
    queued, served, last = await acquire_permit(permits, BOB, BOB, BOB)
    queued.cancel()
    await asyncio.gather(queued, return_exceptions=True)
    permits.release_permit(ALICE)
    served.cancel()
    await asyncio.gather(served, return_exceptions=True)

    assert await are_done(last) == [True]
    permits.release_permit(BOB)
    assert permits.in_flight == 0


async def test_many_simultaneous_cancellations_lose_no_permit() -> None:
    """As when the time of hundreds of look-ups is over at once, while the first of them is just being served."""
    permits = LookupLimiter(in_flight_max=1, per_principal_max=1)
    await permits.acquire_permit(ALICE)
    leaving = await acquire_permit(permits, *[ALICE] * 5, *[BOB] * 5)
    (staying,) = await acquire_permit(permits, BOB)
    for task in reversed(leaving):
        task.cancel()
    permits.release_permit(ALICE)
    ends = await asyncio.gather(*leaving, return_exceptions=True)

    assert [type(end) for end in ends] == [asyncio.CancelledError] * 10
    assert await are_done(staying) == [True]
    permits.release_permit(BOB)
    assert permits.in_flight == 0


async def test_hundreds_of_hanging_names_all_fail_as_lookups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look_ups, "RESOLVE_SECONDS", 0.05)
    permits = LookupLimiter()
    asked = CachingResolver(CountingResolver(), limiter=permits)
    waiting = [asked.resolve_host(f"hung-{number}.test", ALICE) for number in range(500)]

    ends = await asyncio.gather(*waiting, return_exceptions=True)
    assert {type(end) for end in ends} == {LookupFailed}
    await asked.aclose()
    assert permits.in_flight == 0
