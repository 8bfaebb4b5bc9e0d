"""Webhooks, as they are registered and as they are shown. A secret comes back once, and only if it was generated here."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import Field, Strict, ValidationInfo, field_validator

from ringback.api.paging import LIMIT_DEFAULT, LIMIT_MAX
from ringback.api.schemas.fields import (
    EVENTS_DEFAULT,
    WHEN,
    Body,
    Cursor,
    Description,
    EventNames,
    ExpirySeconds,
    Flag,
    Id,
    Instant,
    Label,
    Question,
    Rate,
    ResourceUri,
    Secret,
    Sometimes,
    Url,
    View,
)
from ringback.domain.event import EventName
from ringback.domain.retry import Profile
from ringback.domain.webhook import DEFAULT_EVENTS, Origin, Webhook, WebhookState, When, describe
from ringback.services.registrations import Registered, Registration
from ringback.services.replays import Replayed, ReplayFrom
from ringback.services.webhooks import (
    OVERLAP_SECONDS_DEFAULT,
    OVERLAP_SECONDS_MAX,
    Change,
    Rotated,
    Unlimited,
)


class RegisterWebhookBody(Body):
    """A callback URL, and what it wants to hear."""

    url: Url
    secret: Secret | None = Field(default=None, description="`whsec_…`; one is generated when you send none.")
    client_session_id: Label | None = Field(default=None, description="Hear only calls of this session.")
    correlation_id: Label | None = Field(
        default=None, description="A label: callbacks carry it as `webhook_correlation_id`. See match_correlation."
    )
    match_correlation: Flag = Field(default=False, description="Hear only calls with this correlation_id.")
    events: EventNames = Field(default_factory=lambda: DEFAULT_EVENTS, json_schema_extra=EVENTS_DEFAULT)
    upstream: Label | None = None
    resource_uri: ResourceUri | None = Field(
        default=None,
        description="With upstream.changed: hear when this resource of the upstream changes, instead of its lists.",
    )
    tool: Label | None = None
    call_id: Id | None = Field(default=None, description="Hear this call from its beginning, also if it has ended.")
    retries: Profile = Profile.DAYS
    include_result: Flag = Field(default=False, description="Put the result into the callback if it fits.")
    when: When = Field(default=When.ALWAYS, description=WHEN)
    ordered: Flag = Field(
        default=False,
        description="One callback at a time for each client_session_id, or call where there is none, in the order of the "
        "log. One that fails holds up those behind it, for at most an hour.",
    )
    rate_per_second: Rate | None = Field(default=None, description="Attempts a second at most.")
    cursor: Cursor | None = Field(default=None, description="Hear from this place in the event log on, not from now.")
    expires_in_seconds: ExpirySeconds | None = None
    description: Description | None = None

    def registration(self) -> Registration:
        return Registration(
            url=self.url,
            secret=self.secret.get_secret_value() if self.secret else None,
            events=self.events,
            upstream=self.upstream,
            resource_uri=self.resource_uri,
            tool=self.tool,
            call_id=self.call_id,
            client_session_id=self.client_session_id,
            correlation_id=self.correlation_id,
            match_correlation=self.match_correlation,
            retries=self.retries,
            include_result=self.include_result,
            when=self.when,
            ordered=self.ordered,
            rate_per_second=self.rate_per_second,
            description=self.description,
            cursor=self.cursor,
            expires_in_seconds=self.expires_in_seconds,
        )


class ChangeWebhookBody(Body):
    """What is to be different; what is left out stays."""

    url: Url | None = None
    events: EventNames | None = None
    description: Description | None = None
    include_result: Flag | None = None
    when: When | None = None
    retries: Profile | None = None
    rate_per_second: Rate | None = Field(default=None, description="Attempts a second at most; null removes the limit.")
    state: Literal["active", "disabled"] | None = None

    @field_validator("*", mode="before")
    @classmethod
    def _says_something(cls, value: Any, info: ValidationInfo) -> Any:
        """Null would mean "remove" to some and "leave" to others, where it cannot only mean "no limit"."""
        if value is None and info.field_name != "rate_per_second":
            raise ValueError("Null is no value for this. Leave the member out to keep what is there.")
        return value

    def change(self) -> Change:
        return Change(
            url=self.url,
            events=self.events,
            description=self.description,
            include_result=self.include_result,
            when=self.when,
            retries=self.retries,
            rate_per_second=self._rate(),
            state=WebhookState(self.state) if self.state else None,
        )

    def _rate(self) -> float | Unlimited | None:
        if "rate_per_second" in self.model_fields_set and self.rate_per_second is None:
            return Unlimited.UNLIMITED
        return self.rate_per_second


class RotateSecretBody(Body):
    """A new signing secret, and how long the old ones go on beside it."""

    secret: Secret | None = Field(default=None, description="`whsec_…`; one is generated when you send none.")
    overlap_seconds: Annotated[float, Strict()] = Field(
        default=OVERLAP_SECONDS_DEFAULT,
        ge=0,
        le=OVERLAP_SECONDS_MAX,
        description="So long callbacks carry a signature of each older secret, too. 0 ends all of them now.",
    )


class ReplayBody(Body):
    """What to send again: exactly one of these."""

    since: datetime | None = Field(default=None, description="What happened from this time on; with its offset.")
    cursor: Cursor | None = Field(default=None, description="What came after this place in the event log.")
    dead: Literal[True] | None = Field(default=None, description="Whatever was given up.")

    @field_validator("since")
    @classmethod
    def _has_an_offset(cls, value: datetime | None) -> datetime | None:
        if value is not None and value.tzinfo is None:
            raise ValueError("Say in which time zone: 2026-11-20T17:00:00Z.")
        return value

    def wanted(self) -> ReplayFrom:
        return ReplayFrom(since=self.since, cursor=self.cursor, dead=self.dead is True)


class ReplayedView(View):
    replayed: int = Field(description="How many deliveries are sent again.")
    still_open: int = Field(description="How many were left alone, because they are being delivered anyway.")
    more: bool = Field(
        description="Whether the bound of one request was reached. Ask again, from the cursor if there is one."
    )
    cursor: str | None

    @classmethod
    def of(cls, replayed: Replayed) -> Self:
        return cls(
            replayed=replayed.replayed,
            still_open=replayed.still_open,
            more=replayed.more,
            cursor=replayed.cursor,
        )


class WebhooksQuestion(Question):
    limit: int = Field(default=LIMIT_DEFAULT, ge=1, le=LIMIT_MAX)
    cursor: Cursor | None = None


class WebhookView(View):
    """A registration of a callback URL."""

    id: str
    url: str
    events: list[EventName]
    upstream: str | None
    resource_uri: str | None
    tool: str | None
    call_id: str | None
    client_session_id: str | None
    correlation_id: str | None
    match_correlation: bool
    retries: Profile
    include_result: bool
    when: When
    ordered: bool
    rate_per_second: float | None
    description: str | None
    state: WebhookState
    origin: Origin
    created_at: Instant
    updated_at: Instant
    expires_at: Instant | None
    last_delivery_at: Instant | None
    last_error: str | None = Field(description="How the last attempt or challenge failed, until one succeeds.")
    failing_since: Instant | None
    paused_until: Instant | None = Field(
        description="After several failures in a row nothing is sent until then; after that one attempt at a time."
    )

    @classmethod
    def of(cls, webhook: Webhook, **more: Any) -> Self:
        return cls(
            id=webhook.id,
            url=webhook.url,
            events=sorted(webhook.events),
            upstream=webhook.upstream,
            resource_uri=webhook.resource_uri,
            tool=webhook.tool,
            call_id=webhook.call_id,
            client_session_id=webhook.client_session_id,
            correlation_id=webhook.correlation_id,
            match_correlation=webhook.match_correlation,
            retries=webhook.retries,
            include_result=webhook.include_result,
            when=webhook.when,
            ordered=webhook.ordered,
            rate_per_second=webhook.rate_per_second,
            description=webhook.description,
            state=webhook.state,
            origin=webhook.origin,
            created_at=webhook.created_at,
            updated_at=webhook.updated_at,
            expires_at=webhook.expires_at,
            last_delivery_at=webhook.last_delivery_at,
            last_error=webhook.last_error,
            failing_since=webhook.failing_since,
            paused_until=webhook.breaker.paused_until,
            **more,
        )


class RegisteredWebhookView(WebhookView):
    """A webhook just made, with what is shown this once."""

    hears: str = Field(description="One sentence that says what will ring.")
    secret: Sometimes[str] = Field(default=None, description="The signing secret if it was generated; shown this once.")

    @classmethod
    def registered(cls, registered: Registered) -> Self:
        return cls.of(registered.webhook, hears=describe(registered.webhook), secret=registered.secret)


class RotatedWebhookView(WebhookView):
    """A webhook with a new secret, which is shown this once."""

    overlap_ends_at: Instant = Field(description="Until then callbacks carry signatures of older secrets, too.")
    secret: Sometimes[str] = Field(default=None, description="The signing secret if it was generated; shown this once.")

    @classmethod
    def rotated(cls, rotated: Rotated) -> Self:
        return cls.of(rotated.webhook, overlap_ends_at=rotated.overlap_ends_at, secret=rotated.secret)


class WebhookPageView(View):
    webhooks: list[WebhookView]
    next_cursor: str | None

    @classmethod
    def of(cls, webhooks: Sequence[Webhook], next_cursor: str | None) -> Self:
        return cls(webhooks=[WebhookView.of(webhook) for webhook in webhooks], next_cursor=next_cursor)
