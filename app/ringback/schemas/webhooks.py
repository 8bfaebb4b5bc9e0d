"""Responses about webhooks. A response shows a secret once, and only if the service generated it."""

from collections.abc import Collection, Sequence
from typing import Annotated, Self

from pydantic import AliasPath, BeforeValidator, ConfigDict, Field

from ringback.domain.call_outcome import CallOutcome
from ringback.domain.retry import RetryProfile
from ringback.domain.webhook import DeliveryCondition, Webhook, WebhookOrigin, WebhookState
from ringback.schemas.deliveries import OpenDeliveriesView, deliveries_members
from ringback.schemas.fields import OWNER_DESCRIPTION, Instant, OmittedIfNone, ResponseBody
from ringback.schemas.retries import OwnRetriesView
from ringback.services.deliveries.replays import ReplayResult
from ringback.services.webhooks.registrations import RegisteredWebhook
from ringback.services.webhooks.webhooks import ChangedWebhook, RotatedSecret


class ReplayedView(OpenDeliveriesView):
    replayed: int = Field(description="The number of deliveries that are sent again.")
    still_open: int = Field(description="The number of deliveries that were skipped, because they have not ended yet.")
    more: bool = Field(
        description="Whether the request reached its limit. Send it again, with `cursor` if it is not null."
    )
    cursor: str | None

    @classmethod
    def from_result(cls, replayed: ReplayResult) -> Self:
        return cls(
            replayed=replayed.replayed,
            still_open=replayed.still_open,
            more=replayed.has_more,
            cursor=replayed.cursor,
            **deliveries_members(replayed.deliveries),
        )


def sorted_or_none(values: Collection[CallOutcome] | None) -> list[CallOutcome] | None:
    return None if values is None else sorted(values)


class WebhookView(ResponseBody):
    """A registration of a callback URL."""

    model_config = ConfigDict(populate_by_name=True)

    id: str
    owner: OmittedIfNone[str] = Field(default=None, serialization_alias="principal", description=OWNER_DESCRIPTION)
    name: str | None = Field(description="Your name for it: PUT /v1/webhooks/by-name/{name}")
    url: str
    events: Annotated[list[str], BeforeValidator(sorted)]
    outcomes: Annotated[list[CallOutcome] | None, BeforeValidator(sorted_or_none)] = Field(
        description="The outcomes for which it receives `call.finished`; null means all."
    )
    upstream: str | None
    resource_uri: str | None
    tool: str | None
    call_id: str | None
    client_session_id: str | None
    correlation_id: str | None
    match_correlation: bool
    retries: RetryProfile | OwnRetriesView
    include_result: bool
    when: DeliveryCondition
    ordered: bool
    rate_per_second: float | None
    description: str | None
    header_names: list[str] = Field(description="The names of the headers that its callbacks have.")
    state: WebhookState
    paused_at: Instant | None = Field(
        description="When you paused the webhook: its deliveries are held until you resume it. Null if it is not paused."
    )
    origin: WebhookOrigin = Field(
        description="Who registered it: a client over REST, an MCP client, or a call. An MCP client that subscribed with "
        "events/subscribe changes the webhook itself; its id begins with `sub_`."
    )
    created_at: Instant
    updated_at: Instant
    expires_at: Instant | None
    last_delivery_at: Instant | None
    last_error: str | None = Field(
        description="The category in which the last attempt or challenge failed; null after a success."
    )
    last_error_detail: str | None = Field(
        description="The status code and the fact beside the category: where a redirect leads, why a certificate is invalid."
    )
    last_error_advice: str | None = Field(description="What to do next about the last error.")
    failing_since: Instant | None
    paused_until: Instant | None = Field(
        validation_alias=AliasPath("breaker", "paused_until"),
        description="The service sends nothing until then, after several failures in a row; then one attempt at a time.",
    )

    @classmethod
    def from_webhook(cls, webhook: Webhook, *, shows_owner: bool = False) -> Self:
        changes: dict[str, object] = {"owner": webhook.principal} if shows_owner else {}
        if webhook.retry_steps is not None:
            changes["retries"] = OwnRetriesView(schedule=list(webhook.retry_steps))
        view = cls.model_validate(webhook)
        return view.model_copy(update=changes) if changes else view


class ChangedWebhookView(WebhookView, OpenDeliveriesView):
    """A webhook, and what happens with its open deliveries now."""

    @classmethod
    def from_changed(cls, changed: ChangedWebhook, *, shows_owner: bool = False) -> Self:
        view = WebhookView.from_webhook(changed.webhook, shows_owner=shows_owner)
        return cls(**dict(view), **deliveries_members(changed.deliveries))


class RegisteredWebhookView(WebhookView):
    """A registered webhook. Only the response that creates it shows its generated secret."""

    hears: str = Field(
        description="One sentence that says which events this webhook receives. Another one if your list of upstreams lacks "
        "the one that it names."
    )
    secret: OmittedIfNone[str] = Field(
        default=None,
        description="The signing secret if the service generated it. Only the response that creates the webhook shows it, and "
        "for an hour a repetition with the same Idempotency-Key.",
    )

    @classmethod
    def from_registered(cls, registered: RegisteredWebhook) -> Self:
        webhook = registered.webhook
        return cls(**dict(WebhookView.from_webhook(webhook)), hears=registered.hears, secret=registered.secret)


class RotatedWebhookView(ChangedWebhookView):
    """A webhook with a new secret. Only this response shows a generated one."""

    overlap_ends_at: Instant = Field(description="Until then, callbacks also carry signatures of previous secrets.")
    secret: OmittedIfNone[str] = Field(
        default=None, description="The signing secret if the service generated it. Only this response shows it."
    )

    @classmethod
    def from_rotated(cls, rotated: RotatedSecret) -> Self:
        return cls(
            **dict(ChangedWebhookView.from_changed(rotated)),
            overlap_ends_at=rotated.overlap_ends_at,
            secret=rotated.secret,
        )


class WebhookPageView(ResponseBody):
    webhooks: list[WebhookView]
    next_cursor: str | None

    @classmethod
    def from_webhooks(cls, webhooks: Sequence[Webhook], next_cursor: str | None, *, shows_owner: bool = False) -> Self:
        views = [WebhookView.from_webhook(webhook, shows_owner=shows_owner) for webhook in webhooks]
        return cls(webhooks=views, next_cursor=next_cursor)
