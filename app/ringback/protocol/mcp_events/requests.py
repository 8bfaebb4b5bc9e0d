"""The params of the five methods. Unknown members are ignored; every member is bounded.

Milliseconds may be any non-negative number, and a larger one than the server serves is no error.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeVar

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from ringback.protocol.mcp_events.errors import invalid_params
from ringback.protocol.mcp_events.grants import RequestedTtl, TtlRequest
from ringback.protocol.mcp_events.names import DeliveryMode

EVENT_NAME_LENGTH_MAX: Final = 256
"""Twice the length of the longest tool name (128) with the prefix of its upstream."""
CURSOR_LENGTH_MAX: Final = 16 * 1024
"""A client may bring the cursor of another server, for example of the upstream to which it was connected before. That is an
unknown cursor, which is no error (mcp-events §9). No cursor of an upstream is longer (`upstreams.events.occurrences`)."""
URL_LENGTH_MAX: Final = 2048
"""As for the callback URLs of REST."""
_ERRORS_SHOWN_MAX: Final = 3
"""A client can correct about this many at once."""

_Name = Annotated[str, Field(min_length=1, max_length=EVENT_NAME_LENGTH_MAX)]
_Milliseconds = Annotated[float, Field(ge=0, strict=True, allow_inf_nan=False)]
_Cursor = Annotated[str, Field(max_length=CURSOR_LENGTH_MAX)] | None


class _Params(BaseModel):
    model_config = ConfigDict(extra="allow", populate_by_name=False, hide_input_in_errors=True)


class ListParams(_Params):
    cursor: _Cursor = None


class PollParams(_Params):
    name: _Name
    arguments: dict[str, Any] | None = None
    cursor: _Cursor = None
    max_age_ms: _Milliseconds | None = Field(default=None, alias="maxAgeMs")
    max_events: Annotated[int, Field(ge=1, strict=True)] | None = Field(default=None, alias="maxEvents")
    wait_ms: _Milliseconds | None = Field(default=None, validation_alias=AliasChoices("timeoutMs", "waitMs"))
    """A long poll. One revision of the sketch has `timeoutMs`, an open pull request `waitMs`."""


class StreamParams(_Params):
    name: _Name
    arguments: dict[str, Any] | None = None
    cursor: _Cursor = None
    max_age_ms: _Milliseconds | None = Field(default=None, alias="maxAgeMs")


class DeliveryParams(_Params):
    mode: str = DeliveryMode.WEBHOOK
    url: Annotated[str, Field(min_length=1, max_length=URL_LENGTH_MAX)] | None = None
    """Required, as is `secret` by events/subscribe: both are checked after the event's name and arguments."""
    secret: str | None = Field(default=None, repr=False)


class SubscribeParams(_Params):
    name: _Name
    arguments: dict[str, Any] | None = None
    delivery: DeliveryParams
    cursor: _Cursor = None
    max_age_ms: _Milliseconds | None = Field(default=None, alias="maxAgeMs")
    ttl_ms: _Milliseconds | None = Field(default=None, alias="ttlMs")

    @property
    def requested_ttl(self) -> RequestedTtl:
        """`ttlMs: null` asks for no expiry; without the member the server's default applies."""
        if self.ttl_ms is not None:
            return self.ttl_ms / 1000
        return TtlRequest.NO_EXPIRY if "ttl_ms" in self.model_fields_set else TtlRequest.SERVER_DEFAULT


class UnsubscribeParams(_Params):
    name: _Name
    arguments: dict[str, Any] | None = None
    delivery: DeliveryParams


ParamsT = TypeVar("ParamsT", bound=_Params)


def parse_params(kind: type[ParamsT], params: Mapping[str, Any] | None) -> ParamsT:
    """Validate the params of a request; raises `EventError` (InvalidParams) without the values."""
    try:
        return kind.model_validate(dict(params or {}))
    except ValidationError as problem:
        errors = problem.errors(include_url=False, include_input=False, include_context=False)[:_ERRORS_SHOWN_MAX]
        details = [f"{'.'.join(str(step) for step in error['loc']) or 'params'}: {error['msg']}" for error in errors]
        raise invalid_params("; ".join(details)) from None


def to_seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
