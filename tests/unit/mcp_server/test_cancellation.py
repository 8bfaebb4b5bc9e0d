"""What is remembered of requests is limited for each principal, and the requests of one displace no requests of another."""

import time
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ringback.domain.principal import Principal
from ringback.mcp_server.cancellation import (
    EARLY_CANCELLATION_SECONDS,
    EARLY_CANCELLATIONS_MAX,
    EarlyCancellations,
    EntriesByPrincipal,
    RequestKey,
    WaitingRequests,
)
from tests.support.clock import FakeClock

ALICE, BOB = Principal("alice"), Principal("bob")


def make_key(name: str, principal: Principal = ALICE) -> RequestKey:
    return RequestKey(principal, "", name)


def test_the_oldest_entry_of_a_principal_is_dropped_and_no_entry_of_another() -> None:
    entries = EntriesByPrincipal[int](2)
    entries.put(make_key("first", BOB), 0)
    for number in range(3):
        entries.put(make_key(str(number)), number)

    assert [entries.get(make_key(str(number))) for number in range(3)] == [None, 1, 2]
    assert entries.get(make_key("first", BOB)) == 0


def test_an_entry_is_taken_out_once() -> None:
    entries = EntriesByPrincipal[int](2)
    entries.put(make_key("a"), 1)

    assert [entries.pop(make_key("a")), entries.pop(make_key("a")), entries.pop(make_key("a", BOB))] == [1, None, None]


async def test_cancellations_that_find_no_request_are_forgotten_and_bounded_for_each_principal() -> None:
    """They stayed in memory for good: those of requests that had ended, too, which are most."""
    clock = FakeClock()
    early = EarlyCancellations(clock)
    for number in range(EARLY_CANCELLATIONS_MAX + 1):
        early.add(make_key(str(number)))
    early.add(make_key("0"))
    early.add(make_key("0", BOB))
    known, bounded = early.pop(make_key("1")), early.pop(make_key(str(EARLY_CANCELLATIONS_MAX)))
    await clock.sleep(EARLY_CANCELLATION_SECONDS + 1)
    early.add(make_key("later"))

    assert (known, bounded, early.pop(make_key("0", BOB)), len(early)) == (True, False, False, 1)


async def test_cancellations_of_many_principals_are_forgotten_without_a_pause_of_the_service() -> None:
    """A search for the oldest one among those that were removed took ten seconds, and the event loop stood still."""
    clock = FakeClock()
    early = EarlyCancellations(clock)
    for number in range(60 * EARLY_CANCELLATIONS_MAX):
        early.add(make_key(str(number), Principal(f"p{number % 60}")))
    await clock.sleep(EARLY_CANCELLATION_SECONDS + 1)

    began = time.process_time()
    early.add(make_key("later"))
    spent = time.process_time() - began

    assert (len(early), spent < 1.0) == (1, True), spent


def _subscribe(*_: Any, **__: Any) -> AbstractContextManager[None]:
    return nullcontext()


def make_requests(clock: FakeClock) -> WaitingRequests:
    signals = SimpleNamespace(has_other_nodes=False, subscribe=_subscribe)
    return WaitingRequests(cast("Any", SimpleNamespace(clock=clock, node_signals=signals)))


def make_context(request_id: int | str, *, cancels: int | str | None = None) -> Any:
    """A legacy request, and the params of a cancellation."""
    return SimpleNamespace(
        is_modern=False,
        caller=SimpleNamespace(principal=ALICE),
        mcp_session_id="s1",
        request_id=request_id,
        sdk_context=SimpleNamespace(params={"requestId": request_id if cancels is None else cancels}),
    )


@pytest.mark.parametrize("same_characters", [10, 64, 200])
async def test_a_cancellation_cancels_no_request_whose_id_begins_alike(same_characters: int) -> None:
    """Ids were compared up to their 64th character: the call of another request was cancelled."""
    requests = make_requests(FakeClock())
    first, second = ("a" * same_characters + end for end in ("1", "2"))
    with requests.track_request(make_context(first)) as kept:
        await requests.handle_cancelled(make_context("", cancels=second))
        await requests.handle_cancelled(make_context("", cancels=first[:-1]))
        is_cancelled_by_others = kept.is_cancelled
        await requests.handle_cancelled(make_context("", cancels=first))

    assert (is_cancelled_by_others, kept.is_cancelled) == (False, True)


@pytest.mark.parametrize(("age_seconds", "is_cancelled"), [(1.0, True), (EARLY_CANCELLATION_SECONDS + 1, False)])
async def test_a_cancellation_waits_only_a_moment_for_its_request(age_seconds: float, *, is_cancelled: bool) -> None:
    """One that came after the end of its request would cancel a later one with the same id."""
    clock = FakeClock()
    requests, context = make_requests(clock), make_context(7)
    with requests.track_request(context) as ended:
        pass
    await requests.handle_cancelled(context)
    await clock.sleep(age_seconds)

    with requests.track_request(context) as later:
        assert (ended.is_cancelled, later.is_cancelled) == (False, is_cancelled)
