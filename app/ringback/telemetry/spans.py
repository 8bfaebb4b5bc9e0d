"""The port of traces, and the span of the present work.

    a request      SERVER, child of the client's span (`traceparent` as a header, or in MCP's `params._meta`)
    a run          INTERNAL, the root of a trace, linked to the request that started the call
    to upstream    CLIENT, child of the run or of the request
    an attempt     PRODUCER, the root of a trace, linked to the request that started the call
    a resume       SERVER, as any request, linked to the request that started the call

A run and an attempt may begin days after the request, in another process: the link comes from the store, where a call and its
deliveries have the `traceparent` of the request that started the call.

`current_span` is the span of the present task and of the tasks that start in it. It is not OpenTelemetry's own context, on
purpose: the MCP SDK would send that one to every upstream, whatever the upstream's `pass_meta` says.
"""

import re
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, Protocol

from ringback.telemetry.names import Attribute, AttributeValue, Metric, SpanKind

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
REQUEST_SPAN_KEY: Final = "ringback.request_span"
"""The key of an HTTP request's span in the state of its ASGI scope."""
TRACESTATE_LENGTH_MAX: Final = 512
"""W3C Trace Context §3.3.1.5: what is longer may be dropped."""
_TRACEPARENT_00: Final = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_LATER_VERSION: Final = re.compile(
    r"(?!ff|00)[0-9a-f]{2}(-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2})(-.*)?"
)
"""W3C Trace Context §3.2.4: a later version is read as version 00 and may append fields."""
_TRACEPARENT_LENGTH_MAX: Final = 256

_CURRENT_SPAN: Final[ContextVar["Span | None"]] = ContextVar("ringback_span", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceContext:
    """The identity of a span, as it travels between processes."""

    traceparent: str
    """`00-<trace id>-<span id>-<flags>`, valid."""
    tracestate: str = ""

    @property
    def trace_id(self) -> str:
        return self.traceparent[3:35]

    @property
    def span_id(self) -> str:
        return self.traceparent[36:52]

    @property
    def is_sampled(self) -> bool:
        return bool(int(self.traceparent[53:55], 16) & 1)

    def to_members(self) -> dict[str, str]:
        """The headers, or members of `_meta`, that carry it."""
        return {TRACEPARENT: self.traceparent} | ({TRACESTATE: self.tracestate} if self.tracestate else {})


def parse_trace_context(traceparent: Any, tracestate: Any = "") -> TraceContext | None:
    """The context that a peer sent; None if it is missing or malformed. A malformed `tracestate` is dropped."""
    if not isinstance(traceparent, str) or len(traceparent) > _TRACEPARENT_LENGTH_MAX:
        return None
    if _TRACEPARENT_00.fullmatch(traceparent) is None:
        later = _LATER_VERSION.fullmatch(traceparent)
        if later is None:
            return None
        traceparent = f"00{later[1]}"
    is_valid = isinstance(tracestate, str) and len(tracestate) <= TRACESTATE_LENGTH_MAX and tracestate.isascii()
    return TraceContext(traceparent=traceparent, tracestate=tracestate if is_valid and tracestate.isprintable() else "")


class Span(Protocol):
    """One piece of work. The code that starts a span ends it."""

    @property
    def tracer(self) -> "Tracer": ...

    @property
    def context(self) -> TraceContext: ...

    def rename(self, name: str) -> None: ...

    def set_attributes(self, attributes: Mapping[Attribute, AttributeValue]) -> None: ...

    def add_link(self, context: TraceContext) -> None: ...

    def set_error(self, error_type: str) -> None:
        """The work failed. `error_type` has few values, and never a text of a peer."""
        ...

    def end(self, *metrics: Metric, without: Collection[Attribute] = ()) -> None:
        """End the span, and record its duration or count it in these metrics, by its attributes but those in `without`."""
        ...


class Tracer(Protocol):
    def start_span(
        self,
        name: str,
        kind: SpanKind,
        attributes: Mapping[Attribute, AttributeValue],
        *,
        parent: TraceContext | None = None,
        links: Sequence[TraceContext] = (),
    ) -> Span:
        """Start a span; without a parent it is the root of a trace."""
        ...


def current_span() -> Span | None:
    """The span of the present work; None without a tracer, and for work that has no span."""
    return _CURRENT_SPAN.get()


def current_traceparent() -> str | None:
    """The `traceparent` of the present work; None without a span."""
    span = _CURRENT_SPAN.get()
    return None if span is None else span.context.traceparent


def current_trace_id() -> str | None:
    """The id of the trace that the present work belongs to, for its log lines; None without a span."""
    span = _CURRENT_SPAN.get()
    return None if span is None else span.context.trace_id


@contextmanager
def use_span(span: Span | None) -> Generator[None]:
    """Make this span the current one of the block and of the tasks that start in it."""
    token = _CURRENT_SPAN.set(span)
    try:
        yield
    finally:
        _CURRENT_SPAN.reset(token)


def leave_span() -> None:
    """This task, and each task that it starts, works for many and belongs to no span of the work that started it."""
    _CURRENT_SPAN.set(None)


def link_current_span(call_id: str, traceparent: str | None) -> None:
    """Name on the current span, if there is one, the call that it is about, and link the request that started the call.

    `traceparent` is the call's. The span of that request itself gets no link.
    """
    span = _CURRENT_SPAN.get()
    if span is None:
        return
    span.set_attributes({Attribute.CALL_ID: call_id})
    context = parse_trace_context(traceparent)
    if context is not None and context.span_id != span.context.span_id:
        span.add_link(context)
