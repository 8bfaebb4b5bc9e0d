"""The ends of calls whose clients wait in this process."""

from dataclasses import replace

import pytest

from ringback import attended_calls
from ringback.attended_calls import AttendedCalls, CallEnd
from ringback.domain.call import Call, CallPhase, CallStatus
from tests.support.builders import make_call


def make_end(call: Call, result: bytes = b"{}") -> CallEnd:
    ended = replace(call, status=CallStatus.COMPLETED, phase=CallPhase.ENDED)
    return CallEnd(call=ended, result=result, has_deliveries=False)


def test_the_end_of_an_expected_call_is_found_until_the_call_is_forgotten() -> None:
    calls, call = AttendedCalls(), make_call()
    calls.expect_end(call)
    assert calls.find_end(call.id) is None

    end = make_end(call)
    calls.publish_end(end)

    assert calls.find_end(call.id) is end
    for _ in range(2):
        calls.forget_call(call.id)
        assert (calls.find_end(call.id), len(calls)) == (None, 0)


def test_a_call_that_is_forgotten_before_its_end_is_not_kept() -> None:
    calls, call = AttendedCalls(), make_call()
    calls.expect_end(call)

    calls.forget_call(call.id)
    calls.publish_end(make_end(call))

    assert (calls.find_end(call.id), len(calls)) == (None, 0)


def test_an_outcome_is_known_of_an_expected_call_only() -> None:
    calls, call, other = AttendedCalls(), make_call(), make_call()
    calls.expect_end(call)
    assert not calls.has_outcome(call.id)

    for each in (call, other):
        calls.note_outcome(each.id)

    assert (calls.has_outcome(call.id), calls.has_outcome(other.id), len(calls)) == (True, False, 1)
    calls.publish_end(make_end(call))
    assert calls.has_outcome(call.id)


def test_the_end_of_a_call_without_a_waiter_is_not_kept() -> None:
    calls, call = AttendedCalls(), make_call()

    calls.publish_end(make_end(call))

    assert (calls.find_end(call.id), len(calls)) == (None, 0)


def test_only_the_client_that_started_a_call_knows_its_row_and_only_once() -> None:
    calls, call = AttendedCalls(), make_call()
    calls.expect_end(call)

    assert not calls.is_first_wait(replace(call))
    assert calls.is_first_wait(call)
    assert not calls.is_first_wait(call)


def test_a_wait_that_begins_after_the_end_is_not_the_first() -> None:
    calls, call = AttendedCalls(), make_call()
    calls.expect_end(call)
    calls.publish_end(make_end(call))

    assert not calls.is_first_wait(call)


def test_a_large_result_is_left_to_the_store() -> None:
    calls, call = AttendedCalls(), make_call()
    calls.expect_end(call)

    calls.publish_end(make_end(call, b"x" * (attended_calls.RESULT_BYTES_MAX + 1)))

    assert (calls.find_end(call.id), len(calls)) == (None, 0)


def test_all_results_together_are_bounded_and_the_oldest_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry whose client has left must not keep the results of all later calls out."""
    monkeypatch.setattr(attended_calls, "KEPT_BYTES_MAX", 100)
    calls, started = AttendedCalls(), [make_call() for _ in range(4)]
    for call, size in zip(started, (60, 40, 50, 20), strict=True):
        calls.expect_end(call)
        calls.publish_end(make_end(call, b"x" * size))

    assert [calls.find_end(call.id) is not None for call in started] == [False, False, True, True]

    calls.forget_call(started[2].id)
    calls.expect_end(started[0])
    calls.publish_end(make_end(started[0], b"x" * 80))
    assert [calls.find_end(call.id) is not None for call in started] == [True, False, False, True]


def test_the_oldest_calls_are_dropped_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attended_calls, "CALLS_MAX", 2)
    calls, started = AttendedCalls(), [make_call() for _ in range(3)]
    for call in started:
        calls.expect_end(call)

    for call in started:
        calls.publish_end(make_end(call))

    assert [calls.find_end(call.id) is not None for call in started] == [False, True, True]


def test_ends_without_a_result_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attended_calls, "CALLS_MAX", 2)
    calls, started = AttendedCalls(), [make_call() for _ in range(3)]
    for call in started:
        calls.expect_end(call)
        calls.publish_end(make_end(call, b""))

    assert [calls.find_end(call.id) is not None for call in started] == [False, True, True]
