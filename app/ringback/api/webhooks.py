"""Webhooks over REST: register, list, read, change, verify, test, give a new secret, replay, remove."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from ringback.api.auth import Asking
from ringback.api.context import Behind
from ringback.api.guarded_route import GuardedRoute
from ringback.api.paging import page_of
from ringback.api.problems import GUARDED, WITH_BODY, documented
from ringback.api.schemas import examples
from ringback.api.schemas.deliveries import DeliveryView
from ringback.api.schemas.webhooks import (
    ChangeWebhookBody,
    RegisteredWebhookView,
    RegisterWebhookBody,
    ReplayBody,
    ReplayedView,
    RotatedWebhookView,
    RotateSecretBody,
    WebhookPageView,
    WebhooksQuestion,
    WebhookView,
)
from ringback.domain import errors
from ringback.domain.cursor import List, decode_id

router = APIRouter(prefix="/v1/webhooks", tags=["webhooks"], route_class=GuardedRoute)

_SENDING = (errors.QuotaExceeded, errors.ShuttingDown, errors.WebhookNotActive)
_ROTATE_BY_DEFAULT = RotateSecretBody()

WebhookIdPath = Annotated[str, Path(description="A webhook's id.", examples=[examples.WEBHOOK_ID])]


@router.post(
    "",
    status_code=201,
    responses=documented(
        *GUARDED,
        *WITH_BODY,
        errors.InvalidCallbackUrl,
        errors.InvalidCursor,
        errors.QuotaExceeded,
        errors.ShuttingDown,
    ),
)
async def register_webhook(
    body: RegisterWebhookBody, behind: Behind, caller: Asking, response: Response
) -> RegisteredWebhookView:
    """Register a callback URL. From this answer on, every event that it hears is delivered to it."""
    registered = await behind.registrations.register(caller, body.registration())
    response.headers["Location"] = f"/v1/webhooks/{registered.webhook.id}"
    return RegisteredWebhookView.registered(registered)


@router.get("", responses=documented(*GUARDED, errors.InvalidRequest, errors.InvalidCursor))
async def list_webhooks(
    question: Annotated[WebhooksQuestion, Query()], behind: Behind, caller: Asking
) -> WebhookPageView:
    """List your webhooks, newest first."""
    before = decode_id(List.WEBHOOKS, question.cursor)
    found = await behind.webhooks.page(caller, before=before, limit=question.limit + 1)
    page = page_of(List.WEBHOOKS, found, limit=question.limit)
    return WebhookPageView.of(page.things, page.next_cursor)


@router.get("/{webhook_id}", responses=documented(*GUARDED, errors.NotFound))
async def read_webhook(webhook_id: WebhookIdPath, behind: Behind, caller: Asking) -> WebhookView:
    """Read a webhook."""
    return WebhookView.of(await behind.webhooks.get(caller, webhook_id))


@router.patch(
    "/{webhook_id}",
    responses=documented(
        *GUARDED,
        *WITH_BODY,
        errors.NotFound,
        errors.InvalidCallbackUrl,
        errors.QuotaExceeded,
        errors.WebhookNotVerified,
    ),
)
async def change_webhook(
    webhook_id: WebhookIdPath, body: ChangeWebhookBody, behind: Behind, caller: Asking
) -> WebhookView:
    """Change a webhook, or switch it off and on. What is left out stays; what was held goes out when it becomes active."""
    return WebhookView.of(await behind.webhooks.change(caller, webhook_id, body.change()))


@router.post(
    "/{webhook_id}/verify", responses=documented(*GUARDED, errors.NotFound, errors.InvalidCallbackUrl, *_SENDING)
)
async def verify_webhook(webhook_id: WebhookIdPath, behind: Behind, caller: Asking) -> WebhookView:
    """Challenge the URL now. Its state says whether it has proven that it wants callbacks, and last_error why not."""
    return WebhookView.of(await behind.webhooks.verify(caller, webhook_id))


@router.post("/{webhook_id}/test", status_code=202, responses=documented(*GUARDED, errors.NotFound, *_SENDING))
async def test_webhook(webhook_id: WebhookIdPath, behind: Behind, caller: Asking) -> DeliveryView:
    """Send a signed `webhook.test` to this webhook, as everything is sent to it. The delivery tells what comes of it."""
    return DeliveryView.of(await behind.webhooks.test(caller, webhook_id))


@router.post(
    "/{webhook_id}/rotate-secret",
    responses=documented(*GUARDED, *WITH_BODY, errors.NotFound, errors.QuotaExceeded),
)
async def rotate_secret(
    webhook_id: WebhookIdPath, behind: Behind, caller: Asking, body: RotateSecretBody = _ROTATE_BY_DEFAULT
) -> RotatedWebhookView:
    """Give the webhook a new signing secret. Until the overlap is over, callbacks carry a signature of each older one, too."""
    secret = body.secret.get_secret_value() if body.secret else None
    rotated = await behind.webhooks.rotate_secret(
        caller, webhook_id, secret=secret, overlap_seconds=body.overlap_seconds
    )
    return RotatedWebhookView.rotated(rotated)


@router.post(
    "/{webhook_id}/replay",
    status_code=202,
    responses=documented(*GUARDED, *WITH_BODY, errors.NotFound, errors.InvalidCursor, *_SENDING),
)
async def replay_webhook(webhook_id: WebhookIdPath, body: ReplayBody, behind: Behind, caller: Asking) -> ReplayedView:
    """Send again what this webhook was to hear: since a time, from a cursor on, or whatever was given up.

    The same bodies under the same `webhook-id`. What is still being delivered is left alone: asking twice sends nothing twice.
    """
    return ReplayedView.of(await behind.replays.replay(caller, webhook_id, body.wanted()))


@router.delete("/{webhook_id}", status_code=204, responses=documented(*GUARDED, errors.NotFound))
async def remove_webhook(webhook_id: WebhookIdPath, behind: Behind, caller: Asking) -> None:
    """Remove a webhook. What was not delivered to it by now never will be."""
    await behind.webhooks.remove(caller, webhook_id)
