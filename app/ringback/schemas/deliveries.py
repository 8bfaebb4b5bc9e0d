"""Deliveries and their attempts. Responses leave out the bodies, because their resume tokens belong to the receiver."""

from collections.abc import Sequence
from typing import Any, Self

from pydantic import Field

from ringback.domain.delivery import Attempt, AttemptCategory, Delivery, DeliveryKind, DeliveryState
from ringback.domain.delivery_rows import DeliveryFilter
from ringback.domain.ids import CallId, WebhookId
from ringback.schemas.fields import (
    NEXT_CURSOR_DESCRIPTION,
    OWNER_DESCRIPTION,
    PAGE_SIZE_DEFAULT,
    Cursor,
    Id,
    Instant,
    OmittedIfNone,
    PageSize,
    PrincipalQueryParams,
    ResponseBody,
)


class DeliveryListQuery(PrincipalQueryParams):
    state: DeliveryState | None = None
    webhook_id: Id | None = None
    call_id: Id | None = None
    limit: PageSize = PAGE_SIZE_DEFAULT
    cursor: Cursor | None = None

    def to_filter(self) -> DeliveryFilter:
        return DeliveryFilter(
            state=self.state,
            webhook_id=WebhookId(self.webhook_id) if self.webhook_id else None,
            call_id=CallId(self.call_id) if self.call_id else None,
        )


class DeliveryView(ResponseBody):
    """One event for one webhook."""

    id: str
    owner: OmittedIfNone[str] = Field(default=None, serialization_alias="principal", description=OWNER_DESCRIPTION)
    webhook_id: str
    kind: DeliveryKind
    event_id: str | None = Field(description="Null for a gap envelope, which is not in the event log.")
    message_id: str = Field(description="The `webhook-id` header of every attempt; equal to `event_id` if that is set.")
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


class DeliveryWithAttemptsView(DeliveryView):
    attempts: list[AttemptView]

    @classmethod
    def from_delivery_and_attempts(
        cls, delivery: Delivery, attempts: Sequence[Attempt], *, shows_owner: bool = False
    ) -> Self:
        views = [AttemptView.model_validate(attempt) for attempt in attempts]
        return cls.from_delivery(delivery, shows_owner=shows_owner, attempts=views)


class DeliveryPageView(ResponseBody):
    deliveries: list[DeliveryView]
    next_cursor: str | None = Field(description=NEXT_CURSOR_DESCRIPTION)

    @classmethod
    def from_deliveries(
        cls, deliveries: Sequence[Delivery], next_cursor: str | None, *, shows_owner: bool = False
    ) -> Self:
        views = [DeliveryView.from_delivery(delivery, shows_owner=shows_owner) for delivery in deliveries]
        return cls(deliveries=views, next_cursor=next_cursor)
