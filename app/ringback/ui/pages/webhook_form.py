"""The form that changes a webhook: what PATCH changes of it, with the same checks. Only its owner gets the form."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ringback.api.problems import add_retry_after, status_for
from ringback.domain.call_outcome import CallOutcome
from ringback.domain.errors import Forbidden, InvalidRequest, QuotaExceeded, RingbackError, Unavailable
from ringback.domain.event import EventName
from ringback.domain.principal import Scope
from ringback.domain.webhook import DeliveryCondition, Webhook
from ringback.schemas.webhook_requests import ChangeWebhookBody
from ringback.ui.page_handlers import PageHandlers
from ringback.ui.page_routes import Form, PageRoutes
from ringback.ui.query_parameters import validate, with_query
from ringback.ui.redirects import redirect
from ringback.ui.viewer import Viewer

Fields = Mapping[str, Sequence[str]]


class WebhookFormPages(PageHandlers):
    def make_routes(self, pages: PageRoutes) -> list[Route]:
        path = "/webhooks/{webhook_id}/edit"
        return [pages.page(path, self.show_form), pages.action(path, self.change_webhook)]

    async def show_form(self, request: Request, viewer: Viewer) -> Response:
        webhook = await self._read_own_webhook(request, viewer)
        return self._render(viewer, webhook, _list_fields(webhook))

    async def change_webhook(self, request: Request, viewer: Viewer, form: Form) -> Response:
        """Change the members that differ from what the form showed: what others changed meanwhile stays."""
        webhook = await self._read_own_webhook(request, viewer)
        typed = {name: form.fields.get(name, []) for name in _FIELDS}
        shown = {name: form.fields.get(f"shown_{name}", []) for name in _FIELDS}
        try:
            body = _read_changes(typed, shown)
            if body:
                change = validate(ChangeWebhookBody, body).to_change()
                await self._services.webhooks.change_webhook(viewer.caller, webhook.id, change)
        except (InvalidRequest, QuotaExceeded, Unavailable) as problem:
            return self._render(viewer, webhook, typed, shown=shown, problem=problem)
        return redirect(with_query(f"/webhooks/{webhook.id}", {"done": "webhook-changed"}))

    async def _read_own_webhook(self, request: Request, viewer: Viewer) -> Webhook:
        viewer.caller.require_scope(Scope.WEBHOOKS)
        webhook = await self._services.webhooks.get_webhook(viewer.caller, request.path_params["webhook_id"])
        if not may_edit(viewer, webhook):
            raise Forbidden("The client of a subscription changes it, with events/subscribe.")
        return webhook

    def _render(
        self,
        viewer: Viewer,
        webhook: Webhook,
        typed: Fields,
        *,
        shown: Fields | None = None,
        problem: RingbackError | None = None,
    ) -> Response:
        page = self._renderer.render_page(
            "webhook_edit.html",
            viewer,
            title="Change the webhook",
            section="Webhooks",
            status_code=HTTPStatus.OK if problem is None else status_for(type(problem)),
            webhook=webhook,
            typed=typed,
            shown=typed if shown is None else shown,
            problem=None if problem is None else problem.detail,
            event_names=[str(name) for name in EventName],
            outcomes=[str(outcome) for outcome in CallOutcome],
            conditions=[(str(each), str(each).replace("_", " ")) for each in DeliveryCondition],
        )
        return page if problem is None else add_retry_after(page, problem)


def may_edit(viewer: Viewer, webhook: Webhook) -> bool:
    """Whether the webhook's page leads to the form. As over REST, an operator does not change webhooks of others."""
    is_own = webhook.principal == viewer.caller.principal
    return viewer.may_change_webhooks and is_own and not webhook.is_subscription


_FIELDS: Final = (
    "url",
    "description",
    "events",
    "more_events",
    "outcomes",
    "include_result",
    "when",
    "rate_per_second",
)


def _list_fields(webhook: Webhook) -> Fields:
    """The fields of the form as a browser sends them back: none for a box without a tick."""
    own_events = {str(name) for name in EventName}
    return {
        "url": [webhook.url],
        "description": [webhook.description or ""],
        "events": sorted(webhook.events & own_events),
        "more_events": [" ".join(sorted(webhook.events - own_events))],
        "outcomes": sorted(webhook.outcomes or ()),
        "include_result": ["1"] if webhook.include_result else [],
        "when": [str(webhook.when)],
        "rate_per_second": ["" if webhook.rate_per_second is None else f"{webhook.rate_per_second:g}"],
    }


def _read_changes(typed: Fields, shown: Fields) -> dict[str, Any]:
    """The members of the PATCH for the fields that differ."""
    differing = {name for name in _FIELDS if sorted(typed[name]) != sorted(shown[name])}
    values: dict[str, Any] = {
        "url": _first(typed, "url"),
        "description": _first(typed, "description"),
        "events": [*typed["events"], *_first(typed, "more_events").split()],
        "outcomes": list(typed["outcomes"]) or None,
        "include_result": bool(typed["include_result"]),
        "when": _first(typed, "when"),
        "rate_per_second": _read_rate(_first(typed, "rate_per_second")),
    }
    if "more_events" in differing:
        differing.add("events")
    return {name: value for name, value in values.items() if name in differing}


def _read_rate(text: str) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        raise InvalidRequest("rate_per_second: write a number, such as 5 or 0.5.") from None


def _first(fields: Fields, name: str) -> str:
    return next(iter(fields[name]), "").strip()
