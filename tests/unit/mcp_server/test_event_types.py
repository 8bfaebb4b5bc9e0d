"""The schemas of Ringback's own event types: real events fit them, and arguments are strict."""

from dataclasses import replace
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from ringback.domain.call import Call, CallStatus, Progress
from ringback.domain.call_outcome import CallOutcome
from ringback.domain.event import Event, EventName, build_call_event, build_upstream_event
from ringback.domain.ids import EventId
from ringback.mcp_server.event_types import build_own_descriptors, to_event_filter
from ringback.protocol.mcp_events.backend import Interest
from ringback.upstreams.catalog.argument_validation import ArgumentSchemas
from tests.support.builders import make_call
from tests.support.clock import START
from tests.support.examples import ALICE

DESCRIPTORS = {descriptor.name: descriptor for descriptor in build_own_descriptors(None)}
ENDS = [
    (CallStatus.COMPLETED, CallOutcome.RESULT),
    (CallStatus.COMPLETED, CallOutcome.TOOL_ERROR),
    (CallStatus.FAILED, CallOutcome.UPSTREAM_ERROR),
    (CallStatus.FAILED, CallOutcome.UNKNOWN),
    (CallStatus.CANCELLED, CallOutcome.CANCELLED),
]


def make_ended_call(status: CallStatus, outcome: CallOutcome) -> Call:
    has_result = status is CallStatus.COMPLETED
    digest: dict[str, Any] = {"result_bytes": 2, "result_sha256": "ab"} if has_result else {}
    return replace(make_call(), status=status, outcome=outcome, finished_at=START, **digest)


def make_events() -> list[Event]:
    call = make_call()
    calls = [
        *((EventName.CALL_FINISHED, make_ended_call(*end)) for end in ENDS),
        (EventName.CALL_INPUT_REQUIRED, replace(call, status=CallStatus.INPUT_REQUIRED)),
        (EventName.CALL_PROGRESS, replace(call, progress=Progress(progress=1, total=None, message=None))),
        (EventName.CALL_PROGRESS, replace(call, progress=Progress(progress=0.5, total=2, message="half"))),
    ]
    event_id = EventId("evt_1")
    return [
        *(build_call_event(name, each, event_id=event_id, seq=1, now=START) for name, each in calls),
        *(
            build_upstream_event(ALICE, "git", change=change, uri=uri, event_id=event_id, seq=1, now=START)
            for change, uri in (("tools", None), ("events", None), ("resource", "note://a"))
        ),
    ]


def test_the_data_of_every_kind_of_event_fits_the_payload_schema() -> None:
    events = make_events()

    assert {event.name for event in events} == DESCRIPTORS.keys()
    for event in events:
        validator: Any = Draft202012Validator(dict(DESCRIPTORS[event.name].payload_schema))
        validator.validate(dict(event.data))


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("call.finished", {"call": "call_1"}),
        ("call.finished", {"call_id": 7}),
        ("call.finished", {"call_id": ""}),
        ("call.finished", {"upstream": "no/name"}),
        ("call.finished", {"correlation_id": "x" * 257}),
        ("upstream.changed", {}),
        ("upstream.changed", {"upstream": "git", "tool": "t"}),
    ],
)
def test_arguments_that_do_not_fit_are_named(name: str, arguments: dict[str, Any]) -> None:
    assert ArgumentSchemas().find_error(DESCRIPTORS[name].input_schema, arguments) is not None


def test_at_the_endpoint_of_an_upstream_the_argument_may_be_left_out_and_be_no_other() -> None:
    (changed,) = [each for each in build_own_descriptors("git") if each.name == "upstream.changed"]
    schemas = ArgumentSchemas()

    assert schemas.find_error(changed.input_schema, {}) is None
    assert schemas.find_error(changed.input_schema, {"upstream": "git"}) is None
    assert schemas.find_error(changed.input_schema, {"upstream": "other"}) is not None


def test_every_argument_is_a_filter() -> None:
    arguments = {"call_id": "c", "client_session_id": "s", "correlation_id": "r", "upstream": "git", "tool": "t"}
    found = to_event_filter(Interest(name="call.finished", arguments=arguments))

    assert {name: getattr(found, name) for name in arguments} == arguments
