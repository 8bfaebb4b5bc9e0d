"""The form that starts a call of a tool, made of the tool's inputSchema."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ringback.api.problems import add_retry_after, status_for
from ringback.domain.errors import IdempotencyConflict, InvalidRequest, NotFound, QuotaExceeded, Unavailable
from ringback.domain.principal import Scope
from ringback.domain.upstreams import ToolInfo
from ringback.schemas.call_requests import BatchedCallBody
from ringback.ui.forms.form_fields import FieldKind, SchemaField
from ringback.ui.forms.form_keys import make_form_key, read_form_key
from ringback.ui.forms.form_values import TypedValues, read_arguments, write_defaults
from ringback.ui.forms.schema_forms import build_form, build_json_form
from ringback.ui.page_handlers import PageHandlers
from ringback.ui.page_routes import Form, PageRoutes
from ringback.ui.pages.upstreams import describe_tool, find_upstream
from ringback.ui.query_parameters import validate, with_query
from ringback.ui.redirects import redirect
from ringback.ui.viewer import Viewer

AS_JSON: Final = "json"
_USED_FORM: Final = (
    "This form has started a call already, with other values. Nothing was started now; press the button again to start "
    "another."
)
_LABELS: Final = ("client_session_id", "correlation_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class _TypedForm:
    """A form as the viewer sees it: new, or with what was typed before an error."""

    root: SchemaField
    typed: TypedValues
    idempotency_key: str
    errors: Mapping[str, str]
    problem: str | None = None
    status_code: int = HTTPStatus.OK


class ToolPages(PageHandlers):
    def make_routes(self, pages: PageRoutes) -> list[Route]:
        path = "/upstreams/{name}/tools/{tool:path}"
        return [pages.page(path, self.show_form), pages.action(path, self.start_call)]

    async def show_form(self, request: Request, viewer: Viewer) -> Response:
        tool = await self._find_tool(request, viewer)
        root = _build_root(tool, request.query_params.get("as"))
        form = _TypedForm(root=root, typed=write_defaults(root), idempotency_key=make_form_key(), errors={})
        return self._render_form(request, viewer, tool, form)

    async def start_call(self, request: Request, viewer: Viewer, form: Form) -> Response:
        """A second click sends the same idempotency key, so it finds the same call."""
        tool = await self._find_tool(request, viewer)
        root = _build_root(tool, form.get_text("as"))
        read = read_arguments(root, form.fields)
        key = read_form_key(form)
        shown = _TypedForm(root=root, typed=form.fields, idempotency_key=key, errors=read.errors)
        if read.errors:
            invalid = replace(shown, status_code=HTTPStatus.UNPROCESSABLE_ENTITY)
            return self._render_form(request, viewer, tool, invalid)
        try:
            return await self._start_call(request, viewer, form, read.arguments, key)
        except IdempotencyConflict as conflict:  # the browser's way back shows the form with the key that was used
            problem, shown, text = conflict, replace(shown, idempotency_key=make_form_key()), _USED_FORM
        except (InvalidRequest, QuotaExceeded, Unavailable) as refusal:
            problem, text = refusal, refusal.detail
        refused = replace(shown, problem=text, status_code=status_for(type(problem)))
        return add_retry_after(self._render_form(request, viewer, tool, refused), problem)

    async def _start_call(
        self, request: Request, viewer: Viewer, form: Form, arguments: Mapping[str, Any], key: str
    ) -> Response:
        callback_url = form.get_text("callback_url").strip()
        labels = {name: text for name in _LABELS if (text := form.get_text(name).strip())}
        body = validate(
            BatchedCallBody,
            {
                "upstream": request.path_params["name"],
                "tool": request.path_params["tool"],
                "arguments": arguments,
                "accepts_input": form.get_text("accepts_input") == "1",
                "idempotency_key": key,
                **labels,
                **({"callback": {"url": callback_url}} if callback_url else {}),
            },
        )
        started = await self._services.calls.start_call(viewer.caller, body.to_request())
        if started.callback_secret is None:
            return redirect(with_query(f"/calls/{started.call.id}", {"done": "call-started"}))
        return self._renderer.render_page(
            "call_secret.html",
            viewer,
            title="The call has started",
            section="Calls",
            status_code=HTTPStatus.CREATED,
            call=started.call,
            webhooks=started.webhooks,
            secret=started.callback_secret,
        )

    async def _find_tool(self, request: Request, viewer: Viewer) -> ToolInfo:
        viewer.caller.require_scope(Scope.CALLS)
        listed = await find_upstream(self._context, viewer, request.path_params["name"])
        for tool in await self._services.insights.list_tools(viewer.caller, listed.info.name):
            if tool.name == request.path_params["tool"]:
                return tool
        raise NotFound("The upstream has no tool of this name.")

    def _render_form(self, request: Request, viewer: Viewer, tool: ToolInfo, form: _TypedForm) -> Response:
        upstream = request.path_params["name"]
        own_path = f"{self._renderer.find_path(viewer)}/upstreams/{quote(upstream)}/tools/{quote(tool.name, safe='')}"
        return self._renderer.render_page(
            "tool.html",
            viewer,
            title=tool.name,
            section="Upstreams",
            status_code=form.status_code,
            upstream=upstream,
            tool=describe_tool(tool),
            form=form,
            own_path=own_path,
            has_fields=build_form(tool.input_schema).kind is FieldKind.GROUP,
        )


def _build_root(tool: ToolInfo, form_kind: str | None) -> SchemaField:
    """The fields of the schema. A viewer may write all arguments as JSON instead."""
    return build_json_form() if form_kind == AS_JSON else build_form(tool.input_schema)
