"""The names of MCP Events: methods, notifications, `_meta` keys and capabilities."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, cast

EVENTS_EXTENSION: Final = "io.modelcontextprotocol/events"
"""The key in `capabilities.extensions`, of servers and of clients (SEP-3415)."""
EVENTS_CAPABILITY: Final = "events"
"""The top-level capability (design sketch). The AI SDK requires it and does not read the extension's key."""
SUBSCRIPTION_ID_META_KEY: Final = "io.modelcontextprotocol/subscriptionId"
"""In `_meta` of every frame of events/stream: the JSON-RPC id of the request, with its type."""
EVENT_SOURCE_META_KEY: Final = "ringback/eventSource"
"""In `_meta` of a task or a pending result: how to subscribe to the end of that call."""
LIST_CHANGED_FLAG: Final = "eventsListChanged"
"""The flag in the filter of subscriptions/listen."""


class EventMethod(StrEnum):
    LIST = "events/list"
    POLL = "events/poll"
    STREAM = "events/stream"
    SUBSCRIBE = "events/subscribe"
    UNSUBSCRIBE = "events/unsubscribe"


class EventNotification(StrEnum):
    ACTIVE = "notifications/events/active"
    """`{cursor, truncated}`: the first frame of a stream, and again at a gap."""
    EVENT = "notifications/events/event"
    """An EventOccurrence."""
    HEARTBEAT = "notifications/events/heartbeat"
    """`{cursor}`."""
    ERROR = "notifications/events/error"
    """`{error}`: the stream goes on."""
    TERMINATED = "notifications/events/terminated"
    """`{error}`: the subscription has ended."""
    LIST_CHANGED = "notifications/events/list_changed"


class DeliveryMode(StrEnum):
    WEBHOOK = "webhook"
    PUSH = "push"
    POLL = "poll"


ALL_DELIVERY_MODES: Final = (DeliveryMode.WEBHOOK, DeliveryMode.PUSH, DeliveryMode.POLL)


def advertise_events(capabilities: dict[str, Any], *, list_changed: bool) -> None:
    """Add both spellings of the capability to a server's capabilities, in wire form."""
    settings: dict[str, Any] = {"listChanged": True} if list_changed else {}
    capabilities[EVENTS_CAPABILITY] = settings
    extensions = cast("dict[str, Any]", capabilities.get("extensions") or {})
    capabilities["extensions"] = {**extensions, EVENTS_EXTENSION: dict(settings)}


def offers_events(server_capabilities: Mapping[str, Any]) -> bool:
    """Whether a server's capabilities, in wire form, have either spelling."""
    return EVENTS_CAPABILITY in server_capabilities or declares_events(server_capabilities)


def announces_event_changes(server_capabilities: Mapping[str, Any]) -> bool:
    """Whether a server's capabilities promise notifications about changed event types, in either spelling."""
    extensions = _read_object(server_capabilities, "extensions")
    spellings = (_read_object(server_capabilities, EVENTS_CAPABILITY), _read_object(extensions, EVENTS_EXTENSION))
    return any(settings.get("listChanged") is True for settings in spellings)


def declares_events(client_capabilities: Mapping[str, Any] | None) -> bool:
    """Whether a client's capabilities, in wire form, declare the extension. No method requires it."""
    extensions: Any = (client_capabilities or {}).get("extensions")
    return isinstance(extensions, dict) and EVENTS_EXTENSION in extensions


def _read_object(parent: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The member if it is an object, and an empty object for anything else: another server wrote it."""
    value = parent.get(name)
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}
