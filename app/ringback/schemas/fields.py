"""Types of the members of requests and responses, with their limits."""

from datetime import datetime
from typing import Annotated, Any, Final, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainSerializer, SecretStr, Strict, WithJsonSchema

from ringback.domain.call import LABEL_LENGTH_MAX
from ringback.domain.change_subscriptions import RESOURCE_URI_LENGTH_MAX
from ringback.domain.clock import format_iso
from ringback.domain.cursor import CURSOR_LENGTH_MAX
from ringback.domain.event import EventName
from ringback.domain.validation import require_printable
from ringback.domain.webhook import DEFAULT_EVENTS, DESCRIPTION_LENGTH_MAX, SECRET_LENGTH_MAX
from ringback.notifier.http.target import URL_LENGTH_MAX
from ringback.services.long_polling import LONG_POLL_SECONDS_MAX

T = TypeVar("T")

ID_LENGTH_MAX: Final = 64
"""Twice the length of our ids."""
EXPIRY_SECONDS_MAX: Final = 366 * 86400
"""One year. A webhook without `expires_in_seconds` does not expire."""
RATE_PER_SECOND_MIN: Final = 0.01
"""One attempt in 100 seconds; slower receivers poll instead."""
RATE_PER_SECOND_MAX: Final = 1000.0
"""A higher limit has no effect: deliveries never reach it."""

PAGE_SIZE_DEFAULT: Final = 50
PAGE_SIZE_MAX: Final = 100
"""Rows per page: a client can show them, and the store reads them in one short transaction."""
NEXT_CURSOR_DESCRIPTION: Final = (
    "The cursor of the next page; null only at the end of the list. With a filter that few rows match, a page can be short or "
    "empty although the list goes on, because one request reads a bounded number of rows."
)

DEFAULT_EVENTS_SCHEMA: Final[dict[str, Any]] = {"default": sorted(str(name) for name in DEFAULT_EVENTS)}
"""For the OpenAPI document: each process would write a set in a different order."""
WHEN_DESCRIPTION: Final = (
    "`detached`: send no callback for an end that the response to the request that started the call already carried. All "
    "other events are sent."
)


class RequestBody(BaseModel):
    """The JSON body of a request."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def to_arguments(self, **replaced: Any) -> dict[str, Any]:
        """The members as arguments of the domain value with the same names, except those that are replaced."""
        return {**dict(self), **replaced}


class QueryParams(BaseModel):
    """The query parameters of a request."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ResponseBody(BaseModel):
    """A JSON object that the service sends. It is built from a domain value whose attributes have the members' names."""

    model_config = ConfigDict(frozen=True, from_attributes=True)


def _is_none(value: object) -> bool:
    return value is None


Label = Annotated[str, Field(min_length=1, max_length=LABEL_LENGTH_MAX), AfterValidator(require_printable)]
"""A client's own identifier, or the name of an upstream or a tool."""
Url = Annotated[str, Field(min_length=1, max_length=URL_LENGTH_MAX)]
ResourceUri = Annotated[str, Field(min_length=1, max_length=RESOURCE_URI_LENGTH_MAX), AfterValidator(require_printable)]
Description = Annotated[str, Field(max_length=DESCRIPTION_LENGTH_MAX), AfterValidator(require_printable)]
Secret = Annotated[SecretStr, Field(min_length=1, max_length=SECRET_LENGTH_MAX)]
EventNames = Annotated[frozenset[EventName], Field(min_length=1)]
Id = Annotated[str, Field(min_length=1, max_length=ID_LENGTH_MAX), AfterValidator(require_printable)]
PageSize = Annotated[int, Field(ge=1, le=PAGE_SIZE_MAX)]
Cursor = Annotated[str, Field(min_length=1, max_length=CURSOR_LENGTH_MAX)]
StrictBool = Annotated[bool, Strict()]
ExpirySeconds = Annotated[float, Strict(), Field(ge=1, le=EXPIRY_SECONDS_MAX, allow_inf_nan=False)]
RatePerSecond = Annotated[float, Strict(), Field(ge=RATE_PER_SECOND_MIN, le=RATE_PER_SECOND_MAX, allow_inf_nan=False)]
WaitSeconds = Annotated[float, Field(ge=0, le=LONG_POLL_SECONDS_MAX, allow_inf_nan=False)]

Instant = Annotated[
    datetime,
    PlainSerializer(format_iso, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time"}, mode="serialization"),
]
OmittedIfNone = Annotated[T | None, Field(exclude_if=_is_none)]
"""A member that is absent instead of null."""
