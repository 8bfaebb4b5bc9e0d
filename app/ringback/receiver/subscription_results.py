"""What a server answers to events/subscribe and events/poll (mcp-events §4, §6), as values."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, cast

log = logging.getLogger(__name__)


class MalformedResult(Exception):
    """The server's result does not have the form of the specification. The text says what is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSubscription:
    """A granted subscription."""

    id: str
    """Names it in the header of its callbacks, and in this process. It is never sent back to the server."""
    name: str
    arguments: Mapping[str, Any]
    refresh_before: datetime | None
    """None if it does not expire."""
    cursor: str | None
    """Everything of the subscription at or before it was delivered or given up; None for a type without replay."""
    truncated: bool
    """Whether the server could not send all events since the cursor of the request."""
    delivery_status: Mapping[str, Any] | None = None
    """Of a refresh: whether deliveries succeed, as the server says it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolledEvent:
    """An event of events/poll."""

    event_id: str
    name: str
    timestamp: datetime
    cursor: str | None
    data: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolledPage:
    events: Sequence[PolledEvent]
    cursor: str | None
    has_more: bool
    truncated: bool
    """Whether the server no longer has all events since the cursor of the request."""


def read_grant(result: Mapping[str, Any], *, name: str, arguments: Mapping[str, Any]) -> EventSubscription:
    """Raises `MalformedResult`."""
    subscription_id = result.get("id")
    if not isinstance(subscription_id, str) or not subscription_id:
        raise MalformedResult("The result of events/subscribe has no id.")
    refresh_before = result.get("refreshBefore")
    status = result.get("deliveryStatus")
    return EventSubscription(
        id=subscription_id,
        name=name,
        arguments=dict(arguments),
        refresh_before=None if refresh_before is None else _read_instant(refresh_before, "refreshBefore"),
        cursor=_read_cursor(result),
        truncated=result.get("truncated") is True,
        delivery_status=cast("Mapping[str, Any]", status) if isinstance(status, Mapping) else None,
    )


def read_page(result: Mapping[str, Any]) -> PolledPage:
    """An event of another form is left out, as one that is delivered gets 400. Raises `MalformedResult`."""
    events: Any = result.get("events")
    if not isinstance(events, list):
        raise MalformedResult("The result of events/poll has no list of events.")
    read = [_read_or_log(each) for each in cast("list[Any]", events)]
    return PolledPage(
        events=[event for event in read if event is not None],
        cursor=_read_cursor(result),
        has_more=result.get("hasMore") is True,
        truncated=result.get("truncated") is True,
    )


def _read_or_log(event: Any) -> PolledEvent | None:
    try:
        return _read_event(event)
    except MalformedResult as error:
        log.error("A polled event is left out: %s", error)  # noqa: TRY400 - the text says it all
        return None


def _read_event(event: Any) -> PolledEvent:
    match event:
        case {"eventId": str() as event_id, "name": str() as name, "timestamp": timestamp, "data": {**data}}:
            return PolledEvent(
                event_id=event_id,
                name=name,
                timestamp=_read_instant(timestamp, "timestamp"),
                cursor=_read_cursor(cast("Mapping[str, Any]", event)),
                data=cast("dict[str, Any]", data),
            )
        case _:
            raise MalformedResult("An event of events/poll lacks eventId, name, timestamp or data.")


def _read_cursor(result: Mapping[str, Any]) -> str | None:
    cursor = result.get("cursor")
    if cursor is not None and not isinstance(cursor, str):
        raise MalformedResult("cursor must be a string or null.")
    return cursor


def _read_instant(text: Any, what: str) -> datetime:
    try:
        instant = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        raise MalformedResult(f"{what} must be an ISO 8601 date and time.") from None
    if instant.tzinfo is None:
        raise MalformedResult(f"{what} must have an offset, such as Z.")
    return instant
