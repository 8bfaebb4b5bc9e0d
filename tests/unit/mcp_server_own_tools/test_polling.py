"""Looks in vain are counted for each principal and call, and memory is bounded."""

from dataclasses import replace

from ringback.domain.call import Call, Progress
from ringback.domain.ids import CallId
from ringback.domain.principal import Principal
from ringback.mcp_server.polling import PollLimiter
from tests.support.examples import CALL

ALICE, BOB = Principal("alice"), Principal("bob")


def look(looks: PollLimiter, call: Call = CALL, *, times: int = 1, principal: Principal = ALICE) -> bool:
    for _ in range(times):
        looks.record_poll(principal, call)
    return looks.poll_limit_reached(principal, call)


def test_so_many_looks_without_a_change_are_enough() -> None:
    looks = PollLimiter(unchanged_polls_max=3)

    assert not look(looks, times=2)
    assert look(looks)


def test_progress_begins_the_count_anew() -> None:
    looks = PollLimiter(unchanged_polls_max=3)
    look(looks, times=3)

    assert not look(looks, replace(CALL, progress=Progress(progress=1)), times=2)
    assert look(looks, replace(CALL, progress=Progress(progress=1)))


def test_nobody_is_tired_by_the_looks_of_another() -> None:
    looks = PollLimiter(unchanged_polls_max=3)
    look(looks, times=3)

    assert not looks.poll_limit_reached(BOB, CALL)


def test_the_call_that_was_looked_at_longest_ago_is_forgotten() -> None:
    looks = PollLimiter(unchanged_polls_max=1, tracked_calls_max=2)
    calls = [replace(CALL, id=CallId(f"call_{number}")) for number in range(3)]

    for call in calls:
        look(looks, call)

    assert [looks.poll_limit_reached(ALICE, call) for call in calls] == [False, True, True]
