"""Polls without a change are counted for each principal and call, in bounded memory."""

from dataclasses import replace

from ringback.domain.call import Call, Progress
from ringback.domain.ids import CallId
from ringback.domain.principal import Principal
from ringback.mcp_server.builtin_tools.poll_limiter import PollLimiter
from tests.support.examples import CALL

ALICE, BOB = Principal("alice"), Principal("bob")


def poll(looks: PollLimiter, call: Call = CALL, *, times: int = 1, principal: Principal = ALICE) -> bool:
    for _ in range(times):
        looks.record_poll(principal, call)
    return looks.poll_limit_reached(principal, call)


def test_polls_without_a_change_reach_the_limit() -> None:
    looks = PollLimiter(unchanged_polls_max=3)

    assert not poll(looks, times=2)
    assert poll(looks)


def test_progress_resets_the_count() -> None:
    looks = PollLimiter(unchanged_polls_max=3)
    poll(looks, times=3)

    assert not poll(looks, replace(CALL, progress=Progress(progress=1)), times=2)
    assert poll(looks, replace(CALL, progress=Progress(progress=1)))


def test_one_principals_polls_do_not_count_for_another() -> None:
    looks = PollLimiter(unchanged_polls_max=3)
    poll(looks, times=3)

    assert not looks.poll_limit_reached(BOB, CALL)


def test_the_least_recently_polled_call_is_evicted() -> None:
    looks = PollLimiter(unchanged_polls_max=1, tracked_calls_max=2)
    calls = [replace(CALL, id=CallId(f"call_{number}")) for number in range(3)]

    for call in calls:
        poll(looks, call)

    assert [looks.poll_limit_reached(ALICE, call) for call in calls] == [False, True, True]
