"""The webhooks: the list, the page of one webhook, and the form that registers one."""

from collections.abc import Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ringback.api.problems import add_retry_after, status_for
from ringback.domain.call_outcome import CallOutcome
from ringback.domain.cursor import CursorList, decode_id_cursor, encode_next_cursor
from ringback.domain.delivery_rows import DeliveryFilter, UndeliveredCounts
from ringback.domain.errors import IdempotencyConflict, InvalidRequest, QuotaExceeded, RingbackError, Unavailable
from ringback.domain.event import EventName
from ringback.domain.ids import WebhookId
from ringback.domain.principal import Principal, Scope
from ringback.domain.webhook import DEFAULT_EVENTS, Webhook, WebhookHealth, WebhookState
from ringback.domain.webhook_health import SUSPEND_AFTER_SECONDS
from ringback.domain.webhook_text import describe_webhook
from ringback.schemas.webhook_requests import RegisterWebhookBody, WebhookListQuery
from ringback.services.deliveries.deliveries import UNDELIVERED_COUNTED_MAX
from ringback.ui.forms.form_keys import make_form_key, read_form_key
from ringback.ui.notices import find_notice
from ringback.ui.page_handlers import PageHandlers
from ringback.ui.page_routes import Form, PageRoutes
from ringback.ui.pages.webhook_form import may_edit
from ringback.ui.query_parameters import read_query, validate, with_query
from ringback.ui.viewer import Viewer

PAGE_SIZE: Final = 50
RECENT_DELIVERIES: Final = 10
_USED_FORM: Final = (
    "This form has registered a webhook already, with other values. Nothing was registered now; press the button again to "
    "register another."
)
_TEXT_FIELDS: Final = ("url", "description", "client_session_id", "correlation_id", "upstream", "tool", "call_id")


class WebhookPages(PageHandlers):
    def make_routes(self, pages: PageRoutes) -> list[Route]:
        return [
            pages.page("/webhooks", self.list_webhooks),
            pages.page("/webhooks/new", self.show_form),
            pages.action("/webhooks/new", self.register_webhook),
            pages.page("/webhooks/{webhook_id}", self.show_webhook),
        ]

    async def list_webhooks(self, request: Request, viewer: Viewer) -> Response:
        query = read_query(request, WebhookListQuery)
        caller = self._view_rows(viewer, request, "ui_list_webhooks")
        position = decode_id_cursor(CursorList.WEBHOOKS, query.cursor)
        webhooks = await self._services.webhooks.list_webhooks(
            caller, query.health, state=query.state, position=position, limit=PAGE_SIZE
        )
        following = encode_next_cursor(CursorList.WEBHOOKS, webhooks)
        path = self._find_path(viewer, "/webhooks")
        filters = {"health": query.health, "state": query.state, "principal": query.principal}
        return self._renderer.render_page(
            "webhooks.html",
            viewer,
            title="Webhooks",
            failing=WebhookHealth.FAILING,
            states=[state.value for state in WebhookState],
            of_principal=with_query("", {"principal": query.principal}).replace("?", "&"),
            older=None if following is None else with_query(path, {**filters, "cursor": following}),
            newest=with_query(path, filters) if query.cursor else None,
            live_path=None if query.cursor else with_query(f"{path}/live", filters),
            done=find_notice(request),
            **describe_webhooks(
                webhooks,
                await self._services.deliveries.count_undelivered(caller, webhooks),
                query,
                reader=viewer.caller.principal,
                shows_owner=self._shows_owner(viewer),
            ),
        )

    async def show_webhook(self, request: Request, viewer: Viewer) -> Response:
        services = self._services
        webhook_id = request.path_params["webhook_id"]
        caller = await self._act_for_owner(viewer, webhook_id, "ui_read_webhook")
        webhook = await services.webhooks.get_webhook(caller, webhook_id)
        recent = await services.deliveries.list_deliveries(
            caller, DeliveryFilter(webhook_id=webhook.id), position=None, limit=RECENT_DELIVERIES
        )
        latest = await services.deliveries.find_latest(caller, recent)
        counts = await services.deliveries.count_undelivered(caller, [webhook])
        return self._renderer.render_page(
            "webhook.html",
            viewer,
            title=webhook.name or webhook.id,
            section="Webhooks",
            shows_owner=self._shows_owner(viewer),
            webhook=webhook,
            hears=describe_webhook(webhook, reader=viewer.caller.principal),
            challenged=await services.webhooks.read_challenge(caller, webhook),
            deliveries=recent,
            latest=latest,
            now=self._context.clock.now(),
            paused_until=await services.webhooks.find_pause_end(caller, webhook.id),
            counts=counts[webhook.id],
            suspend_after_seconds=SUSPEND_AFTER_SECONDS,
            counted_max=UNDELIVERED_COUNTED_MAX,
            may_edit=may_edit(viewer, webhook),
            may_rotate=may_rotate_secret(viewer, webhook),
            done=find_notice(request),
        )

    async def show_form(self, request: Request, viewer: Viewer) -> Response:
        viewer.caller.require_scope(Scope.WEBHOOKS)
        typed = {name: [request.query_params.get(name, "")[:300]] for name in _TEXT_FIELDS}
        typed["events"] = sorted(DEFAULT_EVENTS)
        return self._render_form(viewer, typed, idempotency_key=make_form_key())

    async def register_webhook(self, request: Request, viewer: Viewer, form: Form) -> Response:
        """The response shows the secret, once, so it is no redirect. Sent again, the form finds the same webhook."""
        del request
        key = read_form_key(form)
        try:
            body = validate(RegisterWebhookBody, _read_body(form))
            registered = await self._services.registrations.register_webhook(
                viewer.caller, body.to_registration(), idempotency_key=key
            )
        except IdempotencyConflict:  # the browser's way back shows the form with the key that was used
            used = IdempotencyConflict(_USED_FORM)
            return self._render_form(viewer, form.fields, idempotency_key=make_form_key(), problem=used)
        except (InvalidRequest, QuotaExceeded, Unavailable) as problem:
            return self._render_form(viewer, form.fields, idempotency_key=key, problem=problem)
        return self._renderer.render_page(
            "webhook_secret.html",
            viewer,
            title="The webhook is registered",
            section="Webhooks",
            status_code=HTTPStatus.CREATED if registered.is_new else HTTPStatus.OK,
            webhook=registered.webhook,
            hears=registered.hears,
            secret=registered.secret,
            overlap_ends_at=None,
        )

    def _render_form(
        self, viewer: Viewer, typed: Any, *, idempotency_key: str, problem: RingbackError | None = None
    ) -> Response:
        page = self._renderer.render_page(
            "webhook_form.html",
            viewer,
            title="Register a webhook",
            section="Webhooks",
            status_code=HTTPStatus.OK if problem is None else status_for(type(problem)),
            typed=typed,
            idempotency_key=idempotency_key,
            problem=None if problem is None else problem.detail,
            event_names=[str(name) for name in EventName],
            outcomes=[str(outcome) for outcome in CallOutcome],
        )
        return page if problem is None else add_retry_after(page, problem)


def describe_webhooks(
    webhooks: Sequence[Webhook],
    counts: Mapping[WebhookId, UndeliveredCounts],
    query: WebhookListQuery,
    *,
    reader: Principal,
    shows_owner: bool,
) -> dict[str, Any]:
    """The values of `webhook_rows.html`, besides the link to older webhooks."""
    return {
        "webhooks": webhooks,
        "counts": counts,
        "counted_max": UNDELIVERED_COUNTED_MAX,
        "describe": partial(describe_webhook, reader=reader),
        "query": query,
        "shows_owner": shows_owner,
    }


def may_rotate_secret(viewer: Viewer, webhook: Webhook) -> bool:
    """Only its owner gets a webhook's new secret. The secret of a subscription is its client's."""
    is_own = webhook.principal == viewer.caller.principal
    return viewer.may_change_webhooks and is_own and not webhook.is_subscription


def _read_body(form: Form) -> dict[str, Any]:
    """The members of the registration that the form has and that are not empty."""
    body: dict[str, Any] = {name: text for name in _TEXT_FIELDS if (text := form.get_text(name).strip())}
    events = [*form.fields.get("events", ()), *form.get_text("more_events").split()]
    outcomes = form.fields.get("outcomes", ())
    return {
        **body,
        "events": events,
        **({"outcomes": outcomes} if outcomes else {}),
        **{name: True for name in ("include_result", "match_correlation", "ordered") if form.get_text(name)},
    }
