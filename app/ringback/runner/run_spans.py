"""The span of a run: from the moment that a runner takes a call until the call ends, waits for input or is handed back.

It is the root of a trace and linked to the request that started the call, which may have ended days ago. A call that is parked,
or whose runner died, has one span for each run.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from ringback.domain.call import Call
from ringback.domain.call_outcome import CallCompletion, CallOutcome
from ringback.log_context import log_facts
from ringback.telemetry.names import CALL_RUN_DURATION, EXECUTE_TOOL, NAME_LENGTH_MAX, Attribute, SpanKind
from ringback.telemetry.spans import Span, Tracer, current_span, parse_trace_context, use_span

_NO_ERRORS: Final = frozenset({CallOutcome.RESULT, CallOutcome.CANCELLED})


@contextmanager
def trace_run(tracer: Tracer | None, call: Call) -> Generator[None]:
    """Run the call within a span; without a tracer, this does nothing."""
    if tracer is None:
        yield
        return
    span = _start_span(tracer, call)
    try:
        with use_span(span), log_facts(trace_id=span.context.trace_id):
            yield
    except Exception as error:
        span.set_error(type(error).__name__)
        raise
    finally:
        span.end(CALL_RUN_DURATION)


def note_dispatch(call: Call) -> None:
    """Note on the span of this run which run of the call it is: the span begins before the run is counted."""
    if (span := current_span()) is not None:
        span.set_attributes({Attribute.CALL_RUNS: call.runs})


def note_completion(completion: CallCompletion) -> None:
    """Note on the span of this run how the call ended."""
    if (span := current_span()) is not None:
        span.set_attributes({Attribute.CALL_OUTCOME: str(completion.outcome)})
        if completion.outcome not in _NO_ERRORS:
            span.set_error(str(completion.outcome))


def _start_span(tracer: Tracer, call: Call) -> Span:
    started_by = parse_trace_context(call.traceparent)
    tool = call.tool[:NAME_LENGTH_MAX]
    return tracer.start_span(
        f"{EXECUTE_TOOL} {tool}",
        SpanKind.INTERNAL,
        {
            Attribute.GEN_AI_OPERATION_NAME: EXECUTE_TOOL,
            Attribute.GEN_AI_TOOL_NAME: tool,
            Attribute.GEN_AI_TOOL_CALL_ID: call.id,
            Attribute.UPSTREAM: call.upstream,
            Attribute.CALL_ID: call.id,
            Attribute.CALL_RUNS: call.runs,
        },
        links=() if started_by is None else (started_by,),
    )
