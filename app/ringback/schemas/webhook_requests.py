"""Requests about webhooks: registrations, changes, secrets and replays."""

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field, Strict, ValidationInfo, field_validator

from ringback.domain.call_outcome import CallOutcome
from ringback.domain.callback_headers import HEADERS_MAX
from ringback.domain.event import EventName
from ringback.domain.retry import RetryProfile
from ringback.domain.webhook import DEFAULT_EVENTS, DeliveryCondition, WebhookHealth, WebhookState
from ringback.schemas.fields import (
    DEFAULT_EVENTS_SCHEMA,
    DRY_RUN_DESCRIPTION,
    OUTCOMES_DESCRIPTION,
    PAGE_SIZE_DEFAULT,
    WHEN_DESCRIPTION,
    Cursor,
    Description,
    EventNames,
    ExpirySeconds,
    Headers,
    Id,
    InstantWithOffset,
    Label,
    Outcomes,
    PageSize,
    PrincipalQueryParams,
    RatePerSecond,
    RequestBody,
    ResourceUri,
    Secret,
    StrictBool,
    Url,
    headers_from_body,
)
from ringback.schemas.retries import RetriesMember, retries_from_member
from ringback.services.deliveries.replays import ReplayRequest
from ringback.services.webhooks.registrations import WebhookRegistration
from ringback.services.webhooks.webhook_changes import OutcomeFilterRemoval, RateLimitRemoval, WebhookChange
from ringback.services.webhooks.webhook_checks import SECRET_OVERLAP_SECONDS_DEFAULT
from ringback.services.webhooks.webhooks import SECRET_OVERLAP_SECONDS_MAX


class CallCallbackBody(RequestBody):
    """The callback of one call. REST's `callback`, the `_meta` key `ringback/callback` and the extension share this form."""

    url: Url
    secret: Secret | None = Field(
        default=None, description="`whsec_` and base64 of 24 to 64 bytes. The service generates one if you send none."
    )
    events: EventNames = Field(default_factory=lambda: DEFAULT_EVENTS, json_schema_extra=DEFAULT_EVENTS_SCHEMA)
    outcomes: Outcomes | None = Field(default=None, description=OUTCOMES_DESCRIPTION)
    correlation_id: Label | None = Field(
        default=None, description="A label of the receiver: callbacks carry it as `webhook_correlation_id`."
    )
    retries: RetriesMember = RetryProfile.DAYS
    include_result: StrictBool = Field(default=False, description="Put the result into the callback if it fits.")
    when: DeliveryCondition = Field(default=DeliveryCondition.ALWAYS, description=WHEN_DESCRIPTION)
    description: Description | None = None

    def to_registration(self) -> WebhookRegistration:
        secret = self.secret.get_secret_value() if self.secret else None
        retries = retries_from_member(self.retries)
        return WebhookRegistration(
            **self.to_arguments(
                secret=secret, events=self._chosen_events(), retries=retries.profile, retry_steps=retries.steps
            )
        )

    def _chosen_events(self) -> frozenset[str]:
        """The events; only `call.finished` for a body with outcomes and without events."""
        if self.outcomes is not None and "events" not in self.model_fields_set:
            return frozenset({EventName.CALL_FINISHED})
        return self.events


class NamedWebhookBody(CallCallbackBody):
    """A callback URL, and the events that it receives: all settings of a webhook with a name."""

    client_session_id: Label | None = Field(default=None, description="Match only calls of this session.")
    correlation_id: Label | None = Field(
        default=None,
        description="A label: callbacks carry it as `webhook_correlation_id`. With `match_correlation` it is a filter too.",
    )
    match_correlation: StrictBool = Field(default=False, description="Match only calls with this correlation_id.")
    upstream: Label | None = None
    resource_uri: ResourceUri | None = Field(
        default=None,
        description="With `upstream.changed`: match changes of this resource of the upstream instead of changes of its lists.",
    )
    tool: Label | None = None
    ordered: StrictBool = Field(
        default=False,
        description="One callback at a time for each client_session_id, or for each call without one, in the order of the "
        "log. A callback that fails delays the ones behind it for at most one hour. Events without both have no order: those "
        "of upstreams and webhooks, and those that you publish without a client_session_id.",
    )
    rate_per_second: RatePerSecond | None = Field(
        default=None, description="The largest number of attempts per second."
    )
    headers: Headers | None = Field(
        default=None,
        max_length=HEADERS_MAX,
        description="Headers that every callback has, for example of a gateway before the receiver. Stored encrypted, and "
        "shown by name only. Under the name of an existing webhook, its headers stay without this member, and {} removes them.",
    )
    cursor: Cursor | None = Field(
        default=None,
        description="Start after this place in the event log, instead of at its end. Ignored for a webhook that exists.",
    )
    expires_in_seconds: ExpirySeconds | None = None

    def to_registration(self) -> WebhookRegistration:
        headers = None if self.headers is None else headers_from_body(self.headers)
        return replace(super().to_registration(), headers=headers)


class RegisterWebhookBody(NamedWebhookBody):
    """A callback URL, and the events that it receives."""

    call_id: Id | None = Field(
        default=None, description="Match this call, from its beginning, also if it has already ended."
    )


class ChangeWebhookBody(RequestBody):
    """The members to change. A member that you leave out keeps its value."""

    url: Url | None = None
    events: EventNames | None = None
    outcomes: Outcomes | None = Field(
        default=None, description="Receive `call.finished` only for these outcomes; null removes the filter."
    )
    description: Description | None = None
    include_result: StrictBool | None = None
    when: DeliveryCondition | None = None
    retries: RetriesMember | None = None
    rate_per_second: RatePerSecond | None = Field(
        default=None, description="The largest number of attempts per second; null removes the limit."
    )
    headers: Headers | None = Field(
        default=None, max_length=HEADERS_MAX, description="All headers of its callbacks; {} removes them."
    )
    state: Literal["active", "disabled"] | None = Field(
        default=None,
        description="`disabled`: no event matches the webhook, and its open deliveries are held until it is `active`.",
    )
    paused: StrictBool | None = Field(
        default=None,
        description="true holds deliveries, those of new events, too, until you send false. Held deliveries are still given up "
        "at their `give_up_at`.",
    )

    @field_validator("*", mode="before")
    @classmethod
    def _reject_null(cls, value: Any, info: ValidationInfo) -> Any:
        """Reject null except where it removes something: elsewhere, it could mean both "remove" and "keep"."""
        if value is None and info.field_name not in {"rate_per_second", "outcomes"}:
            raise ValueError("This member cannot be null. Leave it out to keep its value.")
        return value

    def to_change(self) -> WebhookChange:
        return WebhookChange(
            url=self.url,
            events=self.events,
            outcomes=self._outcomes_change(),
            description=self.description,
            include_result=self.include_result,
            when=self.when,
            retries=None if self.retries is None else retries_from_member(self.retries),
            rate_per_second=self._rate_change(),
            headers=None if self.headers is None else headers_from_body(self.headers),
            state=WebhookState(self.state) if self.state else None,
            paused=self.paused,
        )

    def _outcomes_change(self) -> frozenset[CallOutcome] | OutcomeFilterRemoval | None:
        if "outcomes" in self.model_fields_set and self.outcomes is None:
            return OutcomeFilterRemoval.ALL
        return self.outcomes

    def _rate_change(self) -> float | RateLimitRemoval | None:
        if "rate_per_second" in self.model_fields_set and self.rate_per_second is None:
            return RateLimitRemoval.UNLIMITED
        return self.rate_per_second


class RotateSecretBody(RequestBody):
    """A new signing secret, and how long the previous secrets stay valid."""

    secret: Secret | None = Field(
        default=None, description="`whsec_` and base64 of 24 to 64 bytes. The service generates one if you send none."
    )
    overlap_seconds: Annotated[float, Strict()] = Field(
        default=SECRET_OVERLAP_SECONDS_DEFAULT,
        ge=0,
        le=SECRET_OVERLAP_SECONDS_MAX,
        description="For this time, callbacks also carry a signature of each previous secret. 0 ends all previous secrets now.",
    )


class ReplayBody(RequestBody):
    """The deliveries to send again: exactly one of `since`, `cursor` and `dead` is set."""

    since: InstantWithOffset | None = Field(default=None, description="Events from this time on; with a UTC offset.")
    cursor: Cursor | None = Field(default=None, description="Events after this place in the event log.")
    dead: Literal[True] | None = Field(default=None, description="All dead deliveries.")
    dry_run: StrictBool = Field(default=False, description=DRY_RUN_DESCRIPTION)

    def to_request(self) -> ReplayRequest:
        return ReplayRequest(since=self.since, cursor=self.cursor, only_dead=self.dead is True, dry_run=self.dry_run)


class WebhookListQuery(PrincipalQueryParams):
    health: WebhookHealth | None = Field(
        default=None,
        description="`failing`: only webhooks whose last attempt or challenge failed, and that are not disabled.",
    )
    state: WebhookState | None = Field(
        default=None,
        description="Only webhooks in this state. A page may then have few rows, or none, and a next page.",
    )
    limit: PageSize = PAGE_SIZE_DEFAULT
    cursor: Cursor | None = None
