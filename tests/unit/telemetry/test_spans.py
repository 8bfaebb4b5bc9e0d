"""The trace context that peers send, as W3C Trace Context describes it, and texts that no exporter could encode."""

import pytest

from ringback.telemetry.names import Attribute, SpanKind, name_rpc_error
from ringback.telemetry.spans import TraceContext, current_traceparent, leave_span, parse_trace_context, use_span
from tests.support.traces import RecordedTraces

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
VALID = f"00-{TRACE}-{SPAN}-01"


def test_a_context_is_read_and_written_unchanged() -> None:
    context = parse_trace_context(VALID, "rojo=1,congo=2")

    assert context is not None
    assert (context.trace_id, context.span_id, context.is_sampled) == (TRACE, SPAN, True)
    assert context.to_members() == {"traceparent": VALID, "tracestate": "rojo=1,congo=2"}


def test_a_later_version_is_read_as_the_first_one() -> None:
    assert parse_trace_context(f"cc-{TRACE}-{SPAN}-01-what-the-future-brings") == TraceContext(traceparent=VALID)


@pytest.mark.parametrize(
    "traceparent",
    [
        *(None, 17, "", "00", VALID.upper(), f"{VALID}-more", f"ff-{TRACE}-{SPAN}-01", f"00-{'0' * 32}-{SPAN}-01"),
        *(f"00-{TRACE}-{'0' * 16}-01", f" {VALID}", f"{VALID}\n", f"cc-{TRACE}-{SPAN}-01-{'x' * 300}", f"00-{TRACE}"),
        VALID.replace("4", "\N{ARABIC-INDIC DIGIT FOUR}"),
    ],
)
def test_a_malformed_context_is_none(traceparent: object) -> None:
    assert parse_trace_context(traceparent) is None


@pytest.mark.parametrize("tracestate", [None, 5, "a=1\r\nx-evil: 1", "ä=1", "a=" + "x" * 600])
def test_a_malformed_tracestate_is_dropped_and_the_context_stays(tracestate: object) -> None:
    assert parse_trace_context(VALID, tracestate) == TraceContext(traceparent=VALID)


def test_a_span_is_current_in_its_block_only() -> None:
    span = RecordedTraces().tracer.start_span("work", SpanKind.INTERNAL, {})
    with use_span(span):
        inside = current_traceparent()
        leave_span()
        after_leaving = current_traceparent()

    assert inside == span.context.traceparent
    assert (after_leaving, current_traceparent()) == (None, None)


def test_a_text_that_is_no_valid_unicode_does_not_reach_the_exporter() -> None:
    traces = RecordedTraces()
    traces.tracer.start_span("tool \ud800", SpanKind.INTERNAL, {Attribute.GEN_AI_TOOL_NAME: "\udfff\ud800 ä"}).end()

    (span,) = traces.spans
    assert (span.name, dict(span.attributes or {})) == ("tool ?", {"gen_ai.tool.name": "?? ä"})


@pytest.mark.parametrize(
    ("code", "named"), [(-32602, "-32602"), (-32000, "-32000"), (7, "_OTHER"), ("x", "_OTHER"), (None, "_OTHER")]
)
def test_error_codes_that_peers_invent_are_one_value(code: object, named: str) -> None:
    assert name_rpc_error(code) == named
