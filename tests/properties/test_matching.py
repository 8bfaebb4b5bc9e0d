"""Which webhooks match an event, decided twice: by `matches_event`, and by the rule as sets, which shares no code with it."""

from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ringback.domain.call_outcome import CallOutcome
from ringback.domain.event import Event, EventName
from ringback.domain.ids import CallId
from ringback.domain.principal import Principal
from ringback.domain.webhook import HOLDING_STATES, Webhook, WebhookState, matches_event
from tests.support.clock import START
from tests.support.examples import ALICE, BOB, EVENT, WEBHOOK

EXAMPLES: Final = max(20, settings().max_examples // 2)
"""Of each of twelve twists."""
FILTERS = ("upstream", "tool", "call_id", "client_session_id", "correlation_id")

# Two words for everything, so that what does not match by design still matches by chance.
principals = st.sampled_from([ALICE, BOB])
words = st.sampled_from(["a", "b"])
outcomes = st.sampled_from([str(CallOutcome.RESULT), str(CallOutcome.UNKNOWN)])

events = st.fixed_dictionaries(
    {
        "principal": principals,
        "name": st.sampled_from(EventName),
        "call_id": words.map(CallId),
        "client_session_id": st.none() | words,
        "correlation_id": st.none() | words,
        "upstream": words,
        "tool": words,
        "topic": st.none() | words,
        "data": st.fixed_dictionaries({"outcome": outcomes}, optional={"uri": words}),
    }
).map(lambda values: replace(EVENT, **values))
mutations: dict[str, st.SearchStrategy[Any]] = {
    "principal": principals,
    "events": st.frozensets(st.sampled_from(EventName)),
    "upstream": st.none() | words,
    "tool": st.none() | words,
    "call_id": st.none() | words,
    "client_session_id": st.none() | words,
    "correlation_id": st.none() | words,
    "resource_uri": st.none() | words,
    "topic": st.none() | words,
    "outcomes": st.none() | st.frozensets(st.sampled_from(CallOutcome), min_size=1),
    "state": st.sampled_from(WebhookState),
    "expires_at": st.integers(-1, 1).map(lambda seconds: START + timedelta(seconds=seconds)),
}


@st.composite
def webhook_and_event(draw: st.DrawFn, twist: str | None = None) -> tuple[Webhook, Event]:
    """A webhook that fits the event, but for one thing that is left to chance: so each rule is seen to decide alone."""
    event = draw(events)
    twisted = twist or draw(st.sampled_from(sorted(mutations)))
    fitting: dict[str, Any] = {name: draw(st.sampled_from([None, getattr(event, name)])) for name in FILTERS}
    fitting |= {
        "principal": event.principal,
        "events": frozenset({event.name}),
        "match_correlation": draw(st.booleans()),
        "resource_uri": event.data.get("uri"),
        "topic": event.topic,
        "outcomes": draw(st.sampled_from([None, frozenset({CallOutcome(event.data["outcome"])})])),
    }
    return replace(WEBHOOK, **fitting | {twisted: draw(mutations[twisted])}), event


def matches_by_sets(webhook: Webhook, event: Event) -> bool:
    """Everything the webhook insists on is among what the event is, and the webhook is alive.

    A change of an upstream is of one resource or of a list, and so is a subscription of a webhook.
    """
    insisted = {"principal", *FILTERS} - (set() if webhook.match_correlation else {"correlation_id"})
    insists = {(name, getattr(webhook, name)) for name in insisted if getattr(webhook, name) is not None}
    is_now = {(name, getattr(event, name)) for name in ("principal", *FILTERS)}
    alive = webhook.state != "disabled" and (webhook.expires_at or START + timedelta(days=1)) > START
    about = {webhook.resource_uri} == {event.data.get("uri")} or event.name != "upstream.changed"
    accepted = {str(outcome) for outcome in CallOutcome if webhook.outcomes is None or outcome in webhook.outcomes}
    ended_so = {event.data["outcome"]} <= accepted or event.name != "call.finished"
    about &= {webhook.topic} == {event.topic}
    return alive and about and ended_so and insists <= is_now and {event.name} <= webhook.events


@pytest.mark.requirement("R25")
@pytest.mark.parametrize("twist", sorted(mutations))
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_a_webhook_matches_exactly_its_filters(data: st.DataObject, twist: str) -> None:
    webhook, event = data.draw(webhook_and_event(twist))
    assert matches_event(webhook, event, now=START) == matches_by_sets(webhook, event)


@pytest.mark.requirement("R25")
@given(meeting=webhook_and_event(), stranger=st.text(min_size=1).map(Principal))
def test_a_webhook_never_matches_another_principals_events(meeting: tuple[Webhook, Event], stranger: Principal) -> None:
    webhook, event = meeting
    assume(stranger != event.principal)
    assert not matches_event(replace(webhook, principal=stranger), event, now=START)


@given(meeting=webhook_and_event(), name=st.sampled_from(FILTERS))
def test_removing_a_filter_never_removes_a_match(meeting: tuple[Webhook, Event], name: str) -> None:
    webhook, event = meeting
    assume(matches_event(webhook, event, now=START))
    assert matches_event(replace(webhook, **{name: None}), event, now=START)


@given(meeting=webhook_and_event())
def test_removing_the_outcomes_never_removes_a_match(meeting: tuple[Webhook, Event]) -> None:
    webhook, event = meeting
    assume(matches_event(webhook, event, now=START))
    assert matches_event(replace(webhook, outcomes=None), event, now=START)


@given(meeting=webhook_and_event(), named=st.frozensets(st.sampled_from(CallOutcome), min_size=1))
def test_a_call_that_has_not_ended_may_still_end_with_any_outcome(
    meeting: tuple[Webhook, Event], named: frozenset[CallOutcome]
) -> None:
    webhook, event = meeting[0], replace(meeting[1], data={})
    assert matches_event(replace(webhook, outcomes=named), event, now=START) == matches_event(
        replace(webhook, outcomes=None), event, now=START
    )


@given(meeting=webhook_and_event(), label=st.none() | words)
def test_a_correlation_id_is_a_label_until_it_is_said_to_match(
    meeting: tuple[Webhook, Event], label: str | None
) -> None:
    webhook, event = meeting
    labelled = replace(webhook, match_correlation=False)
    assert matches_event(labelled, event, now=START) == matches_event(
        replace(labelled, correlation_id=label), event, now=START
    )


@given(meeting=webhook_and_event(), state=st.sampled_from(sorted(HOLDING_STATES)))
def test_a_held_webhook_matches_like_an_active_one(meeting: tuple[Webhook, Event], state: WebhookState) -> None:
    """Its deliveries are inserted as held: a late proof loses nothing."""
    webhook, event = (replace(meeting[0], state=WebhookState.ACTIVE), meeting[1])
    assert matches_event(replace(webhook, state=state), event, now=START) == matches_event(webhook, event, now=START)
