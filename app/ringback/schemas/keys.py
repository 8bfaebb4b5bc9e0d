"""API keys in requests and responses."""

from collections.abc import Collection, Sequence
from typing import Annotated, Any, Final, Self

from pydantic import AfterValidator, BeforeValidator, Field, Strict, model_validator

from ringback.domain.principal import DEFAULT_SCOPES, PRINCIPAL_LENGTH_MAX, SCOPES_TEXT, ApiKey, Scope
from ringback.domain.retry import DAY
from ringback.domain.validation import require_printable
from ringback.schemas.fields import (
    MEMBERS_MAX,
    PAGE_SIZE_DEFAULT,
    Cursor,
    Instant,
    InstantWithOffset,
    Label,
    OmittedIfNone,
    PageSize,
    QueryParams,
    RequestBody,
    ResponseBody,
    limit_size,
)
from ringback.services.access.api_keys import KEY_LIFETIME_SECONDS_MAX, RotatedKey
from ringback.suggestions import suggest_name

KEY_NAME_LENGTH_MAX: Final = 256
"""As long as a client's own identifiers: a label for people."""
KEY_UPSTREAMS_MAX: Final = 100
"""More upstreams than a configuration names; a key for all of them has no list."""
UPSTREAMS_SHOWN_MAX: Final = 5
"""Unknown upstreams that a warning names."""
KEY_OVERLAP_SECONDS_DEFAULT: Final = 1.0 * DAY
"""As with the secrets of webhooks: a day in which every client gets the new key."""
KEY_OVERLAP_SECONDS_MAX: Final = 30.0 * DAY
"""A month, in which every team deploys once."""

KeyLifetimeSeconds = Annotated[float, Strict(), Field(ge=1, le=KEY_LIFETIME_SECONDS_MAX, allow_inf_nan=False)]
"""The same bound as that of an instant."""
PrincipalName = Annotated[str, Field(min_length=1, max_length=PRINCIPAL_LENGTH_MAX), AfterValidator(require_printable)]

_DEFAULT_SCOPES_SCHEMA: Final[dict[str, Any]] = {"default": sorted(str(scope) for scope in DEFAULT_SCOPES)}
"""For the OpenAPI document: each process would write a set in a different order."""


def _sorted_or_none(values: Collection[str] | None) -> list[str] | None:
    return None if values is None else sorted(values)


def _warn_of_unknown_upstreams(names: Collection[str], known: Collection[str]) -> str | None:
    """It is no error: a key may be made before its upstream is configured."""
    unknown = sorted(frozenset(names) - frozenset(known))
    if not unknown:
        return None
    shown = " or ".join(f"'{name}'" for name in unknown[:UPSTREAMS_SHOWN_MAX])
    return (
        f"upstreams: there is no upstream named {shown}.{suggest_name(unknown[0], known)} List them: GET /v1/upstreams. The "
        "key can use one as soon as it is configured."
    )


class CreateKeyBody(RequestBody):
    """A new API key."""

    principal: PrincipalName = Field(description="The owner. All keys of a principal see the same calls.")
    name: Annotated[str, AfterValidator(require_printable)] = Field(
        default="", max_length=KEY_NAME_LENGTH_MAX, description="A label for the list of keys."
    )
    scopes: Annotated[frozenset[Scope], Field(min_length=1), limit_size(MEMBERS_MAX)] = Field(
        default=DEFAULT_SCOPES, description=SCOPES_TEXT, json_schema_extra=_DEFAULT_SCOPES_SCHEMA
    )
    upstreams: (
        Annotated[frozenset[Label], Field(max_length=KEY_UPSTREAMS_MAX), limit_size(KEY_UPSTREAMS_MAX)] | None
    ) = Field(default=None, description="The upstreams that the key may use; null means all.")
    expires_at: InstantWithOffset | None = Field(default=None, description="When it expires; with a UTC offset.")
    expires_in_seconds: KeyLifetimeSeconds | None = Field(
        default=None, description="The same as a duration. Without either, the key does not expire."
    )

    @model_validator(mode="after")
    def _require_one_expiry(self) -> Self:
        if self.expires_at is not None and self.expires_in_seconds is not None:
            raise ValueError("Send either expires_at or expires_in_seconds.")
        return self

    def to_new_key(self) -> dict[str, Any]:
        """The arguments of `ApiKeys.create_key`."""
        return {
            "name": self.name,
            "scopes": self.scopes,
            "upstreams": self.upstreams,
            "expires_at": self.expires_at,
            "lifetime_seconds": self.expires_in_seconds,
        }


class RotateKeyBody(RequestBody):
    """How long both keys are accepted, and when the new key expires."""

    overlap_seconds: Annotated[float, Strict()] = Field(
        default=KEY_OVERLAP_SECONDS_DEFAULT,
        ge=0,
        le=KEY_OVERLAP_SECONDS_MAX,
        description="The old key expires after this time, unless it expires earlier. 0 ends it now.",
    )
    expires_in_seconds: KeyLifetimeSeconds | None = Field(
        default=None,
        description="When the new key expires. Without it, the new key lives as long as the old one was created for.",
    )


class KeyListQuery(QueryParams):
    principal: PrincipalName | None = Field(default=None, description="Only keys of this principal; `*` means all.")
    limit: PageSize = PAGE_SIZE_DEFAULT
    cursor: Cursor | None = None


class KeyView(ResponseBody):
    """An API key, without the key itself."""

    id: str
    principal: str
    name: str
    prefix: str = Field(description="The first characters of the key.")
    scopes: Annotated[list[Scope], BeforeValidator(sorted)]
    upstreams: Annotated[list[str] | None, BeforeValidator(_sorted_or_none)] = Field(
        description="The upstreams that the key may use; null means all."
    )
    created_at: Instant
    expires_at: Instant | None = Field(description="From then on the key gets 401; null means never.")
    replaced_by: str | None = Field(description="The id of the key that a rotation created.")
    revoked_at: Instant | None

    @classmethod
    def from_key(cls, key: ApiKey) -> Self:
        return cls.model_validate(key)


class CreatedKeyView(KeyView):
    """A new API key. Only this response shows it."""

    key: str = Field(description="The key: `Authorization: Bearer rbk_…`. It is shown only once.")
    warning: OmittedIfNone[str] = Field(
        default=None, description="Which of its upstreams do not exist. It can use one as soon as it is configured."
    )

    @classmethod
    def from_created(cls, key: ApiKey, text: str, *, known_upstreams: Collection[str]) -> Self:
        warning = _warn_of_unknown_upstreams(key.upstreams or (), known_upstreams)
        return cls(**dict(KeyView.from_key(key)), key=text, warning=warning)


class RotatedKeyView(CreatedKeyView):
    """A new API key in the place of another one. Only this response shows it."""

    replaces: str = Field(description="The id of the old key.")
    overlap_ends_at: Instant = Field(description="Until then the old key is accepted too, unless it expires earlier.")

    @classmethod
    def from_rotated(cls, rotated: RotatedKey) -> Self:
        return cls(
            **dict(KeyView.from_key(rotated.key)),
            key=rotated.text,
            replaces=rotated.replaced_id,
            overlap_ends_at=rotated.overlap_ends_at,
        )


class KeyPageView(ResponseBody):
    keys: list[KeyView]
    next_cursor: str | None

    @classmethod
    def from_keys(cls, keys: Sequence[ApiKey], next_cursor: str | None) -> Self:
        return cls(keys=[KeyView.from_key(key) for key in keys], next_cursor=next_cursor)
