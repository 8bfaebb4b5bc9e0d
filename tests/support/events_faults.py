"""Faults of `tests.support.events_server` that change a result, a frame or a delivery after it was made."""

from collections.abc import Callable, Mapping
from typing import Any, Final

Json = dict[str, Any]
Rewrite = Callable[[Json], Json]


def put(**members: Any) -> Rewrite:
    return lambda value: {**value, **members}


def drop(name: str) -> Rewrite:
    return lambda value: {key: each for key, each in value.items() if key != name}


def in_events(rewrite: Rewrite) -> Rewrite:
    return lambda value: {**value, "events": [rewrite(event) for event in value["events"]]}


def in_capabilities(settings: Any) -> Rewrite:
    return lambda value: {
        **value,
        "capabilities": {"events": settings, "extensions": {"io.modelcontextprotocol/events": settings}},
    }


GARBAGE: Final[Json] = {
    "name": "note.added",
    "delivery": ["webhook", "push", "poll", {}],
    "inputSchema": {"type": [], "properties": {"a": 1, "topic": {"type": {}}}, "required": {}},
    "payloadSchema": {"required": 7},
    "_meta": 1,
}
"""An event type with a usable name and modes, and nothing else that is right."""
_LIST, _POLL, _SUBSCRIBE = "events/list", "events/poll", "events/subscribe"

RESULTS: Final[Mapping[tuple[str, str], Rewrite]] = {
    ("server/discover", "capability-events-object"): in_capabilities(settings=True),
    ("server/discover", "capability-list-changed-flag"): in_capabilities({"listChanged": "yes"}),
    (_LIST, "garbage"): put(events=[{"name": {}, "delivery": {}}, {"name": "note.added", "delivery": 3}, GARBAGE, 7]),
    (_POLL, "garbage"): put(events=[[], {"eventId": {}}], cursor={}, hasMore=[], nextPollMs={}),
    (_SUBSCRIBE, "garbage"): put(id=[], refreshBefore=7, cursor=[], truncated=[], deliveryStatus=3),
    (_LIST, "list-implemented"): put(events={}),
    (_LIST, "descriptor-name"): in_events(put(name="")),
    (_LIST, "descriptor-description"): in_events(drop("description")),
    (_LIST, "descriptor-delivery-subset"): in_events(put(delivery=["webhook", "push", "poll", "sms"])),
    (_LIST, "descriptor-input-schema"): in_events(put(inputSchema="none")),
    (_LIST, "descriptor-payload-schema"): in_events(drop("payloadSchema")),
    (_LIST, "descriptor-meta"): in_events(put(_meta=[])),
    (_POLL, "poll-events-array"): put(events=None),
    (_POLL, "poll-response-cursor"): put(cursor=5),
    (_POLL, "poll-next-poll-ms"): put(nextPollMs="soon"),
    (_POLL, "poll-has-more"): put(hasMore="no"),
    (_POLL, "occurrence-event-id"): in_events(put(eventId=7)),
    (_POLL, "occurrence-name"): in_events(put(name="note.other")),
    (_POLL, "occurrence-timestamp"): in_events(put(timestamp="yesterday")),
    (_POLL, "occurrence-timestamp-offset"): in_events(put(timestamp="2026-11-22T10:00:00")),
    (_POLL, "occurrence-data"): in_events(put(data=["tests"])),
    (_POLL, "occurrence-data-required"): in_events(put(data={})),
    (_POLL, "occurrence-no-type"): in_events(put(type="note")),
    (_POLL, "occurrence-cursor-optional"): in_events(put(cursor=7)),
    (_POLL, "occurrence-meta-ungoverned"): in_events(put(_meta="none")),
    (_POLL, "cursor-opaque"): put(cursor=""),
    (_SUBSCRIBE, "subscribe-id-derived"): put(id=""),
    (_SUBSCRIBE, "subscribe-response-cursor"): put(cursor=7),
    (_SUBSCRIBE, "subscribe-response-truncated"): put(truncated="no"),
    (_SUBSCRIBE, "subscribe-response-complete"): drop("truncated"),
    (_SUBSCRIBE, "ttl-refresh-before-lte-suggestion"): put(refreshBefore="tomorrow"),
    (_SUBSCRIBE, "ttl-refresh-before-offset"): put(refreshBefore="2026-11-22T10:00:00"),
    (_SUBSCRIBE, "ttl-null-only-when-requested"): put(refreshBefore=None),
    (_SUBSCRIBE, "delivery-status-last-error-category"): put(deliveryStatus={"active": True, "lastError": "410 Gone"}),
}
"""By method and id of the check."""

FRAMES: Final[Mapping[tuple[str, str], Rewrite]] = {
    ("active", "stream-active-confirmation"): drop("truncated"),
    ("event", "stream-event-notification"): drop("eventId"),
    ("event", "stream-same-id-as-poll"): put(eventId="streamed"),
    ("heartbeat", "stream-heartbeat-carries-cursor"): drop("cursor"),
}
"""By kind of the notification and id of the check."""

BODIES: Final[Mapping[str, Rewrite]] = {
    "delivery-body-is-occurrence": drop("data"),
    "delivery-same-id-as-poll": put(eventId="delivered"),
    "envelope-type-discriminator": put(type="event"),
    "delivery-body-size": put(padding="x" * 300_000),
}
"""Of deliveries, by id of the check."""
