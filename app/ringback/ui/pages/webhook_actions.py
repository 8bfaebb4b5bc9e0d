"""What a viewer does to a webhook: test, verify, enable, disable, pause, resume, rotate its secret, replay and remove it.

An operator acts for the owner. A new secret is shown to the owner only, on the response itself: neither a URL nor a page that
can be opened again has it.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ringback.domain.clock import format_iso
from ringback.domain.errors import InvalidRequest
from ringback.domain.principal import Caller, Scope
from ringback.domain.webhook import Webhook, WebhookState
from ringback.domain.webhook_text import describe_webhook
from ringback.schemas.webhook_requests import ReplayBody, RotateSecretBody
from ringback.services.deliveries.replays import ReplayRequest
from ringback.services.webhooks.webhook_changes import WebhookChange
from ringback.ui.notices import read_number
from ringback.ui.page_handlers import PageHandlers
from ringback.ui.page_routes import Form, PageRoutes
from ringback.ui.query_parameters import read_filled_fields, validate, with_query
from ringback.ui.redirects import redirect
from ringback.ui.viewer import Viewer

_CHANGES: Final = {
    "enable": (WebhookChange(state=WebhookState.ACTIVE), "webhook-enabled"),
    "disable": (WebhookChange(state=WebhookState.DISABLED), "webhook-disabled"),
    "pause": (WebhookChange(paused=True), "webhook-paused"),
    "resume": (WebhookChange(paused=False), "webhook-resumed"),
}


class WebhookActions(PageHandlers):
    def make_routes(self, pages: PageRoutes) -> list[Route]:
        path = "/webhooks/{webhook_id}"
        return [
            pages.action(f"{path}/test", self.send_test),
            pages.action(f"{path}/verify", self.verify_webhook),
            *(pages.action(f"{path}/{name}", self._change) for name in _CHANGES),
            pages.page(f"{path}/rotate-secret", self.show_rotation),
            pages.action(f"{path}/rotate-secret", self.rotate_secret),
            pages.page(f"{path}/replay", self.show_replay),
            pages.action(f"{path}/replay", self.replay_webhook),
            pages.page(f"{path}/remove", self.show_removal),
            pages.action(f"{path}/remove", self.remove_webhook),
        ]

    async def send_test(self, request: Request, viewer: Viewer, form: Form) -> Response:
        del form
        return await self._run_operation(request, viewer, self._services.webhooks.send_test, "webhook-tested")

    async def verify_webhook(self, request: Request, viewer: Viewer, form: Form) -> Response:
        del form
        return await self._run_operation(request, viewer, self._services.webhooks.verify_webhook, "webhook-verified")

    async def _change(self, request: Request, viewer: Viewer, form: Form) -> Response:
        del form
        change, done = _CHANGES[request.url.path.rpartition("/")[2]]
        caller = await self._act_for_owner(viewer, request.path_params["webhook_id"], "ui_change_webhook")
        await self._services.webhooks.change_webhook(caller, request.path_params["webhook_id"], change)
        return _show_webhook(request, done)

    async def show_rotation(self, request: Request, viewer: Viewer) -> Response:
        webhook = await self._get_own_webhook(request, viewer)
        return self._renderer.render_page(
            "webhook_rotation.html", viewer, title="Rotate the signing secret", section="Webhooks", webhook=webhook
        )

    async def rotate_secret(self, request: Request, viewer: Viewer, form: Form) -> Response:
        """As over REST, an operator rotates no secret of another principal: it would be shown to the operator."""
        hours = form.get_text("overlap_hours").strip() or "24"
        if not hours.isdecimal() or len(hours) > 4:  # noqa: PLR2004 - the service has the limit
            raise InvalidRequest("overlap_hours: write a whole number of hours, from 0 to 168.")
        body = validate(RotateSecretBody, {"overlap_seconds": float(hours) * 3600})
        rotated = await self._services.webhooks.rotate_secret(
            viewer.caller, request.path_params["webhook_id"], secret=None, overlap_seconds=body.overlap_seconds
        )
        return self._renderer.render_page(
            "webhook_secret.html",
            viewer,
            title="The webhook has a new secret",
            section="Webhooks",
            webhook=rotated.webhook,
            hears=describe_webhook(rotated.webhook),
            secret=rotated.secret,
            overlap_ends_at=rotated.overlap_ends_at,
        )

    async def show_replay(self, request: Request, viewer: Viewer) -> Response:
        """Say how many deliveries a replay would send again, before a form sends them."""
        caller = await self._act_for_owner(viewer, request.path_params["webhook_id"], "ui_count_replay")
        replay = _read_replay(request.query_params, dry_run=True)
        webhook_id = request.path_params["webhook_id"]
        counted = await self._services.replays.replay_webhook(caller, webhook_id, replay)
        return self._renderer.render_page(
            "webhook_replay.html",
            viewer,
            title="Replay deliveries",
            section="Webhooks",
            webhook=await self._services.webhooks.get_webhook(caller, webhook_id),
            replay=replay,
            fields=_replay_fields(replay),
            counted=counted,
            sent=read_number(request.query_params.get("sent", "")),
        )

    async def replay_webhook(self, request: Request, viewer: Viewer, form: Form) -> Response:
        caller = await self._act_for_owner(viewer, request.path_params["webhook_id"], "ui_replay_webhook")
        typed = {name: form.get_text(name) for name in ("since", "cursor", "dead")}
        replay = _read_replay(typed, dry_run=False)
        webhook_id = request.path_params["webhook_id"]
        replayed = await self._services.replays.replay_webhook(caller, webhook_id, replay)
        sent = read_number(form.get_text("sent")) + replayed.replayed
        if not replayed.has_more:
            return redirect(with_query(f"/webhooks/{webhook_id}", {"done": "webhook-replayed", "sent": sent}))
        path = f"/webhooks/{webhook_id}/replay"
        rest = _replay_fields(replay) if replayed.cursor is None else {"cursor": replayed.cursor}
        return redirect(with_query(path, {**rest, "sent": sent}))

    async def show_removal(self, request: Request, viewer: Viewer) -> Response:
        viewer.caller.require_scope(Scope.WEBHOOKS)
        caller = await self._act_for_owner(viewer, request.path_params["webhook_id"], "ui_read_webhook")
        webhook = await self._services.webhooks.get_webhook(caller, request.path_params["webhook_id"])
        return self._renderer.render_page(
            "webhook_removal.html", viewer, title="Remove the webhook", section="Webhooks", webhook=webhook
        )

    async def remove_webhook(self, request: Request, viewer: Viewer, form: Form) -> Response:
        del form
        caller = await self._act_for_owner(viewer, request.path_params["webhook_id"], "ui_remove_webhook")
        await self._services.webhooks.remove_webhook(caller, request.path_params["webhook_id"])
        return redirect(with_query("/webhooks", {"done": "webhook-removed"}))

    async def _run_operation(
        self, request: Request, viewer: Viewer, operation: Callable[[Caller, str], Awaitable[object]], done: str
    ) -> Response:
        caller = await self._act_for_owner(viewer, request.path_params["webhook_id"], f"ui_{operation.__name__}")
        await operation(caller, request.path_params["webhook_id"])
        return _show_webhook(request, done)

    async def _get_own_webhook(self, request: Request, viewer: Viewer) -> Webhook:
        viewer.caller.require_scope(Scope.WEBHOOKS)
        return await self._services.webhooks.get_webhook(viewer.caller, request.path_params["webhook_id"])


def _show_webhook(request: Request, done: str) -> Response:
    return redirect(with_query(f"/webhooks/{request.path_params['webhook_id']}", {"done": done}))


def _read_replay(typed: Mapping[str, str], *, dry_run: bool) -> ReplayRequest:
    """Either all dead deliveries, or those since a time (or after the cursor at which an earlier request stopped)."""
    values = read_filled_fields(typed, ReplayBody)
    selected = (
        {"dead": True} if values.get("dead") else {key: values[key] for key in ("since", "cursor") if key in values}
    )
    if not selected:
        raise InvalidRequest("Choose the deliveries to send again: the dead ones, or those since a time.")
    return validate(ReplayBody, {**selected, "dry_run": dry_run}).to_request()


def _replay_fields(replay: ReplayRequest) -> dict[str, str]:
    """The hidden fields that select the same deliveries again."""
    if replay.only_dead:
        return {"dead": "1"}
    return {"since": format_iso(replay.since)} if replay.since is not None else {"cursor": replay.cursor or ""}
