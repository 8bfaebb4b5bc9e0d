"""The keys by which an event finds its webhooks: the counterpart of the view `webhook_match_keys`.

A webhook's row has the set of its filters and their values. An event has one key for each set of filters that any webhook of
its principal uses, with its own values. `domain.webhook.matches_event` is the rule. A key that fits too many webhooks would
cost time; one that fits too few would lose a delivery. A property test compares keys and rule.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from ringback.domain.call_outcome import CallOutcome
from ringback.domain.event import Event, EventName

_FILTER_BITS: Final = (
    (1, "upstream"),
    (2, "tool"),
    (4, "call_id"),
    (8, "client_session_id"),
    (16, "correlation_id"),
)
_URI_BIT: Final = 32
_OUTCOME_BIT: Final = 64
_TOPIC_BIT: Final = 128
_VALUE_SEPARATOR: Final = "\x1f"
"""Ends each value. Labels are printable, so no value contains it; one that did could only match too many webhooks."""


MatchKey = tuple[str, int, str]
"""The name of an event, a set of filters as bits, and the joined values of these filters."""


def build_match_keys(event: Event, fields_in_use: Iterable[int]) -> Iterator[MatchKey]:
    """The keys of webhooks that match this event: one for each of these sets of filters that can match.

    An event without an outcome, for a call that has not ended, has a key for each outcome that the call can have.
    """
    uri = changed_resource_uri(event)
    for fields in fields_in_use:
        values = [getattr(event, name) for bit, name in _FILTER_BITS if fields & bit]
        if None in values or bool(fields & _URI_BIT) is not (uri is not None):
            continue
        if bool(fields & _TOPIC_BIT) is not (event.topic is not None):
            continue
        if uri is not None:
            values.append(uri)
        for outcome in possible_outcomes(event) if fields & _OUTCOME_BIT else [None]:
            key_values = [value for value in (*values, outcome, event.topic) if value is not None]
            yield event.name, fields, "".join(f"{value}{_VALUE_SEPARATOR}" for value in key_values)


def possible_outcomes(event: Event) -> Iterable[str]:
    """The outcome of a call that has ended, or those that the call can have; none of other events.

    The data of an external event may have a member of this name, with any value.
    """
    if event.name != EventName.CALL_FINISHED:
        return ()
    outcome = event.data.get("outcome")
    return CallOutcome if outcome is None else [outcome]


def changed_resource_uri(event: Event) -> str | None:
    """Webhooks that name a resource match its changes; those that name none match changes of lists."""
    return event.data.get("uri") if event.name == EventName.UPSTREAM_CHANGED else None
