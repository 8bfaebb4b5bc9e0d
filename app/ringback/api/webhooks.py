"""Webhooks over REST: register, list, read, change, verify, test, give a new secret, replay, remove."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from ringback.api.authentication import AuthenticatedRoute, CallerDep
from ringback.api.context import ServicesDep
from ringback.api.paging import build_page_from_rows
from ringback.api.problems import AUTHENTICATED_ERRORS, BODY_ERRORS, problem_responses
from ringback.domain import errors
from ringback.domain.cursor import CursorList, decode_id_cursor
from ringback.schemas import examples
from ringback.schemas.deliveries import DeliveryView
from ringback.schemas.webhooks import (
    ChangeWebhookBody,
    RegisteredWebhookView,
    RegisterWebhookBody,
    ReplayBody,
    ReplayedView,
    RotatedWebhookView,
    RotateSecretBody,
    WebhookListQuery,
    WebhookPageView,
    WebhookView,
)

router = APIRouter(prefix="/v1/webhooks", tags=["webhooks"], route_class=AuthenticatedRoute)

_SENDING_ERRORS = (errors.QuotaExceeded, errors.ShuttingDown, errors.WebhookNotActive)
_DEFAULT_ROTATE_BODY = RotateSecretBody()

WebhookIdPath = Annotated[str, Path(description="A webhook's id.", examples=[examples.WEBHOOK_ID])]


@router.post(
    "",
    status_code=201,
    responses=problem_responses(
        *AUTHENTICATED_ERRORS,
        *BODY_ERRORS,
        errors.InvalidCallbackUrl,
        errors.InvalidCursor,
        errors.QuotaExceeded,
        errors.ShuttingDown,
    ),
)
async def register_webhook(
    body: RegisterWebhookBody, behind: ServicesDep, caller: CallerDep, response: Response
) -> RegisteredWebhookView:
    """Register a callback URL. From this answer on, every event that it hears is delivered to it."""
    registered = await behind.registrations.register_webhook(caller, body.to_registration())
    response.headers["Location"] = f"/v1/webhooks/{registered.webhook.id}"
    return RegisteredWebhookView.from_registered(registered)


@router.get("", responses=problem_responses(*AUTHENTICATED_ERRORS, errors.InvalidRequest, errors.InvalidCursor))
async def list_webhooks(
    query: Annotated[WebhookListQuery, Query()], behind: ServicesDep, caller: CallerDep
) -> WebhookPageView:
    """List your webhooks, newest first."""
    position = decode_id_cursor(CursorList.WEBHOOKS, query.cursor)
    found = await behind.webhooks.list_webhooks(caller, position=position, limit=query.limit + 1)
    page = build_page_from_rows(CursorList.WEBHOOKS, found, limit=query.limit)
    return WebhookPageView.from_webhooks(page.items, page.next_cursor)


@router.get("/{webhook_id}", responses=problem_responses(*AUTHENTICATED_ERRORS, errors.NotFound))
async def read_webhook(webhook_id: WebhookIdPath, behind: ServicesDep, caller: CallerDep) -> WebhookView:
    """Read a webhook."""
    return WebhookView.from_webhook(await behind.webhooks.get_webhook(caller, webhook_id))


@router.patch(
    "/{webhook_id}",
    responses=problem_responses(
        *AUTHENTICATED_ERRORS,
        *BODY_ERRORS,
        errors.NotFound,
        errors.InvalidCallbackUrl,
        errors.QuotaExceeded,
        errors.WebhookNotVerified,
    ),
)
async def change_webhook(
    webhook_id: WebhookIdPath, body: ChangeWebhookBody, behind: ServicesDep, caller: CallerDep
) -> WebhookView:
    """Change a webhook, or switch it off and on. What is left out stays; what was held goes out when it becomes active."""
    return WebhookView.from_webhook(await behind.webhooks.change_webhook(caller, webhook_id, body.to_change()))


@router.post(
    "/{webhook_id}/verify",
    responses=problem_responses(*AUTHENTICATED_ERRORS, errors.NotFound, errors.InvalidCallbackUrl, *_SENDING_ERRORS),
)
async def verify_webhook(webhook_id: WebhookIdPath, behind: ServicesDep, caller: CallerDep) -> WebhookView:
    """Challenge the URL now. Its state says whether it has proven that it wants callbacks, and last_error why not."""
    return WebhookView.from_webhook(await behind.webhooks.verify_webhook(caller, webhook_id))


@router.post(
    "/{webhook_id}/test",
    status_code=202,
    responses=problem_responses(*AUTHENTICATED_ERRORS, errors.NotFound, *_SENDING_ERRORS),
)
async def test_webhook(webhook_id: WebhookIdPath, behind: ServicesDep, caller: CallerDep) -> DeliveryView:
    """Send a signed `webhook.test` to this webhook, as everything is sent to it. The delivery tells what comes of it."""
    return DeliveryView.from_delivery(await behind.webhooks.send_test(caller, webhook_id))


@router.post(
    "/{webhook_id}/rotate-secret",
    responses=problem_responses(*AUTHENTICATED_ERRORS, *BODY_ERRORS, errors.NotFound, errors.QuotaExceeded),
)
async def rotate_secret(
    webhook_id: WebhookIdPath, behind: ServicesDep, caller: CallerDep, body: RotateSecretBody = _DEFAULT_ROTATE_BODY
) -> RotatedWebhookView:
    """Give the webhook a new signing secret. Until the overlap is over, callbacks carry a signature of each older one, too."""
    secret = body.secret.get_secret_value() if body.secret else None
    rotated = await behind.webhooks.rotate_secret(
        caller, webhook_id, secret=secret, overlap_seconds=body.overlap_seconds
    )
    return RotatedWebhookView.from_rotated(rotated)


@router.post(
    "/{webhook_id}/replay",
    status_code=202,
    responses=problem_responses(
        *AUTHENTICATED_ERRORS, *BODY_ERRORS, errors.NotFound, errors.InvalidCursor, *_SENDING_ERRORS
    ),
)
async def replay_webhook(
    webhook_id: WebhookIdPath, body: ReplayBody, behind: ServicesDep, caller: CallerDep
) -> ReplayedView:
    """Send again what this webhook was to hear: since a time, from a cursor on, or whatever was given up.

    The same bodies under the same `webhook-id`. What is still being delivered is left alone: asking twice sends nothing twice.
    """
    return ReplayedView.from_result(await behind.replays.replay_webhook(caller, webhook_id, body.to_request()))


@router.delete("/{webhook_id}", status_code=204, responses=problem_responses(*AUTHENTICATED_ERRORS, errors.NotFound))
async def remove_webhook(webhook_id: WebhookIdPath, behind: ServicesDep, caller: CallerDep) -> None:
    """Remove a webhook. What was not delivered to it by now never will be."""
    await behind.webhooks.remove_webhook(caller, webhook_id)
