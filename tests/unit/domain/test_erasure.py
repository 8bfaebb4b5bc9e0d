"""The stub that an erased call leaves of each of its events."""

from dataclasses import replace
from typing import Any

import pytest

from ringback.domain.call import Call, Progress, apply_completion
from ringback.domain.call_outcome import CallOutcome, completion_from_result, failed_completion
from ringback.domain.erasure import erase_event
from ringback.domain.event import Event, EventName, build_call_event
from ringback.domain.ids import EventId
from ringback.domain.webhook_health import build_webhook_event
from tests.support.clock import START
from tests.support.examples import CALL, WEBHOOK

FINISHED = apply_completion(
    CALL, completion_from_result(b'{"content":[]}', is_error=False), now=START, result_retention_seconds=60
)
FAILED = apply_completion(
    CALL, failed_completion(CallOutcome.UPSTREAM_ERROR, "private"), now=START, result_retention_seconds=60
)


def make_event(name: EventName, call: Call) -> Event:
    return build_call_event(name, call, event_id=EventId("evt_1"), seq=7, now=START)


@pytest.mark.parametrize(
    ("name", "call", "changed"),
    [
        (EventName.CALL_FINISHED, FINISHED, {"result_bytes": None, "result_sha256": None}),
        (EventName.CALL_FINISHED, FAILED, {"result_bytes": None, "result_sha256": None}),
        (EventName.CALL_INPUT_REQUIRED, CALL, {"input_keys": []}),
        (
            EventName.CALL_PROGRESS,
            replace(CALL, progress=Progress(progress=1, total=2, message="private")),
            {"progress": {"progress": 1, "total": 2, "message": None}},
        ),
    ],
)
def test_a_stub_has_the_form_of_its_event_without_what_client_and_upstream_said(
    name: EventName, call: Call, changed: dict[str, Any]
) -> None:
    event = make_event(name, call)

    stub = erase_event(event)

    empty = {"correlation_id": None, "client_session_id": None, "erased": True}
    assert stub.data == {**event.data, **empty, **changed}
    assert stub == replace(event, client_session_id=None, correlation_id=None, data=stub.data)


def test_the_stub_of_an_event_about_a_webhook_keeps_what_the_service_said() -> None:
    failing = replace(WEBHOOK, failing_since=START, last_error="timeout", alerted_percent=70, correlation_id="private")
    event = build_webhook_event(failing, EventName.WEBHOOK_FAILING, event_id=EventId("evt_1"), seq=7, now=START)

    stub = erase_event(event)

    assert stub.data == {**event.data, "erased": True}
    assert (stub.client_session_id, stub.correlation_id) == (None, None)


def test_a_stub_drops_members_that_it_does_not_know() -> None:
    event = replace(make_event(EventName.CALL_FINISHED, FINISHED), data={"call_id": CALL.id, "new_member": "private"})

    assert erase_event(event).data == {"call_id": CALL.id, "erased": True}
