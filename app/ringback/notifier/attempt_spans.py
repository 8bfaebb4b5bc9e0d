"""The span of an attempt, by the conventions for messaging: the POST sends one message to one webhook.

It is the root of a trace and linked to the request that started the call. Attempts follow for days, so they are no children of
that request. Its context goes to the receiver as `traceparent`, unless the operator says otherwise; with it, a receiver's spans
are children of the attempt. Of the URL the span has the host and the port.
"""

from collections.abc import Mapping
from typing import Final

from ringback.domain.attempt_category import AttemptCategory
from ringback.domain.delivery import AttemptResult
from ringback.notifier.http.target import Target
from ringback.notifier.leasing import LeasedDelivery
from ringback.notifier.payload import choose_message_id
from ringback.telemetry.names import (
    DESTINATION_TEMPLATE,
    MESSAGING_DURATION,
    MESSAGING_SENT,
    MESSAGING_SYSTEM,
    SEND_OPERATION,
    Attribute,
    AttributeValue,
    SpanKind,
)
from ringback.telemetry.spans import TRACEPARENT, Span, Tracer, parse_trace_context

_SPAN_NAME: Final = f"{SEND_OPERATION} {DESTINATION_TEMPLATE}"


class AttemptTracer:
    def __init__(self, tracer: Tracer, *, sends_context: bool) -> None:
        self._tracer = tracer
        self._sends_context = sends_context

    def start_span(self, leased: LeasedDelivery, target: Target) -> Span:
        started_by = parse_trace_context(leased.delivery.traceparent)
        return self._tracer.start_span(
            _SPAN_NAME,
            SpanKind.PRODUCER if self._sends_context else SpanKind.CLIENT,
            _describe_attempt(leased, target),
            links=() if started_by is None else (started_by,),
        )

    def build_headers(self, span: Span, own_headers: Mapping[str, str]) -> dict[str, str]:
        """The headers with the span's context; none if the webhook has such a header of its own."""
        if not self._sends_context or any(name.lower() == TRACEPARENT for name in own_headers):
            return {}
        return span.context.to_members()


def end_attempt_span(span: Span, result: AttemptResult) -> None:
    span.set_attributes({Attribute.ATTEMPT_CATEGORY: str(result.category)})
    if result.status_code is not None:
        span.set_attributes({Attribute.HTTP_RESPONSE_STATUS_CODE: result.status_code})
    if result.category is not AttemptCategory.DELIVERED:
        span.set_error(str(result.category))
    span.end(MESSAGING_DURATION, MESSAGING_SENT)


def _describe_attempt(leased: LeasedDelivery, target: Target) -> dict[Attribute, AttributeValue]:
    delivery = leased.delivery
    attributes: dict[Attribute, AttributeValue] = {
        Attribute.MESSAGING_SYSTEM: MESSAGING_SYSTEM,
        Attribute.MESSAGING_OPERATION_NAME: SEND_OPERATION,
        Attribute.MESSAGING_OPERATION_TYPE: SEND_OPERATION,
        Attribute.MESSAGING_DESTINATION_TEMPLATE: DESTINATION_TEMPLATE,
        Attribute.MESSAGING_DESTINATION_NAME: f"webhooks/{delivery.webhook_id}",
        Attribute.MESSAGING_MESSAGE_ID: choose_message_id(delivery, leased.webhook),
        Attribute.MESSAGING_MESSAGE_BODY_SIZE: len(delivery.body),
        Attribute.SERVER_ADDRESS: target.host,
        Attribute.SERVER_PORT: target.port,
        Attribute.DELIVERY_ID: delivery.id,
        Attribute.ATTEMPT_NUMBER: delivery.attempts,
    }
    if delivery.call_id is not None:
        attributes[Attribute.CALL_ID] = delivery.call_id
    return attributes
