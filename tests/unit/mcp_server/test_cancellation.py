"""What is remembered of requests is limited for each principal, and the requests of one displace no requests of another."""

from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ringback.domain.principal import Principal
from ringback.mcp_server.cancellation import (
    EARLY_CANCELLATION_SECONDS,
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


def _subscribe(*_: Any, **__: Any) -> AbstractContextManager[None]:
    return nullcontext()


@pytest.mark.parametrize(("age_seconds", "is_cancelled"), [(1.0, True), (EARLY_CANCELLATION_SECONDS + 1, False)])
async def test_a_cancellation_waits_only_a_moment_for_its_request(age_seconds: float, *, is_cancelled: bool) -> None:
    """One that came after the end of its request would cancel a later one with the same id."""
    clock = FakeClock()
    signals = SimpleNamespace(has_other_nodes=False, subscribe=_subscribe)
    requests = WaitingRequests(cast("Any", SimpleNamespace(clock=clock, node_signals=signals)))
    context: Any = SimpleNamespace(
        is_modern=False,
        caller=SimpleNamespace(principal=ALICE),
        mcp_session_id="s1",
        request_id=7,
        sdk_context=SimpleNamespace(params={"requestId": 7}),
    )
    with requests.track_request(context) as ended:
        pass
    await requests.handle_cancelled(context)
    await clock.sleep(age_seconds)

    with requests.track_request(context) as later:
        assert (ended.is_cancelled, later.is_cancelled) == (False, is_cancelled)
