"""`when: detached`: the delivery of an end waits for the word that the answer was written, and for no longer than the grace."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from ringback.domain.call import Call, apply_completion
from ringback.domain.call_outcome import completion_from_result
from ringback.domain.event import Event, EventName, build_call_event
from ringback.domain.ids import EventId, WebhookId
from ringback.domain.webhook import (
    INLINE_GRACE_SECONDS,
    SUBSCRIBE_GRACE_SECONDS,
    DeliveryCondition,
    delivery_due_at,
)
from ringback.domain.webhook_text import describe_webhook
from tests.support.builders import make_webhook
from tests.support.clock import START
from tests.support.examples import CALL

ENDED = apply_completion(CALL, completion_from_result(b"{}", is_error=False), now=START, result_retention_seconds=60.0)
INLINE = replace(ENDED, attended_until=START)
GRACE = timedelta(seconds=INLINE_GRACE_SECONDS)


def make_event(call: Call, name: EventName = EventName.CALL_FINISHED) -> Event:
    return build_call_event(name, call, event_id=EventId("evt_01KAGZ8A000000000000000001"), seq=7, now=START)


@pytest.mark.parametrize(
    ("when", "call", "name", "after"),
    [
        (DeliveryCondition.DETACHED, INLINE, EventName.CALL_FINISHED, GRACE),
        (DeliveryCondition.DETACHED, ENDED, EventName.CALL_FINISHED, timedelta()),
        (DeliveryCondition.DETACHED, None, EventName.CALL_FINISHED, timedelta()),
        (DeliveryCondition.ALWAYS, INLINE, EventName.CALL_FINISHED, timedelta()),
        (DeliveryCondition.DETACHED, replace(CALL, attended_until=START), EventName.CALL_INPUT_REQUIRED, timedelta()),
        (DeliveryCondition.DETACHED, replace(CALL, attended_until=START), EventName.CALL_PROGRESS, timedelta()),
    ],
)
def test_only_a_completion_that_may_be_read_inline_waits(
    when: DeliveryCondition, call: Call | None, name: EventName, after: timedelta
) -> None:
    event = make_event(call or ENDED, name)
    assert delivery_due_at(make_webhook(when=when), event, call, now=START) == START + after


@pytest.mark.parametrize(("now", "due"), [(START + GRACE / 3, START + GRACE), (START + 2 * GRACE, START + 2 * GRACE)])
def test_a_webhook_that_comes_later_waits_for_the_rest_of_the_grace(now: datetime, due: datetime) -> None:
    assert delivery_due_at(make_webhook(when=DeliveryCondition.DETACHED), make_event(INLINE), INLINE, now=now) == due


def test_a_detached_webhooks_registration_explains_when_it_gets_no_callback() -> None:
    sentence = describe_webhook(make_webhook(when=DeliveryCondition.DETACHED))
    assert sentence.endswith(", but not for a call whose end its client received while it waited.")
    assert "not for" not in describe_webhook(make_webhook())
    assert "not for" not in describe_webhook(
        make_webhook(when=DeliveryCondition.DETACHED, events=frozenset({EventName.CALL_INPUT_REQUIRED}))
    )


def test_a_log_or_a_subscription_that_a_clock_far_ahead_dated_delays_no_delivery() -> None:
    """It would be due in forty days."""
    far = START + timedelta(days=40)
    detached = make_webhook(when=DeliveryCondition.DETACHED)
    subscription = make_webhook(id=WebhookId("sub_1"), created_at=far)
    event = replace(make_event(INLINE), created_at=far)

    assert delivery_due_at(detached, event, INLINE, now=START) == START + GRACE
    assert delivery_due_at(subscription, event, INLINE, now=START) == START + timedelta(seconds=SUBSCRIBE_GRACE_SECONDS)
