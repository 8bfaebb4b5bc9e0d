"""Look-ups in any order of questions, answers and departures: none past its time, none twice at once, none without bound."""

import asyncio
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from ringback.domain.principal import Principal
from ringback.notifier.http.caching_resolver import AddressCache, CachingResolver, LookupLimiter
from ringback.notifier.http.resolver import Resolution, UnresolvedHost
from tests.support.clock import FakeClock
from tests.support.resolvers import make_resolution

NAMES_MAX, IN_FLIGHT_MAX, PER_PRINCIPAL_MAX = 3, 4, 2

NAMES = st.sampled_from([f"{letter}.test" for letter in "abcdef"])
PRINCIPALS = st.sampled_from([Principal("alice"), Principal("bob"), Principal("carol")])
SECONDS = st.sampled_from([0.0, 1.0, 5.0, 300.0])
STEPS = st.one_of(
    st.tuples(st.just("ask"), NAMES, PRINCIPALS),
    st.tuples(st.just("answer"), NAMES, SECONDS),
    st.tuples(st.just("fail"), NAMES, SECONDS),
    st.tuples(st.just("pass"), st.sampled_from([0.5, 1.0, 5.0, 300.0])),
    st.tuples(st.just("leave"), st.lists(st.integers(min_value=0), max_size=5)),
)


class ScriptedResolver:
    """Answers when the test says so; every answer has an address of its own, so that its age is known."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self.open: dict[str, asyncio.Future[Resolution]] = {}
        self.good_until: dict[str, float] = {}
        self.answers = 0

    async def __call__(self, host: str, /) -> Resolution:
        assert host not in self.open, "two look-ups of one name at once"
        self.open[host] = asyncio.get_running_loop().create_future()
        assert len(self.open) <= IN_FLIGHT_MAX
        return await self.open[host]

    async def aclose(self) -> None: ...

    def answer(self, host: str, seconds: float, *, fails: bool) -> None:
        waiting = self.open.pop(host, None)
        if waiting is None:
            return
        self.answers += 1
        address = f"8.8.{self.answers // 256}.{self.answers % 256}"
        self.good_until[address] = self._clock.monotonic() + seconds
        waiting.set_result(
            Resolution(ttl_seconds=seconds, failure="no") if fails else make_resolution(address, seconds=seconds)
        )


async def run_pending_tasks() -> None:
    for _ in range(8):
        await asyncio.sleep(0)


def cancel_waiting(waiting: list[asyncio.Task[None]], places: list[int]) -> None:
    """Several leave in the same turn of the event loop."""
    for place in places:
        waiting[place % len(waiting)].cancel()


@given(st.lists(STEPS, max_size=60))
async def test_the_cache_never_serves_expired_entries_never_grows_and_never_queries_a_name_twice_at_once(
    steps: list[tuple[Any, ...]],
) -> None:
    clock = FakeClock()
    resolver, permits = (
        ScriptedResolver(clock),
        LookupLimiter(in_flight_max=IN_FLIGHT_MAX, per_principal_max=PER_PRINCIPAL_MAX),
    )
    cache = AddressCache(monotonic=clock.monotonic, names_max=NAMES_MAX)
    asked = CachingResolver(resolver, limiter=permits, cache=cache)
    waiting: list[asyncio.Task[None]] = []

    async def ask(name: str, principal: Principal) -> None:
        began = clock.monotonic()
        try:
            (address,) = await asked.resolve_host(name, principal)
        except UnresolvedHost:
            return
        assert began <= resolver.good_until[str(address)]

    for kind, *rest in steps:
        match kind, rest:
            case "ask", [str(name), str(principal)]:
                waiting.append(asyncio.create_task(ask(name, Principal(principal))))
            case "answer" | "fail", [str(name), float(seconds)]:
                resolver.answer(name, seconds, fails=kind == "fail")
            case "pass", [float(seconds)]:
                clock.advance(seconds)
            case "leave", [places] if waiting:
                cancel_waiting(waiting, cast("list[int]", places))
            case _:
                pass
        await run_pending_tasks()
        assert len(cache) <= NAMES_MAX
        assert permits.in_flight == len(resolver.open)
        assert max(permits.held_by(Principal(each)) for each in ("alice", "bob", "carol")) <= PER_PRINCIPAL_MAX

    await asked.aclose()
    for end in await asyncio.gather(*waiting, return_exceptions=True):
        assert end is None or isinstance(end, asyncio.CancelledError)
    assert permits.in_flight == 0
