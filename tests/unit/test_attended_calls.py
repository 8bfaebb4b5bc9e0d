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
    assert calls.forget_call(call.id) is end
    assert (calls.find_end(call.id), calls.forget_call(call.id), len(calls)) == (None, None, 0)


def test_an_outcome_is_known_of_an_expected_call_only() -> None:
    calls, call, other = AttendedCalls(), make_call(), make_call()
    calls.expect_end(call)
    assert not calls.has_outcome(call.id)

    for each in (call, other):
        calls.note_outcome(each.id)

    assert (calls.has_outcome(call.id), calls.has_outcome(other.id), len(calls)) == (True, False, 1)


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


def test_all_results_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attended_calls, "KEPT_BYTES_MAX", 100)
    calls = AttendedCalls()
    first, second, third = make_call(), make_call(), make_call()
    for call in (first, second, third):
        calls.expect_end(call)

    calls.publish_end(make_end(first, b"x" * 100))
    calls.publish_end(make_end(second, b"x"))
    assert calls.find_end(second.id) is None

    calls.forget_call(first.id)
    calls.publish_end(make_end(third, b"x" * 100))
    assert calls.find_end(third.id) is not None


def test_the_oldest_calls_are_dropped_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attended_calls, "CALLS_MAX", 2)
    calls, started = AttendedCalls(), [make_call() for _ in range(3)]
    for call in started:
        calls.expect_end(call)

    for call in started:
        calls.publish_end(make_end(call))

    assert [calls.find_end(call.id) is not None for call in started] == [False, True, True]
