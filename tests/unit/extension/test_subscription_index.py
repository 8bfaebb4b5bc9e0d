"""The index finds the subscriptions that the rule of the event type finds, and forgets those that have ended."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from ringback.domain.event import Event
from ringback.domain.event_subscriptions import EventSubscription, SubscriptionEnd, end_subscription
from ringback.domain.ids import EventId, WebhookId
from ringback.domain.principal import Principal
from ringback.extension.events.event_types import DeclaredEventTypes
from ringback.extension.events.principals import audience_of
from ringback.extension.events.shared_log import Audience
from ringback.extension.events.subscription_index import PUTS_PER_SWEEP, SubscriptionIndex

NOW: Final = datetime(2026, 11, 22, tzinfo=UTC)
NAME: Final = "order.paid"
values = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 2), st.sampled_from([0.0, 1.0, 0.5]), st.sampled_from(["", "a", "é", "1"])
)
members = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.one_of(values, st.lists(values, max_size=2)), max_size=3)
principals = st.sampled_from(["alice", "bob"])


class Anything(BaseModel):
    pass


def make_types() -> DeclaredEventTypes:
    types = DeclaredEventTypes()
    types.declare(Anything, name=NAME, description="x", arguments=None, matches=None)
    return types


def subscription(number: int, principal: str, arguments: dict[str, Any], **members: Any) -> EventSubscription:
    stored: dict[str, Any] = {
        "id": WebhookId(f"sub_{number}"),
        "principal": Principal(principal),
        "event_name": NAME,
        "arguments": json.dumps(arguments),
        "error_profile": "sketch",
        "key_id": None,
        "ttl_ms": None,
        "created_at": NOW,
        "refreshed_at": NOW,
    }
    return EventSubscription(**{**stored, **members})


def event(data: dict[str, Any], principal: str | None = None) -> Event:
    return Event(
        id=EventId("evt_1"),
        principal=Principal("server"),
        seq=1,
        name=NAME,
        call_id=None,
        client_session_id=audience_of(principal),
        correlation_id=None,
        upstream=None,
        tool=None,
        data=data,
        created_at=NOW,
    )


@given(
    subscriptions=st.lists(st.tuples(principals, members), max_size=6),
    data=members,
    principal=st.one_of(st.none(), principals),
)
def test_the_index_finds_what_the_rule_finds(
    subscriptions: list[tuple[str, dict[str, Any]]], data: dict[str, Any], principal: str | None
) -> None:
    types = make_types()
    index = SubscriptionIndex(types)
    audience = Audience(types, index)
    for number, (owner, arguments) in enumerate(subscriptions):
        index.put_subscription(subscription(number, owner, arguments), now=NOW)
    emitted = event(data, principal)
    by_rule = {
        f"sub_{number}"
        for number, (owner, arguments) in enumerate(subscriptions)
        if audience.matches(owner, arguments, emitted)
    }
    assert {found.id for found in index.find_candidates(emitted)} == by_rule


def test_an_event_of_many_subscriptions_looks_up_one_key() -> None:
    index = SubscriptionIndex(make_types())
    for number in range(1_000):
        index.put_subscription(subscription(number, "alice", {"a": number}), now=NOW)
    assert [found.id for found in index.find_candidates(event({"a": 7, "b": 1}))] == ["sub_7"]


def test_an_ended_subscription_leaves_nothing() -> None:
    index = SubscriptionIndex(make_types())
    live = subscription(1, "alice", {"a": 1})
    index.put_subscription(live, now=NOW)
    index.put_subscription(end_subscription(live, SubscriptionEnd.UNSUBSCRIBED, now=NOW), now=NOW)
    assert index.count == 0


def test_expired_subscriptions_are_dropped_now_and_then() -> None:
    index = SubscriptionIndex(make_types())
    index.put_subscription(subscription(0, "alice", {"a": 0}, ttl_ms=1_000), now=NOW)
    for _ in range(PUTS_PER_SWEEP):
        index.put_subscription(subscription(1, "alice", {"a": 0}), now=NOW + timedelta(seconds=2))
    assert [found.id for found in index.find_candidates(event({"a": 0}))] == ["sub_1"]
