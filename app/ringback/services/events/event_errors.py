"""The service's errors as errors of MCP Events (mcp-events §7)."""

from collections.abc import Generator
from contextlib import contextmanager

from ringback.domain.errors import (
    Forbidden,
    InvalidRequest,
    NotFound,
    QuotaExceeded,
    RingbackError,
    Unauthenticated,
    Unavailable,
    UnknownUpstream,
)
from ringback.protocol.mcp_events.errors import EventError, EventErrorName, forbidden, invalid_params


@contextmanager
def raising_event_errors() -> Generator[None]:
    """Raise the service's errors as `EventError`. What is no error of ours is a bug and passes."""
    try:
        yield
    except RingbackError as error:
        raise to_event_error(error) from error


def to_event_error(error: RingbackError) -> EventError:
    match error:
        case QuotaExceeded():
            return _quota_error(error)
        case Forbidden() | Unauthenticated() | UnknownUpstream():
            return forbidden(error.detail)  # an upstream that the caller may not use looks like one that does not exist
        case NotFound():
            return EventError(EventErrorName.NOT_FOUND, error.detail)
        case InvalidRequest():
            return invalid_params(error.detail)
        case Unavailable():
            return EventError(EventErrorName.INTERNAL_ERROR, error.detail)
        case _:
            return EventError(EventErrorName.INVALID_PARAMS, error.detail)


def _quota_error(error: QuotaExceeded) -> EventError:
    """`data {limit, max}`, and when to try again."""
    data = {
        "limit": error.extra.get("quota"),
        "max": error.extra.get("limit"),
        "retryAfterMs": error.retry_after_seconds * 1000,
    }
    return EventError(EventErrorName.RESOURCE_EXHAUSTED, error.detail, data)
