"""Types of the members of requests and responses, with their limits."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final, TypeVar, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PlainSerializer,
    SecretStr,
    Strict,
    WithJsonSchema,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from ringback.domain.call import LABEL_LENGTH_MAX
from ringback.domain.call_outcome import CallOutcome
from ringback.domain.callback_headers import CallbackHeaders, parse_headers
from ringback.domain.change_subscriptions import RESOURCE_URI_LENGTH_MAX
from ringback.domain.clock import format_iso
from ringback.domain.cursor import CURSOR_LENGTH_MAX
from ringback.domain.event import EventName, event_name
from ringback.domain.event_types import EVENT_NAME_LENGTH_MAX, is_own_name, is_publishable_name, is_upstream_name
from ringback.domain.principal import PRINCIPAL_LENGTH_MAX
from ringback.domain.validation import require_printable
from ringback.domain.webhook import DEFAULT_EVENTS, DESCRIPTION_LENGTH_MAX, SECRET_LENGTH_MAX
from ringback.notifier.http.target import URL_LENGTH_MAX
from ringback.services.long_polling import LONG_POLL_SECONDS_MAX
from ringback.signing.secrets import parse_secret

T = TypeVar("T")

ID_LENGTH_MAX: Final = 64
"""Twice the length of our ids."""
EXPIRY_SECONDS_MAX: Final = 366 * 86400
"""One year. A webhook without `expires_in_seconds` does not expire."""
IDEMPOTENCY_KEY_LENGTH_MAX: Final = 256
"""Several UUIDs fit, or the client's own name of the work."""
PRINTABLE_ASCII: Final = r"^[\x20-\x7e]+$"
PRINTABLE_ASCII_WORD: Final = r"^[\x21-\x7e]+$"
CALL_ID_PREFIX: Final = r"^call_[0-9A-HJKMNP-TV-Z]{0,26}$"
DELIVERY_ID_PREFIX: Final = r"^dlv_[0-9A-HJKMNP-TV-Z]{0,26}$"
WEBHOOK_NAME_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,63}$"
"""A segment of a path without an escape. 64 characters, as of a host label: `reports-agent`, `prod:reports`."""
SCOPE_PATTERN: Final = r"^[\x21\x23-\x5b\x5d-\x7e]+( [\x21\x23-\x5b\x5d-\x7e]+)*$"
"""RFC 6749 §3.3."""
WORDS_BY_PATTERN: Final[Mapping[str, str]] = {
    PRINTABLE_ASCII: "Use printable ASCII characters only.",
    PRINTABLE_ASCII_WORD: "Use printable ASCII characters only, and no space.",
    CALL_ID_PREFIX: "Write the beginning of a call's id, such as call_01KAGZ.",
    DELIVERY_ID_PREFIX: "Write the beginning of a delivery's id, such as dlv_01KAGZ.",
    WEBHOOK_NAME_PATTERN: "Write a letter or digit, then up to 63 letters, digits and . _ : -",
    SCOPE_PATTERN: "Write scopes of printable ASCII characters, without quotes and backslashes, separated by one space.",
}
"""What a client reads instead of the pattern."""
RATE_PER_SECOND_MIN: Final = 0.01
"""One attempt in 100 seconds; slower receivers poll instead."""
RATE_PER_SECOND_MAX: Final = 1000.0
"""A higher limit has no effect: deliveries never reach it."""

EVENT_NAMES_MAX: Final = 256
"""Of one webhook: Ringback's own, all that a principal may declare, and more of upstreams than anyone lists by hand."""
OUTCOMES_MAX: Final = 64
MEMBERS_MAX: Final = 64
"""Members of an object with known names: three times as many as the largest has."""

PAGE_SIZE_DEFAULT: Final = 50
PAGE_SIZE_MAX: Final = 100
"""Rows per page: a client can show them, and the store reads them in one short transaction."""
NEXT_CURSOR_DESCRIPTION: Final = (
    "The cursor of the next page; null only at the end of the list. With a filter that few rows match, a page can be short or "
    "empty although the list goes on, because one request reads a bounded number of rows."
)

DRY_RUN_DESCRIPTION: Final = "Answer with the numbers, and change nothing."
DEFAULT_EVENTS_SCHEMA: Final[dict[str, Any]] = {"default": sorted(str(name) for name in DEFAULT_EVENTS)}
"""For the OpenAPI document: each process would write a set in a different order."""
OUTCOMES_DESCRIPTION: Final = (
    "Receive `call.finished` only for calls with these outcomes; null means all. If you send it without `events`, `events` is "
    "`call.finished` only."
)
EVENT_NAME_DESCRIPTION: Final = (
    "The name of an event: one of Ringback's own, of those that you publish (`order.paid`), or of an upstream's "
    "(`upstream/name`)."
)
WHEN_DESCRIPTION: Final = (
    "`detached`: send no callback for an end that the response to the request that started the call already carried. All "
    "other events are sent."
)


PRINCIPAL_DESCRIPTION: Final = (
    "For an operator, whose key has the scope `admin`: the principal whose objects are meant. `*` means all principals in a "
    "list, and elsewhere the owner of the object. Each use is written to the audit log."
)
OWNER_DESCRIPTION: Final = "The owner. Only responses to an operator show it."


_DATE_AND_TIME: Final = re.compile(r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:")


def limit_size(most: int) -> BeforeValidator:
    """Refuse more members before the first is checked.

    Pydantic checks each member of a set and of an object, and describes each error, before it counts them: 200,000 wrong names
    took six seconds of the event loop.
    """

    def check(value: Any) -> Any:
        _require_size(value, most)
        return value

    return BeforeValidator(check)


def _require_size(value: object, most: int) -> None:
    if isinstance(value, list | dict) and len(cast("list[object]", value)) > most:
        raise ValueError(f"It has more than {most} members.")


class RequestBody(BaseModel):
    """The JSON body of a request."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _limit_members(cls, value: Any) -> Any:
        """As `limit_size`: each unknown name is an error."""
        _require_size(value, MEMBERS_MAX)
        return value

    def to_arguments(self, **replaced: Any) -> dict[str, Any]:
        """The members as arguments of the domain value with the same names, except those that are replaced."""
        return {**dict(self), **replaced}


class QueryParams(BaseModel):
    """The query parameters of a request."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class PrincipalQueryParams(QueryParams):
    """Query parameters of a request that an operator may send for another principal (`api.operator_access`)."""

    principal: Annotated[
        str | None,
        Field(min_length=1, max_length=PRINCIPAL_LENGTH_MAX, description=PRINCIPAL_DESCRIPTION),
    ] = None


class ResponseBody(BaseModel):
    """A JSON object that the service sends. It is built from a domain value whose attributes have the members' names."""

    model_config = ConfigDict(frozen=True, from_attributes=True)


def _is_none(value: object) -> bool:
    return value is None


def _require_date_and_time(value: object) -> object:
    """Refuse numbers, which pydantic takes for seconds or milliseconds by their size."""
    if isinstance(value, datetime) or (isinstance(value, str) and _DATE_AND_TIME.match(value)):
        return value
    raise ValueError("Write the date and the time: 2026-11-20T17:00:00Z.")


def _require_offset(value: datetime) -> datetime:
    if value.tzinfo is None:
        raise ValueError("Add the UTC offset: 2026-11-20T17:00:00Z.")
    try:
        value = value.astimezone(UTC)
    except OverflowError:
        raise ValueError("Write a time of the years 1 to 9999 in UTC.") from None
    return value.replace(microsecond=value.microsecond // 1000 * 1000)


def headers_from_body(headers: Mapping[str, SecretStr]) -> CallbackHeaders:
    """Raises ValueError as `parse_headers`."""
    return parse_headers({name: value.get_secret_value() for name, value in headers.items()})


def _check_headers(headers: dict[str, SecretStr]) -> dict[str, SecretStr]:
    headers_from_body(headers)
    return headers


def _check_secret(secret: SecretStr) -> SecretStr:
    parse_secret(secret.get_secret_value())
    return secret


def _check_event_name(name: str) -> str:
    if is_own_name(name) or is_publishable_name(name) or is_upstream_name(name):
        return event_name(name)
    raise ValueError(
        f"No event can have this name. Ringback's own are {', '.join(EventName)}; events that you publish are named like "
        "order.paid, and those of an upstream like github/pr.opened."
    )


class _NeverNull:
    """The schema of a member that is absent instead of null does not allow null."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        described = handler(schema)
        kinds = [kind for kind in described.pop("anyOf", []) if kind != {"type": "null"}]
        described.pop("default", None)
        if len(kinds) > 1:
            described["anyOf"] = kinds
        return described if len(kinds) != 1 else {**kinds[0], **described}


Label = Annotated[str, Field(min_length=1, max_length=LABEL_LENGTH_MAX), AfterValidator(require_printable)]
"""A client's own identifier, or the name of an upstream or a tool."""
Url = Annotated[str, Field(min_length=1, max_length=URL_LENGTH_MAX)]
ResourceUri = Annotated[str, Field(min_length=1, max_length=RESOURCE_URI_LENGTH_MAX), AfterValidator(require_printable)]
Description = Annotated[str, Field(max_length=DESCRIPTION_LENGTH_MAX), AfterValidator(require_printable)]
Secret = Annotated[SecretStr, AfterValidator(_check_secret), Field(min_length=1, max_length=SECRET_LENGTH_MAX)]
Headers = Annotated[dict[str, SecretStr], AfterValidator(_check_headers), limit_size(MEMBERS_MAX)]
"""Headers of callbacks, by name. No response shows a value."""
EventTypeName = Annotated[
    str,
    Field(min_length=1, max_length=EVENT_NAME_LENGTH_MAX, description=EVENT_NAME_DESCRIPTION),
    AfterValidator(_check_event_name),
]
EventNames = Annotated[
    frozenset[EventTypeName],
    Field(min_length=1, max_length=EVENT_NAMES_MAX, description=EVENT_NAME_DESCRIPTION),
    limit_size(EVENT_NAMES_MAX),
]
Outcomes = Annotated[frozenset[CallOutcome], Field(min_length=1), limit_size(OUTCOMES_MAX)]
Id = Annotated[str, Field(min_length=1, max_length=ID_LENGTH_MAX), AfterValidator(require_printable)]
PageSize = Annotated[int, Field(ge=1, le=PAGE_SIZE_MAX)]
Cursor = Annotated[str, Field(min_length=1, max_length=CURSOR_LENGTH_MAX)]
IdempotencyKey = Annotated[str, Field(min_length=1, max_length=IDEMPOTENCY_KEY_LENGTH_MAX, pattern=PRINTABLE_ASCII)]
InstantWithOffset = Annotated[datetime, BeforeValidator(_require_date_and_time), AfterValidator(_require_offset)]
StrictBool = Annotated[bool, Strict()]
ExpirySeconds = Annotated[float, Strict(), Field(ge=1, le=EXPIRY_SECONDS_MAX, allow_inf_nan=False)]
RatePerSecond = Annotated[float, Strict(), Field(ge=RATE_PER_SECOND_MIN, le=RATE_PER_SECOND_MAX, allow_inf_nan=False)]
WaitSeconds = Annotated[float, Field(ge=0, le=LONG_POLL_SECONDS_MAX, allow_inf_nan=False)]

Instant = Annotated[
    datetime,
    PlainSerializer(format_iso, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time"}, mode="serialization"),
]
OmittedIfNone = Annotated[T | None, Field(exclude_if=_is_none), _NeverNull()]
"""A member that is absent instead of null."""
