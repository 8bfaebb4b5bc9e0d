"""`/mcp` and `/mcp/{upstream}` as one ASGI application.

Each endpoint has an SDK server with its own session manager (`session_manager`), created by the first request. An unknown
upstream name creates none, so there are at most as many endpoints as upstreams, plus `/mcp`.
"""

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from contextvars import ContextVar
from functools import partial
from typing import Any, Final

from mcp.server.lowlevel import Server
from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope, Send

from ringback import __version__
from ringback.asyncio_tasks import end_tasks
from ringback.domain.errors import EndpointUnavailable, NotFound, ShuttingDown, Unavailable
from ringback.domain.principal import Authenticator, Caller
from ringback.domain.upstreams import Listing
from ringback.mcp_server import (
    events,
    legacy_tasks,
    proxied_methods,
    subscriptions,
    tasks,
    tools,
)
from ringback.mcp_server.auth import authenticate_request, authorize_request, get_request_caller
from ringback.mcp_server.builtin_tools import call_tools, event_tools, login_tool, notify_me
from ringback.mcp_server.capabilities import CapabilitiesMiddleware
from ringback.mcp_server.elicitation import store_answer
from ringback.mcp_server.endpoint_supervisor import EndpointSupervisor
from ringback.mcp_server.gateway import Feature, Gateway
from ringback.mcp_server.incoming_messages import forget_message
from ringback.mcp_server.known_clients import ends_at_http_errors
from ringback.mcp_server.live_sessions import LiveSessions
from ringback.mcp_server.method_dispatcher import MethodDispatcher
from ringback.mcp_server.request_context import (
    COMMENTS_OMITTED_KEY,
    REQUEST_CLOSED_AT_KEY,
    REQUEST_CLOSED_KEY,
    Endpoint,
)
from ringback.mcp_server.session_activity import SessionActivity
from ringback.mcp_server.session_manager import BoundedSessionManager
from ringback.mcp_server.session_recorder import SessionRecorder
from ringback.mcp_server.session_transport import SessionTransport
from ringback.mcp_server.wait_windows import WaitWindows
from ringback.services.mcp_sessions import IDLE_SECONDS
from ringback.suggestions import suggest_name

_current_caller: Final[ContextVar[Caller]] = ContextVar("current_caller")
"""The caller of the current request. The SDK does not pass the request to its input schema look-up."""


def build_features(gateway: Gateway) -> Sequence[Feature]:
    """Each feature sees the capabilities that earlier ones advertise."""
    wait_windows = WaitWindows(gateway)
    earlier_features = (
        proxied_methods.build_feature(gateway),
        tasks.build_feature(gateway),
        legacy_tasks.build_feature(gateway),
        call_tools.build_feature(gateway, wait_windows=wait_windows),
        notify_me.build_feature(gateway),
        login_tool.build_feature(gateway),
        event_tools.build_feature(gateway),
        events.build_feature(gateway),
    )
    return (
        *earlier_features,
        tools.build_feature(gateway, earlier_features, wait_windows=wait_windows),
        subscriptions.build_feature(gateway),
    )


class BackgroundTaskSet:
    """Implements `gateway.TaskSpawner`."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def aclose(self) -> None:
        await end_tasks(list(self._tasks))


class ResponseTracker:
    """Forwards a response and records whether it has started and ended. Leaves out comments of a stream that has none."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._state = scope["state"]
        self._send = send
        self.has_started = False
        self._has_ended = False

    async def __call__(self, message: Message) -> None:
        if COMMENTS_OMITTED_KEY in self._state and message.get("body", b"").startswith(b":"):
            return
        self.has_started = True
        self._has_ended = message["type"] == "http.response.body" and not message.get("more_body", False)
        await self._send(message)

    async def end_response(self) -> None:
        """End the open stream of a failed session manager, so that the client reconnects."""
        if not self._has_ended:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})


class McpServer:
    def __init__(self, gateway: Gateway, *, authenticator: Authenticator) -> None:
        self._gateway = gateway
        self._authenticator = authenticator
        self._features = build_features(gateway)
        self._is_closing = False
        self.live_sessions = LiveSessions()
        self._endpoints = EndpointSupervisor(
            self._create_session_manager, list_upstreams=self._list_upstream_names, clock=gateway.clock
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["headers"] = [(name, value.strip(b" \t")) for name, value in scope["headers"]]  # RFC 9110 §5.5
        caller = await authenticate_request(scope, self._authenticator)
        endpoint = self._resolve_endpoint(scope["path_params"].get("upstream"), caller)
        _current_caller.set(caller)
        if self._is_closing:
            raise ShuttingDown("The service is shutting down. Try again in a few seconds.")
        receive = await authorize_request(caller, scope, receive, body_admission=self._gateway.body_admission)
        scope["state"][REQUEST_CLOSED_KEY] = request_closed = asyncio.Event()
        response = ResponseTracker(scope, send)
        try:
            with self._count_stream(scope, caller):
                await self._endpoints.use_manager(
                    endpoint, lambda manager: manager.handle_request(scope, receive, response)
                )
            forget_message(scope["state"])
        except EndpointUnavailable:
            if not response.has_started:
                raise
            await response.end_response()
        finally:
            scope["state"][REQUEST_CLOSED_AT_KEY] = self._gateway.clock.monotonic()
            request_closed.set()

    @asynccontextmanager
    async def run(self) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            self.close()
            await self._endpoints.aclose()

    def close(self) -> None:
        """End all sessions and streams."""
        self._is_closing = True
        self._endpoints.close()

    def failing_endpoints(self) -> frozenset[str]:
        """The endpoints that have failed and are not running again yet."""
        return self._endpoints.failing_endpoints()

    def _list_upstream_names(self) -> frozenset[str]:
        return frozenset(info.name for info in self._gateway.catalog.list_upstreams())

    def _resolve_endpoint(self, upstream: str | None, caller: Caller) -> Endpoint:
        if upstream is not None and not (
            caller.may_use_upstream(upstream) and self._gateway.catalog.has_upstream(upstream)
        ):
            for skipped in self._gateway.catalog.list_skipped():
                if skipped.name == upstream and caller.may_use_upstream(upstream):
                    raise NotFound(skipped.describe())
            names = filter(caller.may_use_upstream, sorted(self._list_upstream_names()))
            hint = suggest_name(upstream, names)
            raise NotFound(f"There is no upstream of this name.{hint} List them: GET /v1/upstreams")
        return Endpoint(upstream=upstream)

    def _count_stream(self, scope: Scope, caller: Caller) -> AbstractContextManager[None]:
        """Count a session's own stream (GET) against the principal's quota; raises `QuotaExceeded`."""
        if scope["method"] != "GET":
            return nullcontext()
        return self._gateway.quotas.open_stream(caller.principal, key_id=caller.key_id)

    def _create_session_manager(self, endpoint: Endpoint) -> BoundedSessionManager:
        gateway, activity = self._gateway, SessionActivity(self._gateway.clock)
        server: Server[Any] = Server("ringback", version=__version__)
        server.get_tool_input_schema = partial(self._get_input_schema, endpoint)
        dispatcher = MethodDispatcher(
            endpoint, self._features, server_info=server.server_info_stamp, quotas=gateway.quotas
        )
        # Not the SDK's own, which makes spans: `method_spans` does.
        server.middleware = [
            SessionRecorder(endpoint, gateway.sessions, activity),
            CapabilitiesMiddleware(endpoint, self._features, gateway),
            dispatcher,
        ]
        return BoundedSessionManager(
            server,
            endpoint=endpoint,
            sessions=gateway.sessions,
            activity=activity,
            live_sessions=self.live_sessions,
            create_transport=partial(
                SessionTransport,
                sealer=gateway.sealer,
                ids=gateway.ids,
                clock=gateway.clock,
                idle_seconds=IDLE_SECONDS,
                store_foreign_answer=self._store_foreign_answer,
            ),
            handle_call=dispatcher.handle_request,
            node_signals=gateway.node_signals,
            background_tasks=gateway.background_tasks,
            request_bytes_max=gateway.config.request_bytes_max,
            clock=gateway.clock,
        )

    async def _store_foreign_answer(self, scope: Scope, message: Any) -> bool:
        """Store an answer to a question that another node asked.

        Raises `Unavailable`, or `NotFound` for a client that would end at the HTTP status of that.
        """
        asked = self._gateway.elicitation_ids.find_question(message)
        if asked is None:
            return False
        try:
            await store_answer(self._gateway, get_request_caller(scope), asked, message)
        except Unavailable:
            if not ends_at_http_errors(Headers(scope=scope).get("user-agent", "")):
                raise
            raise NotFound(
                "The answer cannot be stored now: the database is away. The question stays open, and your session goes on."
            ) from None
        return True

    def _get_input_schema(self, endpoint: Endpoint, name: str) -> Mapping[str, Any] | None:
        """For the SDK, which validates `Mcp-Param-…` headers against the schema before it calls our handlers.

        None for a schema that names none, which is nearly every one: the SDK would read it as a whole for each call.
        """
        gateway = self._gateway
        target = (
            (endpoint.upstream, name)
            if endpoint.upstream
            else gateway.tool_aliases.resolve_loaded_alias(Listing.TOOLS, name)
        )
        caller = _current_caller.get()
        if target is None or not caller.may_use_upstream(target[0]):
            return None
        tool = gateway.catalog.find_tool(*target, principal=caller.principal)
        return tool.input_schema if tool is not None and tool.may_repeat_arguments else None
