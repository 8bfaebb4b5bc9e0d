from dataclasses import replace

import pytest

from ringback.domain.call import Call, Progress, apply_completion
from ringback.domain.call_outcome import CallCompletion, CallOutcome, completion_from_result, failed_completion
from ringback.domain.event import EventName, build_call_event, call_event_data
from ringback.domain.ids import EventId
from ringback.domain.jsontext import sha256
from tests.support.clock import START
from tests.support.examples import CALL


@pytest.fixture
def finished() -> Call:
    return apply_completion(
        CALL, completion_from_result(b'{"content":[]}', is_error=False), now=START, result_retention_seconds=60
    )


@pytest.mark.requirement("R18")
@pytest.mark.requirement("R19")
def test_an_event_names_its_call_and_gives_the_clients_own_ids_back() -> None:
    event = build_call_event(EventName.CALL_FINISHED, CALL, event_id=EventId("evt_1"), seq=7, now=START)
    assert (event.principal, event.seq, event.call_id) == (CALL.principal, 7, CALL.id)
    assert (event.client_session_id, event.correlation_id) == ("session-1", "report-1")
    assert event.data["client_session_id"] == "session-1"
    assert event.data["correlation_id"] == "report-1"


@pytest.mark.requirement("R33")
def test_the_end_event_of_a_call_has_its_outcome_and_the_digest_of_its_result(finished: Call) -> None:
    assert call_event_data(EventName.CALL_FINISHED, finished) == {
        "call_id": CALL.id,
        "status": "completed",
        "outcome": "result",
        "upstream": "git",
        "tool": "git_log",
        "correlation_id": "report-1",
        "client_session_id": "session-1",
        "result_bytes": 14,
        "result_sha256": sha256(b'{"content":[]}'),
        "created_at": "2026-11-20T17:00:00.000Z",
        "finished_at": "2026-11-20T17:00:00.000Z",
    }


@pytest.mark.requirement("R33")
@pytest.mark.parametrize("outcome", [each for each in CallOutcome if each is not CallOutcome.RESULT])
def test_the_end_event_of_a_call_without_a_plain_result_has_an_error_in_our_words(outcome: CallOutcome) -> None:
    ending = CallCompletion(outcome=outcome, error={"code": -1, "message": "upstream words"})
    ended = apply_completion(CALL, ending, now=START, result_retention_seconds=60)

    error = call_event_data(EventName.CALL_FINISHED, ended)["error"]

    assert error["code"] == outcome
    assert error["message"].endswith(".")
    assert "upstream words" not in error["message"]


def test_an_unfinished_calls_event_has_no_outcome() -> None:
    data = call_event_data(EventName.CALL_INPUT_REQUIRED, CALL)
    assert {"outcome", "finished_at", "result_sha256", "progress"} & set(data) == set()


def test_only_progress_events_contain_upstream_text() -> None:
    with_progress = replace(CALL, progress=Progress(progress=1, total=2, message="upstream words"))
    ended = apply_completion(
        with_progress, failed_completion(CallOutcome.UNKNOWN, "upstream words"), now=START, result_retention_seconds=60
    )

    assert "upstream words" not in str(call_event_data(EventName.CALL_FINISHED, ended))
    assert call_event_data(EventName.CALL_PROGRESS, with_progress)["progress"] == {
        "progress": 1,
        "total": 2,
        "message": "upstream words",
    }


def test_an_event_never_prints_its_data(finished: Call) -> None:
    event = build_call_event(EventName.CALL_FINISHED, finished, event_id=EventId("evt_1"), seq=1, now=START)
    assert "result_sha256" not in repr(event)
