"""tools/list and tools/call.

Upstream tools are listed unchanged, except for an outputSchema that also allows a pending result (`tool_export`) and for
changes by features; the built-in tools follow. A call is stored first and then answered by `tool_call_responder`.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final

import anyio
import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from ringback.domain.call import Call
from ringback.domain.call_rows import CallFilter
from ringback.domain.errors import InvalidArguments, SignInRequired, Unavailable
from ringback.domain.meta import INSTANCES_META_KEY, add_meta
from ringback.domain.principal import Scope
from ringback.domain.upstreams import Listing
from ringback.mcp_server import meta
from ringback.mcp_server.call_options import read_call_options
from ringback.mcp_server.cancellation import (
    WaitingRequest,
    WaitingRequests,
    cancel_call,
    is_cancelled_on_disconnect,
    mark_call_unattended,
    shield_from_cancellation,
)
from ringback.mcp_server.elicitation import CallElicitation
from ringback.mcp_server.gateway import (
    MODERN_ONLY,
    BuiltinTool,
    Capabilities,
    Era,
    Feature,
    Gateway,
    MethodBinding,
    Result,
    TaskResponder,
)
from ringback.mcp_server.jsonrpc_errors import build_error_result, task_required
from ringback.mcp_server.progress_relay import get_log_level
from ringback.mcp_server.request_context import RequestContext
from ringback.mcp_server.resumed_calls import ResumedCalls
from ringback.mcp_server.tool_call_responder import ToolCallResponder
from ringback.mcp_server.tool_export import export_tool
from ringback.mcp_server.upstream_router import ListedEntry, UpstreamRouter
from ringback.mcp_server.wait_windows import WaitWindow, WaitWindows
from ringback.protocol.cancel_keys import CANCEL_REQUEST_METHOD
from ringback.services.calls.call_starts import StartCallRequest

LIST_TTL_MILLISECONDS: Final = 60_000
"""How long a client may cache a list; a subscribed client is notified of changes at once."""
CALLED_TOOLS_MAX: Final = 50
"""Calls whose tools are listed for an upstream that was never reached: a page of the caller's last calls there."""
_ANY_ARGUMENTS: Final[Mapping[str, Any]] = {"type": "object"}


def build_feature(gateway: Gateway, features: Sequence[Feature], *, wait_windows: WaitWindows) -> Feature:
    """`features` are all other features: they add built-in tools and task responders."""
    tools = ToolMethods(gateway, features, wait_windows=wait_windows)
    return Feature(
        methods=(
            MethodBinding("tools/list", types.PaginatedRequestParams, tools.list_tools),
            MethodBinding("tools/call", types.CallToolRequestParams, tools.call_tool),
            MethodBinding(
                CANCEL_REQUEST_METHOD, types.RequestParams, tools.waiting_requests.cancel_request, eras=MODERN_ONLY
            ),
        ),
        notification_handlers={"notifications/cancelled": tools.waiting_requests.handle_cancelled},
        advertise_capabilities=_advertise_tools,
    )


class ToolMethods:
    def __init__(self, gateway: Gateway, features: Sequence[Feature], *, wait_windows: WaitWindows) -> None:
        self._gateway = gateway
        self._wait_windows = wait_windows
        self._features = features
        self._builtin_tools: Mapping[str, BuiltinTool] = {
            tool.definition["name"]: tool for each in features for tool in each.builtin_tools
        }
        self._router = UpstreamRouter(gateway)
        self._elicitation = CallElicitation(gateway)
        self._responder = ToolCallResponder(gateway, elicitation=self._elicitation)
        self._resumed_calls = ResumedCalls(gateway)
        self.waiting_requests = WaitingRequests(gateway)

    # -- tools/list --

    async def list_tools(self, context: RequestContext, params: types.PaginatedRequestParams) -> Result:
        context.caller.require_scope(Scope.READ)
        reject_cursor(params)
        entries, ttl_milliseconds = await self._list_entries(context)
        # The built-in tools of a Ringback upstream would look for its calls, not ours.
        tools = [
            self._export_tool(context, entry)
            for entry in entries
            if entry.definition["name"] not in self._builtin_tools
        ]
        builtin_tools = [
            dict(tool.definition) for tool in self._builtin_tools.values() if await tool.is_listed(context)
        ]
        result = {"tools": [*tools, *builtin_tools], "ttlMs": ttl_milliseconds, "cacheScope": "private"}
        return add_meta(result, INSTANCES_META_KEY, self._gateway.list_instances(context.endpoint.upstream))

    async def _list_entries(self, context: RequestContext) -> tuple[Sequence[ListedEntry], int]:
        """The upstream's tools, and how long a client may cache them.

        If the upstream was never reached, the tools that the caller has called there: the SDK's clients list tools before they
        show a result, and an error of the list would hide the pending result, and those of the built-in tools. One of these
        says where to sign in (`login_tool`), so an upstream that requires a login has a list without tools of its own.
        """
        try:
            return await self._router.list_entries(context, Listing.TOOLS), LIST_TTL_MILLISECONDS
        except SignInRequired:
            return await self._list_called_tools(context, context.endpoint.upstream or ""), 0
        except Unavailable:
            if (upstream := context.endpoint.upstream) is None or not (
                called := await self._list_called_tools(context, upstream)
            ):
                raise
            return called, 0

    async def _list_called_tools(self, context: RequestContext, upstream: str) -> Sequence[ListedEntry]:
        page = await self._gateway.calls.list_calls(
            context.caller, CallFilter(upstream=upstream), position=None, limit=CALLED_TOOLS_MAX
        )
        names = dict.fromkeys(call.tool for call in page)
        return [
            ListedEntry(upstream=upstream, upstream_key=name, definition={"name": name, "inputSchema": _ANY_ARGUMENTS})
            for name in names
        ]

    def _export_tool(self, context: RequestContext, entry: ListedEntry) -> dict[str, Any]:
        tool = export_tool(entry.definition, is_modern=context.is_modern)
        for feature in self._features:
            tool = feature.adapt_tool(context, tool)
        if (
            "execution" in tool
            and self._gateway.catalog.get_tool_config(entry.upstream, entry.upstream_key).is_task_only
        ):
            tool["execution"] = {"taskSupport": "required"}
        return tool

    # -- tools/call --

    async def call_tool(self, context: RequestContext, params: types.CallToolRequestParams) -> Result:
        if builtin_tool := self._builtin_tools.get(params.name):
            return await builtin_tool.handler(context, params.arguments or {})
        if context.is_resumed:
            return await self._respond_again(context)
        with ExitStack() as start, self.waiting_requests.track_request(context) as waiting_request:
            start.enter_context(self._resumed_calls.track_start(context))  # resolving a name can take seconds
            upstream, tool = await self._router.resolve_name(context, Listing.TOOLS, params.name)
            task_responder, window = self._get_response_mode(context, upstream, tool)
            try:
                call = await shield_from_cancellation(
                    self._start_or_resume_call(context, params, upstream, tool, window, waiting_request)
                )
            except InvalidArguments as problem:
                if task_responder is not None and task_responder.responds_immediately:
                    raise  # this client expects a task and cannot read a result
                return build_error_result(problem.detail)  # SEP-1303
            start.close()
            try:
                with self._wait_windows.observe_wait(context):
                    return await self._responder.respond(context, call, task_responder, window)
            except anyio.get_cancelled_exc_class():
                await shield_from_cancellation(self._handle_disconnect(context, call))
                raise

    async def _respond_again(self, context: RequestContext) -> Result:
        """Respond to a legacy client that lost the stream of its request; the call goes on, and none is started."""
        call = await self._resumed_calls.find_call(context)
        self._wait_windows.forget_give_up(context)
        task_responder, window = self._get_response_mode(context, call.upstream, call.tool)
        with self.waiting_requests.track_request(context) as waiting_request:
            waiting_request.call_id = call.id
            if waiting_request.is_cancelled:  # before it came back, and this process knew no request of this id
                await cancel_call(self._gateway, context, call.id)
            return await self._responder.respond(context, call, task_responder, window)

    def _get_response_mode(
        self, context: RequestContext, upstream: str, tool: str
    ) -> tuple[TaskResponder | None, WaitWindow]:
        """How long to wait for the plain result, and what creates a task after that if the client supports tasks."""
        for feature in self._features:
            if (
                feature.task_responder is not None
                and (grace_seconds := feature.task_responder.get_grace_seconds(context)) is not None
            ):
                return feature.task_responder, self._wait_windows.choose_grace_window(context, grace_seconds)
        if self._gateway.catalog.get_tool_config(upstream, tool).is_task_only:
            raise task_required(is_modern=context.is_modern)
        return None, self._wait_windows.choose_tool_window(context, upstream, tool)

    async def _start_or_resume_call(
        self,
        context: RequestContext,
        params: types.CallToolRequestParams,
        upstream: str,
        tool: str,
        window: WaitWindow,
        waiting_request: WaitingRequest,
    ) -> Call:
        """The stored call. The caller shields this from cancellation: a disconnect is handled once the call id is known."""
        if params.request_state is not None:
            call = await self._elicitation.resume_call(context, params.request_state, upstream=upstream, tool=tool)
        else:
            request = _build_start_call(
                context,
                params,
                upstream,
                tool,
                wait_seconds=window.seconds,
                is_cancelled=waiting_request.is_cancelled,
                wants_log_messages=get_log_level(context) is not None,
                may_be_given_up=self._gateway.node_signals.has_other_nodes,
            )
            call = (await self._gateway.calls.start_call(context.caller, request)).call
        waiting_request.call_id = call.id
        if waiting_request.is_cancelled:
            await cancel_call(self._gateway, context, call.id)
        return call

    async def _handle_disconnect(self, context: RequestContext, call: Call) -> None:
        """Cancel the call of a modern client if `on_disconnect` says so, or mark it as unattended.

        Why the request was cancelled is unknown here: `WaitingRequests` cancels the call if the client said so, with
        `notifications/cancelled` or `ringback/cancelRequest`.
        """
        if self._gateway.lifecycle.shutdown_event.is_set():
            return
        if is_cancelled_on_disconnect(self._gateway, context, call):
            await cancel_call(self._gateway, context, call.id)
        else:
            await mark_call_unattended(self._gateway, context, call.id)


def _build_start_call(
    context: RequestContext,
    params: types.CallToolRequestParams,
    upstream: str,
    tool: str,
    *,
    wait_seconds: float,
    is_cancelled: bool,
    wants_log_messages: bool,
    may_be_given_up: bool,
) -> StartCallRequest:
    options = read_call_options(context)
    return StartCallRequest(
        upstream=upstream,
        tool=tool,
        arguments=params.arguments or {},
        meta=meta.select_upstream_meta(context.meta),
        client_session_id=options.client_session_id,
        correlation_id=options.correlation_id,
        idempotency_key=options.idempotency_key,
        callback=options.callback,
        webhook_id=options.webhook_id,
        wait_seconds=wait_seconds,
        # A callback also reports a question, which can then be answered over REST.
        accepts_input=options.requests_callback or context.supports_elicitation(frozenset()),
        wants_receipt=False,
        call_id=None if context.stream_request is None else context.stream_request.call_id,
        is_cancelled=is_cancelled,
        wants_log_messages=wants_log_messages,
        may_be_given_up=may_be_given_up,
    )


def reject_cursor(params: types.PaginatedRequestParams) -> None:
    """Refuse a cursor: every list is one page."""
    if params.cursor is not None:
        raise MCPError(INVALID_PARAMS, "Unknown cursor: every list is one page. Send the request without a cursor.")


def _advertise_tools(_era: Era, capabilities: Capabilities) -> None:
    capabilities.setdefault("tools", {})
