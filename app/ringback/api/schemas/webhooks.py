"""Webhooks, as they are registered and as they are shown. A secret comes back once, and only if it was generated here."""

from collections.abc import Sequence
from typing import Any, Literal, Self

from pydantic import Field, field_validator

from ringback.api.paging import LIMIT_DEFAULT, LIMIT_MAX
from ringback.api.schemas.fields import (
    EVENTS_DEFAULT,
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
    Secret,
    Sometimes,
    Url,
    View,
)
from ringback.domain.event import EventName
from ringback.domain.retry import Profile
from ringback.domain.webhook import DEFAULT_EVENTS, Origin, Webhook, WebhookState, describe
from ringback.services.webhooks import Change, Registered, Registration


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
    tool: Label | None = None
    call_id: Id | None = Field(default=None, description="Hear this call from its beginning, also if it has ended.")
    retries: Profile = Profile.DAYS
    include_result: Flag = Field(default=False, description="Put the result into the callback if it fits.")
    cursor: Cursor | None = Field(default=None, description="Hear from this place in the event log on, not from now.")
    expires_in_seconds: ExpirySeconds | None = None
    description: Description | None = None

    def registration(self) -> Registration:
        return Registration(
            url=self.url,
            secret=self.secret.get_secret_value() if self.secret else None,
            events=self.events,
            upstream=self.upstream,
            tool=self.tool,
            call_id=self.call_id,
            client_session_id=self.client_session_id,
            correlation_id=self.correlation_id,
            match_correlation=self.match_correlation,
            retries=self.retries,
            include_result=self.include_result,
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
    retries: Profile | None = None
    state: Literal["active", "disabled"] | None = None

    @field_validator("*", mode="before")
    @classmethod
    def _says_something(cls, value: Any) -> Any:
        """Null would mean "remove" to some and "leave" to others."""
        if value is None:
            raise ValueError("Null is no value for this. Leave the member out to keep what is there.")
        return value

    def change(self) -> Change:
        return Change(
            url=self.url,
            events=self.events,
            description=self.description,
            include_result=self.include_result,
            retries=self.retries,
            state=WebhookState(self.state) if self.state else None,
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
    tool: str | None
    call_id: str | None
    client_session_id: str | None
    correlation_id: str | None
    match_correlation: bool
    retries: Profile
    include_result: bool
    description: str | None
    state: WebhookState
    origin: Origin
    created_at: Instant
    updated_at: Instant
    expires_at: Instant | None
    last_delivery_at: Instant | None
    last_error: str | None = Field(description="How the last attempt failed, until one succeeds.")
    failing_since: Instant | None

    @classmethod
    def of(cls, webhook: Webhook, **more: Any) -> Self:
        return cls(
            id=webhook.id,
            url=webhook.url,
            events=sorted(webhook.events),
            upstream=webhook.upstream,
            tool=webhook.tool,
            call_id=webhook.call_id,
            client_session_id=webhook.client_session_id,
            correlation_id=webhook.correlation_id,
            match_correlation=webhook.match_correlation,
            retries=webhook.retries,
            include_result=webhook.include_result,
            description=webhook.description,
            state=webhook.state,
            origin=webhook.origin,
            created_at=webhook.created_at,
            updated_at=webhook.updated_at,
            expires_at=webhook.expires_at,
            last_delivery_at=webhook.last_delivery_at,
            last_error=webhook.last_error,
            failing_since=webhook.failing_since,
            **more,
        )


class RegisteredWebhookView(WebhookView):
    """A webhook just made, with what is shown this once."""

    hears: str = Field(description="One sentence that says what will ring.")
    secret: Sometimes[str] = Field(default=None, description="The signing secret if it was generated; shown this once.")

    @classmethod
    def registered(cls, registered: Registered) -> Self:
        return cls.of(registered.webhook, hears=describe(registered.webhook), secret=registered.secret)


class WebhookPageView(View):
    webhooks: list[WebhookView]
    next_cursor: str | None

    @classmethod
    def of(cls, webhooks: Sequence[Webhook], next_cursor: str | None) -> Self:
        return cls(webhooks=[WebhookView.of(webhook) for webhook in webhooks], next_cursor=next_cursor)
