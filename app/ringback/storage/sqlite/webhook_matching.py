"""The keys by which webhooks are found for an event: the other side of the view `webhook_match_keys`.

A webhook's row names the set of its filters and the values that they ask for. An event has one key for each set of filters that
any webhook of its principal uses: its own values of those. `domain.webhook.hears` is the rule; a key that fits too much would
cost a look, and one that fits too little would lose a delivery, so a property test holds them together.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from ringback.domain.event import Event, EventName

_FILTER_BITS: Final = (
    (1, "upstream"),
    (2, "tool"),
    (4, "call_id"),
    (8, "client_session_id"),
    (16, "correlation_id"),
)
_URI_BIT: Final = 32
_VALUE_SEPARATOR: Final = "\x1f"
"""After each value. No value holds it: labels are printable. One that did could only fit too much."""


MatchKey = tuple[EventName, int, str]
"""The name of an event, a set of filters as its bits, and the joined values that these filters ask for."""


def build_match_keys(event: Event, fields_in_use: Iterable[int]) -> Iterator[MatchKey]:
    """What the rows of webhooks that hear this event hold, one key for each of these sets of filters that may fit."""
    uri = _changed_resource_uri(event)
    for fields in fields_in_use:
        values = [getattr(event, name) for bit, name in _FILTER_BITS if fields & bit]
        if None in values or bool(fields & _URI_BIT) is not (uri is not None):
            continue
        if uri is not None:
            values.append(uri)
        yield event.name, fields, "".join(f"{value}{_VALUE_SEPARATOR}" for value in values)


def _changed_resource_uri(event: Event) -> str | None:
    """A change of a resource is for webhooks that name it; a change of a list is for those that name none."""
    return event.data.get("uri") if event.name is EventName.UPSTREAM_CHANGED else None
