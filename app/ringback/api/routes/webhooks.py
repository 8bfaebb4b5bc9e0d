"""Webhooks over REST: register, list, read, change, verify, test, replay and remove them; rotate their secrets.

A webhook with a name is also found, put and removed by its name.
"""

from typing import Annotated

from fastapi import APIRouter, Header, Path, Query, Response

from ringback.api.authentication import AuthenticatedRoute, CallerDep
from ringback.api.context import ServicesDep
from ringback.api.idempotency_keys import IDEMPOTENCY_KEY_HEADER, refuse_idempotency_key
from ringback.api.operator_access import ListCallerDep, OwnerCallerDep
from ringback.api.problems import AUTHENTICATED_ERRORS, BODY_ERRORS, problem_responses
from ringback.api.responses import REPLAYED_HEADER
from ringback.domain import errors
from ringback.domain.cursor import CursorList, decode_id_cursor, encode_next_cursor
from ringback.domain.principal import Caller
from ringback.domain.webhook import Webhook
from ringback.schemas import examples
from ringback.schemas.deliveries import RequestedDeliveryView
from ringback.schemas.fields import IDEMPOTENCY_KEY_LENGTH_MAX, PRINTABLE_ASCII, WEBHOOK_NAME_PATTERN
from ringback.schemas.webhook_requests import (
    ChangeWebhookBody,
    NamedWebhookBody,
    RegisterWebhookBody,
    ReplayBody,
    RotateSecretBody,
    WebhookListQuery,
)
from ringback.schemas.webhooks import (
    ChangedWebhookView,
    RegisteredWebhookView,
    ReplayedView,
    RotatedWebhookView,
    WebhookPageView,
    WebhookView,
)

router = APIRouter(prefix="/v1/webhooks", tags=["webhooks"], route_class=AuthenticatedRoute)

_SENDING_ERRORS = (errors.QuotaExceeded, errors.ShuttingDown, errors.WebhookNotActive)
_DEFAULT_ROTATE_BODY = RotateSecretBody()

WebhookIdPath = Annotated[str, Path(description="A webhook's id.", examples=[examples.WEBHOOK_ID])]
WebhookNamePath = Annotated[
    str,
    Path(
        description="Your name for the webhook: a letter or digit, then up to 63 letters, digits and `. _ : -`.",
        pattern=WEBHOOK_NAME_PATTERN,
        examples=[examples.WEBHOOK_NAME],
    ),
]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias=IDEMPOTENCY_KEY_HEADER,
        min_length=1,
        max_length=IDEMPOTENCY_KEY_LENGTH_MAX,
        pattern=PRINTABLE_ASCII,
        description="Repeating the registration with the same key returns the same webhook, as long as it exists.",
    ),
]

_REGISTRATION_ERRORS = (
    errors.InvalidCallbackUrl,
    errors.InvalidCursor,
    errors.QuotaExceeded,
    errors.ShuttingDown,
)


@router.post(
    "",
    status_code=201,
    responses={
        200: {"model": RegisteredWebhookView, "description": "The Idempotency-Key named this webhook already."},
        **problem_responses(
            *AUTHENTICATED_ERRORS, *BODY_ERRORS, *_REGISTRATION_ERRORS, errors.IdempotencyConflict, errors.Gone
        ),
    },
)
async def register_webhook(
    body: RegisterWebhookBody,
    services: ServicesDep,
    caller: CallerDep,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> RegisteredWebhookView:
    """Register a callback URL. From this response on, every matching event is delivered to it.

    For a key that was used before, the response shows its webhook and the header `Idempotent-Replayed: true`.
    """
    registered = await services.registrations.register_webhook(
        caller, body.to_registration(), idempotency_key=idempotency_key
    )
    response.headers["Location"] = f"/v1/webhooks/{registered.webhook.id}"
    if not registered.is_new:
        response.status_code = 200
        response.headers[REPLAYED_HEADER] = "true"
    return RegisteredWebhookView.from_registered(registered)


@router.put(
    "/by-name/{name}",
    status_code=201,
    response_description="The webhook was created.",
    responses={
        200: {"model": RegisteredWebhookView, "description": "The webhook existed, and has these settings now."},
        **problem_responses(*AUTHENTICATED_ERRORS, *BODY_ERRORS, *_REGISTRATION_ERRORS),
    },
)
async def put_webhook(
    name: WebhookNamePath, body: NamedWebhookBody, services: ServicesDep, caller: CallerDep, response: Response
) -> RegisteredWebhookView:
    """Register a callback URL under a name of yours. A process that does this at every start has one webhook.

    The webhook of this name gets exactly these settings: a member that you leave out gets its default. It keeps its state and,
    unless you send a new `secret`, its secrets. Send your own `secret` if several processes register the webhook: a generated
    one is shown only to the process that creates it.
    """
    registered = await services.registrations.register_named(caller, name, body.to_registration())
    response.headers["Location"] = f"/v1/webhooks/{registered.webhook.id}"
    if not registered.is_new:
        response.status_code = 200
    return RegisteredWebhookView.from_registered(registered)


@router.get(
    "/by-name/{name}", responses=problem_responses(*AUTHENTICATED_ERRORS, errors.NotFound, errors.InvalidRequest)
)
async def read_named_webhook(name: WebhookNamePath, services: ServicesDep, caller: OwnerCallerDep) -> WebhookView:
    """Read the webhook of this name."""
    return _view_webhook(caller, await services.webhooks.get_named_webhook(caller, name))


@router.delete(
    "/by-name/{name}",
    status_code=204,
    responses=problem_responses(*AUTHENTICATED_ERRORS, errors.NotFound, errors.InvalidRequest),
)
async def remove_named_webhook(name: WebhookNamePath, services: ServicesDep, caller: CallerDep) -> None:
    """Remove the webhook of this name and cancel its open deliveries."""
    await services.webhooks.remove_named_webhook(caller, name)


@router.get("", responses=problem_responses(*AUTHENTICATED_ERRORS, errors.InvalidRequest, errors.InvalidCursor))
async def list_webhooks(
    query: Annotated[WebhookListQuery, Query()], services: ServicesDep, caller: ListCallerDep
) -> WebhookPageView:
    """List your webhooks, newest first; `health=failing` lists those whose last attempt failed, `state` those in a state."""
    position = decode_id_cursor(CursorList.WEBHOOKS, query.cursor)
    page = await services.webhooks.list_webhooks(
        caller, query.health, state=query.state, position=position, limit=query.limit
    )
    return WebhookPageView.from_webhooks(
        page, encode_next_cursor(CursorList.WEBHOOKS, page), shows_owner=caller.is_operator
    )


@router.get("/{webhook_id}", responses=problem_responses(*AUTHENTICATED_ERRORS, errors.NotFound))
async def read_webhook(webhook_id: WebhookIdPath, services: ServicesDep, caller: OwnerCallerDep) -> WebhookView:
    """Read a webhook."""
    return _view_webhook(caller, await services.webhooks.get_webhook(caller, webhook_id))


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
    webhook_id: WebhookIdPath, body: ChangeWebhookBody, services: ServicesDep, caller: OwnerCallerDep
) -> ChangedWebhookView:
    """Change, disable, enable, pause or resume a webhook. Omitted members stay.

    Held deliveries are sent when the webhook becomes active or is resumed. A new URL, `"state": "active"` and `"paused": false`
    make its pending deliveries due now, whatever retry step they wait for. An operator changes only `state` and `paused` for
    another principal.

    A disabled and a paused webhook both keep their open deliveries, as held, until their `give_up_at`. An event that happens
    meanwhile gets a held delivery from a paused webhook, and none from a disabled one: no replay sends it. Removing a webhook
    cancels its open deliveries.
    """
    if caller.is_operator and body.model_fields_set - {"state", "paused"}:
        raise errors.Forbidden(
            "An operator changes only 'state' and 'paused' for another principal. The owner changes the rest."
        )
    changed = await services.webhooks.change_webhook(caller, webhook_id, body.to_change())
    return ChangedWebhookView.from_changed(changed, shows_owner=caller.is_operator)


@router.post(
    "/{webhook_id}/verify",
    responses=problem_responses(*AUTHENTICATED_ERRORS, errors.NotFound, errors.InvalidCallbackUrl, *_SENDING_ERRORS),
)
async def verify_webhook(
    webhook_id: WebhookIdPath, services: ServicesDep, caller: OwnerCallerDep
) -> ChangedWebhookView:
    """Challenge the URL now, and make the pending deliveries due.

    `state` shows whether the URL has proven that it accepts callbacks, `last_error` why not.
    """
    verified = await services.webhooks.verify_webhook(caller, webhook_id)
    return ChangedWebhookView.from_changed(verified, shows_owner=caller.is_operator)


@router.post(
    "/{webhook_id}/test",
    status_code=202,
    dependencies=[refuse_idempotency_key()],
    responses=problem_responses(*AUTHENTICATED_ERRORS, errors.NotFound, *_SENDING_ERRORS),
)
async def test_webhook(
    webhook_id: WebhookIdPath, services: ServicesDep, caller: OwnerCallerDep
) -> RequestedDeliveryView:
    """Send a signed `webhook.test` to this webhook now, before its other deliveries. The delivery shows the outcome."""
    sent = await services.webhooks.send_test(caller, webhook_id)
    return RequestedDeliveryView.from_requested(sent, shows_owner=caller.is_operator)


@router.post(
    "/{webhook_id}/rotate-secret",
    dependencies=[refuse_idempotency_key("Send your own `secret`: it is the same in each request.")],
    responses=problem_responses(*AUTHENTICATED_ERRORS, *BODY_ERRORS, errors.NotFound, errors.QuotaExceeded),
)
async def rotate_secret(
    webhook_id: WebhookIdPath, services: ServicesDep, caller: CallerDep, body: RotateSecretBody = _DEFAULT_ROTATE_BODY
) -> RotatedWebhookView:
    """Replace the signing secret, and make pending deliveries due now.

    Until the overlap ends, callbacks also carry a signature of each previous secret.
    """
    secret = body.secret.get_secret_value() if body.secret else None
    rotated = await services.webhooks.rotate_secret(
        caller, webhook_id, secret=secret, overlap_seconds=body.overlap_seconds
    )
    return RotatedWebhookView.from_rotated(rotated)


@router.post(
    "/{webhook_id}/replay",
    status_code=202,
    dependencies=[refuse_idempotency_key()],
    responses=problem_responses(
        *AUTHENTICATED_ERRORS, *BODY_ERRORS, errors.NotFound, errors.InvalidCursor, *_SENDING_ERRORS
    ),
)
async def replay_webhook(
    webhook_id: WebhookIdPath, body: ReplayBody, services: ServicesDep, caller: OwnerCallerDep
) -> ReplayedView:
    """Send deliveries of this webhook again: since a time, after a cursor, or all dead ones.

    Body and `webhook-id` stay the same. Deliveries that have not ended yet are not sent twice: they are due now. With `dry_run`
    the response has the numbers and nothing changes.
    """
    return ReplayedView.from_result(await services.replays.replay_webhook(caller, webhook_id, body.to_request()))


@router.delete("/{webhook_id}", status_code=204, responses=problem_responses(*AUTHENTICATED_ERRORS, errors.NotFound))
async def remove_webhook(webhook_id: WebhookIdPath, services: ServicesDep, caller: OwnerCallerDep) -> None:
    """Remove a webhook and cancel its open deliveries. An operator may remove it for another principal.

    The receiver of a subscription gets a `terminated` envelope. Until then the webhook is shown as expired.
    """
    await services.webhooks.remove_webhook(caller, webhook_id)


def _view_webhook(caller: Caller, webhook: Webhook) -> WebhookView:
    return WebhookView.from_webhook(webhook, shows_owner=caller.is_operator)
