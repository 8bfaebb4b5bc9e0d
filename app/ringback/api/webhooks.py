"""Webhooks over REST: register, list, read, change, verify, test, replay and remove them; rotate their secrets."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from ringback.api.authentication import AuthenticatedRoute, CallerDep
from ringback.api.context import ServicesDep
from ringback.api.problems import AUTHENTICATED_ERRORS, BODY_ERRORS, problem_responses
from ringback.api.responses import encode_next_cursor
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
    body: RegisterWebhookBody, services: ServicesDep, caller: CallerDep, response: Response
) -> RegisteredWebhookView:
    """Register a callback URL. From this response on, every matching event is delivered to it."""
    registered = await services.registrations.register_webhook(caller, body.to_registration())
    response.headers["Location"] = f"/v1/webhooks/{registered.webhook.id}"
    return RegisteredWebhookView.from_registered(registered)


@router.get("", responses=problem_responses(*AUTHENTICATED_ERRORS, errors.InvalidRequest, errors.InvalidCursor))
async def list_webhooks(
    query: Annotated[WebhookListQuery, Query()], services: ServicesDep, caller: CallerDep
) -> WebhookPageView:
    """List your webhooks, newest first."""
    position = decode_id_cursor(CursorList.WEBHOOKS, query.cursor)
    page = await services.webhooks.list_webhooks(caller, position=position, limit=query.limit)
    return WebhookPageView.from_webhooks(page, encode_next_cursor(CursorList.WEBHOOKS, page))


@router.get("/{webhook_id}", responses=problem_responses(*AUTHENTICATED_ERRORS, errors.NotFound))
async def read_webhook(webhook_id: WebhookIdPath, services: ServicesDep, caller: CallerDep) -> WebhookView:
    """Read a webhook."""
    return WebhookView.from_webhook(await services.webhooks.get_webhook(caller, webhook_id))


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
    webhook_id: WebhookIdPath, body: ChangeWebhookBody, services: ServicesDep, caller: CallerDep
) -> WebhookView:
    """Change, disable or enable a webhook. Omitted members stay; held deliveries are sent when the webhook becomes active."""
    return WebhookView.from_webhook(await services.webhooks.change_webhook(caller, webhook_id, body.to_change()))


@router.post(
    "/{webhook_id}/verify",
    responses=problem_responses(*AUTHENTICATED_ERRORS, errors.NotFound, errors.InvalidCallbackUrl, *_SENDING_ERRORS),
)
async def verify_webhook(webhook_id: WebhookIdPath, services: ServicesDep, caller: CallerDep) -> WebhookView:
    """Challenge the URL now. `state` shows whether the URL has proven that it accepts callbacks, `last_error` why not."""
    return WebhookView.from_webhook(await services.webhooks.verify_webhook(caller, webhook_id))


@router.post(
    "/{webhook_id}/test",
    status_code=202,
    responses=problem_responses(*AUTHENTICATED_ERRORS, errors.NotFound, *_SENDING_ERRORS),
)
async def test_webhook(webhook_id: WebhookIdPath, services: ServicesDep, caller: CallerDep) -> DeliveryView:
    """Send a signed `webhook.test` to this webhook. The delivery shows the outcome."""
    return DeliveryView.from_delivery(await services.webhooks.send_test(caller, webhook_id))


@router.post(
    "/{webhook_id}/rotate-secret",
    responses=problem_responses(*AUTHENTICATED_ERRORS, *BODY_ERRORS, errors.NotFound, errors.QuotaExceeded),
)
async def rotate_secret(
    webhook_id: WebhookIdPath, services: ServicesDep, caller: CallerDep, body: RotateSecretBody = _DEFAULT_ROTATE_BODY
) -> RotatedWebhookView:
    """Replace the signing secret. Until the overlap ends, callbacks also carry a signature of each previous secret."""
    secret = body.secret.get_secret_value() if body.secret else None
    rotated = await services.webhooks.rotate_secret(
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
    webhook_id: WebhookIdPath, body: ReplayBody, services: ServicesDep, caller: CallerDep
) -> ReplayedView:
    """Send deliveries of this webhook again: since a time, after a cursor, or all dead ones.

    Body and `webhook-id` stay the same. Deliveries that have not ended yet are skipped, so a repeated request sends nothing
    twice.
    """
    return ReplayedView.from_result(await services.replays.replay_webhook(caller, webhook_id, body.to_request()))


@router.delete("/{webhook_id}", status_code=204, responses=problem_responses(*AUTHENTICATED_ERRORS, errors.NotFound))
async def remove_webhook(webhook_id: WebhookIdPath, services: ServicesDep, caller: CallerDep) -> None:
    """Remove a webhook and cancel its open deliveries."""
    await services.webhooks.remove_webhook(caller, webhook_id)
