"""Deliveries and their attempts. Responses leave out the bodies, because their resume tokens belong to the receiver."""

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, model_validator

from ringback.domain.attempt_category import AttemptCategory
from ringback.domain.cursor import encode_redelivery_position
from ringback.domain.delivery import Attempt, Delivery, DeliveryKind, DeliveryState
from ringback.domain.delivery_rows import DeliveryFilter, RedeliveryFilter
from ringback.domain.ids import CallId, WebhookId
from ringback.schemas.fields import (
    DELIVERY_ID_PREFIX,
    DRY_RUN_DESCRIPTION,
    NEXT_CURSOR_DESCRIPTION,
    OWNER_DESCRIPTION,
    PAGE_SIZE_DEFAULT,
    Cursor,
    Id,
    Instant,
    InstantWithOffset,
    Label,
    OmittedIfNone,
    PageSize,
    PrincipalQueryParams,
    RequestBody,
    ResponseBody,
    StrictBool,
)
from ringback.services.deliveries.bulk_redelivery import BulkRedelivery
from ringback.services.webhooks.attempt_scheduling import OpenDeliveries
from ringback.services.webhooks.webhooks import RequestedDelivery

ATTEMPTS_FILTER_MAX: Final = 1_000_000


class OpenDeliveriesView(ResponseBody):
    """The open deliveries of one webhook."""

    due_now: int = Field(
        description="The number of deliveries that are due, counted up to 10,000. If the receiver failed last, one of them is "
        "sent first, and the others follow its success."
    )
    held: int = Field(description="The number of deliveries that wait until the webhook is active and not paused.")
    in_flight: int = Field(description="The number of deliveries that are being sent.")
    next_attempt_at: Instant | None = Field(
        description="The earliest time of the next attempt; null if none is scheduled."
    )


def deliveries_members(deliveries: OpenDeliveries) -> dict[str, Any]:
    return dict(OpenDeliveriesView.model_validate(deliveries))


class DeliveryListQuery(PrincipalQueryParams):
    state: DeliveryState | None = None
    webhook_id: Id | None = None
    call_id: Id | None = None
    category: AttemptCategory | None = Field(default=None, description="How the last attempt ended.")
    min_attempts: Annotated[int, Field(ge=0, le=ATTEMPTS_FILTER_MAX)] | None = Field(
        default=None, description="Deliveries with at least this many attempts."
    )
    latest: bool = Field(
        default=False, description="With `state=dead`: only deliveries that were not sent again since."
    )
    since: InstantWithOffset | None = Field(
        default=None, description="Deliveries that were created at this time or later."
    )
    until: InstantWithOffset | None = Field(default=None, description="Deliveries that were created before this time.")
    id_prefix: Annotated[
        str | None, Field(pattern=DELIVERY_ID_PREFIX, description="The beginning of the id, such as `dlv_01KAGZ`.")
    ] = None
    limit: PageSize = PAGE_SIZE_DEFAULT
    cursor: Cursor | None = None

    @model_validator(mode="after")
    def _require_dead(self) -> Self:
        if self.latest and self.state is not DeliveryState.DEAD:
            raise ValueError("latest is a filter of dead deliveries. Add state=dead.")
        return self

    def to_filter(self) -> DeliveryFilter:
        return DeliveryFilter(
            state=self.state,
            webhook_id=WebhookId(self.webhook_id) if self.webhook_id else None,
            call_id=CallId(self.call_id) if self.call_id else None,
            category=self.category,
            min_attempts=self.min_attempts or 0,
            latest_only=self.latest,
            since=self.since,
            until=self.until,
            id_prefix=self.id_prefix,
        )


class DeliveryView(ResponseBody):
    """One event for one webhook."""

    id: str
    owner: OmittedIfNone[str] = Field(default=None, serialization_alias="principal", description=OWNER_DESCRIPTION)
    webhook_id: str
    kind: DeliveryKind
    event_id: str | None = Field(description="Null for a control envelope, which is not in the event log.")
    message_id: str = Field(
        description="The `webhook-id` header of every attempt; equal to `event_id` if that is set. A subscription for "
        "which the service gives each message an id of its own has another header."
    )
    call_id: str | None = Field(
        description="Null for deliveries without a call: tests, events of webhooks and upstreams, gaps."
    )
    generation: int = Field(description="Each redelivery raises it by one. Body and `webhook-id` stay the same.")
    state: DeliveryState
    attempt_count: int
    last_category: AttemptCategory | None
    due_at: Instant
    give_up_at: Instant
    created_at: Instant
    finished_at: Instant | None

    @classmethod
    def from_delivery(cls, delivery: Delivery, *, shows_owner: bool = False, **more: Any) -> Self:
        return cls(
            id=delivery.id,
            owner=delivery.principal if shows_owner else None,
            webhook_id=delivery.webhook_id,
            kind=delivery.kind,
            event_id=delivery.event_id,
            message_id=delivery.message_id,
            call_id=delivery.call_id,
            generation=delivery.generation,
            state=delivery.state,
            attempt_count=delivery.attempts,
            last_category=delivery.last_category,
            due_at=delivery.due_at,
            give_up_at=delivery.give_up_at,
            created_at=delivery.created_at,
            finished_at=delivery.finished_at,
            **more,
        )


class AttemptView(ResponseBody):
    """One POST."""

    id: str
    number: int
    started_at: Instant
    duration_ms: int
    category: AttemptCategory
    status_code: int | None
    excerpt: str | None = Field(description="The first bytes of the receiver's response.")
    detail: str | None = Field(
        description="A fact beside the category: where a redirect leads, why a certificate is invalid, the range of a blocked "
        "address."
    )
    advice: str | None = Field(description="What to do next; null for a delivered attempt.")


class DeliveryWithAttemptsView(DeliveryView):
    attempts: list[AttemptView]

    @classmethod
    def from_delivery_and_attempts(
        cls, delivery: Delivery, attempts: Sequence[Attempt], *, shows_owner: bool = False
    ) -> Self:
        views = [AttemptView.model_validate(attempt) for attempt in attempts]
        return cls.from_delivery(delivery, shows_owner=shows_owner, attempts=views)


class RequestedDeliveryView(DeliveryView, OpenDeliveriesView):
    """A test or a redelivery, and what happens with the open deliveries of its webhook, with which it is sent."""

    @classmethod
    def from_requested(cls, requested: RequestedDelivery, *, shows_owner: bool = False) -> Self:
        members = deliveries_members(requested.deliveries)
        return cls.from_delivery(requested.delivery, shows_owner=shows_owner, **members)


class RedeliverBody(RequestBody):
    """Which ended deliveries are sent again: those that match all members."""

    state: Literal["dead", "cancelled", "delivered"] = "dead"
    webhook_id: Id | None = None
    call_id: Id | None = None
    category: AttemptCategory | None = Field(default=None, description="How the last attempt ended.")
    client_session_id: Label | None = None
    correlation_id: Label | None = Field(default=None, description="The correlation_id of the call.")
    since: InstantWithOffset | None = Field(
        default=None, description="Created at this time or later; with a UTC offset."
    )
    until: InstantWithOffset | None = Field(default=None, description="Created before this time. Default: now.")
    cursor: Cursor | None = Field(default=None, description="Continue after the previous response.")
    dry_run: StrictBool = Field(default=False, description=DRY_RUN_DESCRIPTION)

    def to_filter(self) -> RedeliveryFilter:
        return RedeliveryFilter(
            state=DeliveryState(self.state),
            webhook_id=WebhookId(self.webhook_id) if self.webhook_id else None,
            call_id=CallId(self.call_id) if self.call_id else None,
            category=self.category,
            client_session_id=self.client_session_id,
            correlation_id=self.correlation_id,
            since=self.since,
            until=self.until,
        )


class RedeliveredView(OpenDeliveriesView):
    """What a bulk redelivery did. The numbers of open deliveries are those of all its webhooks together."""

    redelivered: int = Field(description="The number of deliveries that are sent again.")
    skipped: int = Field(
        description="The number of matching deliveries whose webhook is disabled or removed, that were sent again meanwhile, "
        "or whose body cannot be read because a sealing key is missing."
    )
    webhooks: int = Field(description="The number of webhooks that they are sent to.")
    cursor: str | None = Field(description="Send the request again with it to continue; null at the end.")

    @classmethod
    def from_redelivery(cls, redelivery: BulkRedelivery) -> Self:
        position = redelivery.next_position
        return cls(
            redelivered=redelivery.redelivered,
            skipped=redelivery.skipped,
            webhooks=redelivery.webhooks,
            cursor=None if position is None else encode_redelivery_position(position),
            **deliveries_members(redelivery.deliveries),
        )


class DeliveryPageView(ResponseBody):
    deliveries: list[DeliveryView]
    next_cursor: str | None = Field(description=NEXT_CURSOR_DESCRIPTION)

    @classmethod
    def from_deliveries(
        cls, deliveries: Sequence[Delivery], next_cursor: str | None, *, shows_owner: bool = False
    ) -> Self:
        views = [DeliveryView.from_delivery(delivery, shows_owner=shows_owner) for delivery in deliveries]
        return cls(deliveries=views, next_cursor=next_cursor)
