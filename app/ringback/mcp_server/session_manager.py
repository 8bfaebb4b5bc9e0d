"""The session manager of an endpoint. `endpoint_supervisor` starts and restarts it.

A legacy session is stored (`services.mcp_sessions`), and a manager's memory is only a cache of it:

    initialize      SessionRecorder stores what was agreed on; then the client gets the response
    unknown id      the manager looks for a stored session of this caller. It replays `initialize`, `notifications/initialized`,
                    the log level and the subscriptions into a new transport of the same id, and then handles the request
    refused         an `initialize` that fails or cannot be stored gets an error, and its session ends
    DELETE          the stored session is deleted; then the client gets the response
    too many        a new session ends the longest idle one of its principal at this endpoint
    no room         `live_sessions` unloads a session that is idle: it leaves memory, stays stored, and continues as above
    other nodes     a change or the end of the session at another node is followed here, at its notification; at the latest when
                    the session's own stream opens (a change) or within 5 minutes (its end)
    idle            the manager drops a session that was idle for 30 minutes. The stored one expires at most 5 minutes later

Every 5 minutes one commit moves the expiry of the sessions that were used meanwhile, so a request writes nothing by itself.
"""

import logging
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from http import HTTPStatus
from itertools import count
from typing import Any, Final

import anyio
from mcp.server.auth.middleware.bearer_auth import AuthorizationContext, authorization_context
from mcp.server.lowlevel import Server
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER, StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ringback.domain.clock import Clock
from ringback.domain.errors import StoreUnavailable, Unavailable
from ringback.domain.mcp_sessions import SessionState
from ringback.domain.signals import mcp_session_topic
from ringback.mcp_server.auth import get_request_caller
from ringback.mcp_server.direct_streams import is_modern_stream_request, serve_direct_stream
from ringback.mcp_server.gateway import TaskSpawner
from ringback.mcp_server.incoming_messages import get_body, get_message
from ringback.mcp_server.live_sessions import LiveSession, LiveSessions, count_places
from ringback.mcp_server.modern_calls import CallHandler, handle_modern_call
from ringback.mcp_server.request_context import SESSION_REFUSED_KEY, Endpoint
from ringback.mcp_server.session_activity import SessionActivity
from ringback.mcp_server.session_recorder import count_kept_bytes
from ringback.mcp_server.session_refusals import (
    is_opening_message,
    omit_session_of_refusal,
    require_known_version,
    require_opening_request,
    unknown_session,
)
from ringback.mcp_server.session_transport import OPENING_METHOD, SessionTransport, build_replay
from ringback.mcp_server.single_responses import (
    asks_for_notifications,
    is_modern_tool_call,
    send_single_response,
    send_streamed_response,
)
from ringback.mcp_server.subscriptions import SYNC_METHOD
from ringback.services import mcp_sessions
from ringback.services.mcp_sessions import EXTEND_SECONDS, IDLE_SECONDS, McpSessions
from ringback.services.node_signals import NodeSignals

log = logging.getLogger(__name__)

OPENING_SESSIONS_MAX: Final = 100
"""Sessions of one principal that may be in their `initialize` at once, beyond those that are stored. `initialize` takes some
milliseconds."""
_REPLAY_ID: Final = "ringback-replay"
"""What the request ids of replayed messages begin with; no client uses them."""


class BoundedSessionManager(StreamableHTTPSessionManager):
    """Continues stored sessions, and limits the number of sessions.

    The SDK's manager knows the live sessions and their owners. Private names of the SDK are used only here, because no public
    ones exist: `_handle_request`, which dispatches by era, `_lifespan_state`, `_serve_opening_request`, which starts a session,
    `_discard_session`, `_server_instances` and `_session_owners`.
    """

    def __init__(
        self,
        server: Server[Any],
        *,
        endpoint: Endpoint,
        sessions: McpSessions,
        activity: SessionActivity,
        live_sessions: LiveSessions,
        create_transport: Callable[[str], SessionTransport],
        handle_call: CallHandler,
        background_tasks: TaskSpawner,
        request_bytes_max: int,
        clock: Clock,
        node_signals: NodeSignals,
    ) -> None:
        super().__init__(
            server,
            session_idle_timeout=IDLE_SECONDS,
            max_request_body_size=request_bytes_max,
            max_sessions=None,
        )
        self._endpoint = endpoint
        self._sessions = sessions
        self._activity = activity
        self._live_sessions = live_sessions
        self._live = dict[StreamableHTTPServerTransport, LiveSession]()
        """The sessions in memory, as they are counted."""
        self._unloaded = set[str]()
        """Sessions that have left memory since the last record of those that were used."""
        self._create_transport = create_transport
        self._handle_call = handle_call
        self._background_tasks = background_tasks
        self._clock = clock
        self._adoption_lock = anyio.Lock()
        self._sessions_in_replay = set[str]()
        self._replay_numbers = count(1)
        self._node_signals = node_signals
        self._subscriptions = dict[str, ExitStack]()
        """The subscriptions to hints of other nodes, by session."""
        self._unsynced = set[str]()
        """Sessions that have to be read from the store."""
        self._syncing = set[str]()
        """Sessions that a task reads and follows, one reading after the other: the newest one must be followed last."""

    async def handle_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request; raises `QuotaExceeded` instead of opening a session over the principal's quota.

        The SDK limits the size of bodies here. `BodyLimitMiddleware` has done so.
        """
        headers = Headers(scope=scope)
        version, session_id = headers.get(MCP_PROTOCOL_VERSION_HEADER), headers.get(MCP_SESSION_ID_HEADER)
        if version is not None and version not in HANDSHAKE_PROTOCOL_VERSIONS:
            require_known_version(version, scope)
            await self._handle_request(scope, receive, send)
        elif session_id is None:
            require_opening_request(scope)
            await self._sessions.require_session_quota(get_request_caller(scope), self._endpoint.path, self._activity)
            await self._open_session(scope, receive, omit_session_of_refusal(send))
        elif scope["method"] == "DELETE":
            await self._end_session(session_id, scope, receive, send)
        else:
            await self._handle_in_session(session_id, scope, receive, send)

    async def _handle_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Override the SDK's dispatch by era."""
        if is_modern_tool_call(scope):
            body = get_body(scope)
            if asks_for_notifications(body):
                await send_streamed_response(super()._handle_request, scope, receive, send)
            else:
                handle = partial(handle_modern_call, self.app, self._handle_call, self._lifespan_state, body)
                await send_single_response(handle, scope, receive, send)
        elif is_modern_stream_request(scope):
            await serve_direct_stream(self.app, self._lifespan_state, scope, receive, send)
        else:
            await super()._handle_request(scope, receive, send)

    async def _handle_in_session(self, session_id: str, scope: Scope, receive: Receive, send: Send) -> None:
        if session_id not in self._server_instances or session_id in self._sessions_in_replay:
            await self._adopt_session(session_id, scope)
        self._require_owned_session(session_id, scope)
        if scope["method"] == "GET":  # its own stream: notifications of all subscriptions go there
            self._schedule_sync(session_id)
        live = self._live[self._server_instances[session_id]]
        with self._activity.record_request(session_id), self._live_sessions.use_session(live):
            if is_opening_message(get_message(scope)) and not self._live_sessions.resize(live, _count_places(scope)):
                raise _no_room()
            await self._handle_request(scope, receive, send)

    async def _open_session(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As the SDK does, but for the limits, whose errors say what to do."""
        requestor = authorization_context(scope["user"])
        self._require_session_quota(requestor["client_id"])
        transport = self._register_session(self._sessions.new_session_id(), requestor, _count_places(scope))
        await self._serve_opening_request(transport, scope, receive, send)

    async def _serve_opening_request(
        self, http_transport: StreamableHTTPServerTransport, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Override the SDK's opening of a session: it takes every HTTP 200 for a success, also of a stream with an error."""
        session_id = str(http_transport.mcp_session_id)
        try:
            with (
                self._activity.record_request(session_id),
                self._live_sessions.use_session(self._live[http_transport]),
            ):
                await super()._serve_opening_request(http_transport, scope, receive, send)
        finally:
            if SESSION_REFUSED_KEY in scope["state"]:
                await self._discard_session(session_id, http_transport)
            await self._discard_sessions(self._activity.pop_ended())

    async def _discard_sessions(self, session_ids: Iterable[str]) -> None:
        for session_id in session_ids:
            if transport := self._server_instances.get(session_id):
                await self._discard_session(session_id, transport)

    async def _end_session(self, session_id: str, scope: Scope, receive: Receive, send: Send) -> None:
        """End a session for good: it is no longer stored when the client gets the response."""
        async with self._adoption_lock:  # a session that ends is not continued at the same time
            has_ended = await self._sessions.end_session(get_request_caller(scope), session_id, self._endpoint.path)
        if has_ended and session_id not in self._server_instances:
            await Response(status_code=HTTPStatus.OK)(scope, receive, send)
        else:
            self._require_owned_session(session_id, scope)
            await self._handle_request(scope, receive, send)

    def _require_owned_session(self, session_id: str, scope: Scope) -> None:
        """Raise `UnknownSession` for a session that is unknown here, or of another caller: both get the same response."""
        if self._session_owners.get(session_id) != authorization_context(scope["user"]):
            raise unknown_session()

    # -- sessions of other processes --

    async def _adopt_session(self, session_id: str, scope: Scope) -> None:
        """Continue a stored session of this caller in this process; nothing happens if there is none."""
        caller, path = get_request_caller(scope), self._endpoint.path
        if await self._sessions.find_session(caller, session_id, path) is None:
            return
        async with self._adoption_lock:
            if session_id in self._server_instances:
                return  # an earlier request has continued it meanwhile
            if (session := await self._sessions.find_session(caller, session_id, path)) is not None:
                self._sessions_in_replay.add(session_id)
                try:
                    await self._replay_session(session_id, session.state, scope)
                finally:
                    self._sessions_in_replay.remove(session_id)
                self._schedule_sync(session_id)  # another node may have changed it since it was read

    async def _replay_session(self, session_id: str, state: SessionState, scope: Scope) -> None:
        initialize = {"id": _REPLAY_ID, "method": OPENING_METHOD, "params": state.initialize}
        opening = build_replay(scope, session_id, initialize)
        transport = self._register_session(session_id, authorization_context(scope["user"]), _count_places(opening[0]))
        with self._live_sessions.use_session(self._live[transport]):  # it is not unloaded before its request is handled
            await self._serve_opening_request(transport, *opening)
            await transport.replay_message(scope, {"method": "notifications/initialized"})
            if state.log_level is not None:
                await self._replay_request(transport, scope, "logging/setLevel", {"level": state.log_level})
        # In the background, because an upstream that is away would delay the session.
        self._background_tasks.spawn(self._replay_subscriptions(transport, state, scope))
        log.info("session.continued", extra={"endpoint": self._endpoint.path})

    async def _replay_subscriptions(self, transport: SessionTransport, state: SessionState, scope: Scope) -> None:
        for uri in state.subscriptions:
            await self._replay_request(transport, scope, "resources/subscribe", {"uri": uri})

    def _schedule_sync(self, session_id: str) -> None:
        """Read the session from the store again soon, unless no other node can have changed it."""
        if self._node_signals.has_other_nodes:
            self._unsynced.add(session_id)
            if session_id not in self._syncing:
                self._syncing.add(session_id)
                self._background_tasks.spawn(self._sync_until_current(session_id))

    async def _sync_until_current(self, session_id: str) -> None:
        try:
            while session_id in self._unsynced:
                self._unsynced.discard(session_id)
                await self._sync_session(session_id)
        finally:
            self._syncing.discard(session_id)
            self._unsynced.discard(session_id)

    async def _sync_session(self, session_id: str) -> None:
        """Follow what another node did with the session: end it, or change its log level and subscriptions."""
        transport = self._server_instances.get(session_id)
        if transport is None:
            self._drop_subscription(session_id)
        if session_id in self._sessions_in_replay or not isinstance(transport, SessionTransport):
            return
        if (scope := transport.last_scope) is None:
            return
        try:
            session = await self._sessions.find_session(get_request_caller(scope), session_id, self._endpoint.path)
        except Unavailable:  # of the store, or of the session's key
            log.debug("session.store_unavailable")
            return  # the next change, stream or round of `extend_used_sessions` follows it
        if session is None:
            await self._discard_session(session_id, transport)
        else:
            await self._replay_state(transport, session.state, scope)

    async def _replay_state(self, transport: SessionTransport, state: SessionState, scope: Scope) -> None:
        if state.log_level is not None:
            await self._replay_request(transport, scope, "logging/setLevel", {"level": state.log_level})
        await self._replay_request(transport, scope, SYNC_METHOD, {"uris": list(state.subscriptions)})

    async def _replay_request(
        self, transport: SessionTransport, scope: Scope, method: str, params: dict[str, Any]
    ) -> None:
        """Replay with an id of its own: messages are replayed at the same time, and each waits for its response."""
        message = {"id": f"{_REPLAY_ID}-{next(self._replay_numbers)}", "method": method, "params": params}
        await transport.replay_message(scope, message)

    def _drop_subscription(self, session_id: str) -> None:
        if subscription := self._subscriptions.pop(session_id, None):
            subscription.close()

    # -- sessions of this process --

    def _register_session(
        self, session_id: str, requestor: AuthorizationContext | None, places: int
    ) -> SessionTransport:
        """Count the session and add it, without an await between the two. Raises `Unavailable` if there is no room."""
        transport = self._create_transport(session_id)
        principal = "" if requestor is None else requestor["client_id"]
        live = LiveSession(principal, places, partial(self._unload_session, session_id, transport))
        if not self._live_sessions.add(live):
            raise _no_room()
        self._live[transport] = live
        if requestor is not None:
            self._session_owners[session_id] = requestor
        self._server_instances[session_id] = transport
        if self._node_signals.has_other_nodes:
            self._drop_subscription(session_id)
            self._subscriptions[session_id] = subscription = ExitStack()
            on_change = partial(self._schedule_sync, session_id)
            subscription.enter_context(self._node_signals.subscribe(on_change, mcp_session_topic(session_id)))
        return transport

    def _unload_session(self, session_id: str, transport: SessionTransport) -> None:
        """Drop a session from memory and not from the store: its next request continues it."""
        self._unloaded.add(session_id)
        self._forget_session(session_id, transport)
        self._background_tasks.spawn(transport.terminate())
        log.debug("session.unloaded", extra={"endpoint": self._endpoint.path})

    async def _discard_session(self, session_id: str, transport: StreamableHTTPServerTransport) -> None:
        """Override the SDK's, which would forget the session also when that is in memory again, with another transport."""
        self._forget_session(session_id, transport)
        if not transport.is_terminated:
            with anyio.CancelScope(shield=True):
                await transport.terminate()

    def _forget_session(self, session_id: str, transport: StreamableHTTPServerTransport) -> None:
        if (live := self._live.pop(transport, None)) is not None:
            self._live_sessions.remove(live)
        if self._server_instances.get(session_id) is transport:
            del self._server_instances[session_id]
            self._session_owners.pop(session_id, None)
            self._drop_subscription(session_id)

    def _require_session_quota(self, principal: str) -> None:
        """Count the principal's sessions in memory, also those without `initialize`: 0.4 ms for ten thousand (measured)."""
        open_sessions = sum(owner["client_id"] == principal for owner in self._session_owners.values())
        if open_sessions >= mcp_sessions.SESSIONS_PER_PRINCIPAL_MAX + OPENING_SESSIONS_MAX:
            raise mcp_sessions.sessions_exceeded()

    async def extend_used_sessions(self) -> None:
        """Record every `EXTEND_SECONDS` which sessions were used, until the manager ends and cancels this."""
        try:
            while True:
                await self._clock.sleep(EXTEND_SECONDS)
                try:
                    await self.record_used_sessions()
                except StoreUnavailable:
                    log.debug("session.store_unavailable")
        finally:
            for session_id in list(self._subscriptions):
                self._drop_subscription(session_id)

    async def record_used_sessions(self) -> None:
        """Move the expiry of the sessions that were used since the last record, and drop those that ended elsewhere."""
        unloaded, self._unloaded = self._unloaded, set[str]()
        used = self._activity.list_used(self._server_instances.keys() | unloaded)
        try:
            ended = await self._sessions.extend_sessions(used)
        except StoreUnavailable:
            self._unloaded |= unloaded
            raise
        self._activity.mark_recorded(used)
        await self._discard_sessions(ended)
        for session_id in self._subscriptions.keys() - self._server_instances.keys():
            self._drop_subscription(session_id)


def _count_places(scope: Scope) -> int:
    """The places of a session that this `initialize` opens, or has changed."""
    match get_message(scope):
        case {"params": params}:
            return count_places(count_kept_bytes(params))
        case _:
            return count_places(0)


def _no_room() -> Unavailable:
    return Unavailable(
        "Too many sessions are in use at this service. Nothing was done, and no session has ended. Close streams that you no "
        "longer need, or send the request again later."
    )
