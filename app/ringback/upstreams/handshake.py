"""Opens a session: enters the transport, then negotiates the protocol or rejoins an existing legacy session."""

import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, cast

import anyio
import mcp_types
from mcp import ClientSession, MCPError
from mcp.client.session import ClientRequestContext, IncomingMessage
from mcp.client.streamable_http import streamable_http_client
from mcp_types import RequestId
from pydantic import ValidationError

from ringback.domain.upstreams import Listing, UpstreamChange, UpstreamProfile
from ringback.notifier.configured_hosts import LookUp
from ringback.notifier.http.authorities import USUAL_AUTHORITIES, TrustedAuthorities
from ringback.protocol.errors import (
    RequestFailed,
    RequestNotSent,
    ResponseLost,
    UpstreamError,
    UpstreamServerError,
    UpstreamUnavailable,
)
from ringback.protocol.legacy_session_transport import LegacySessionTransport
from ringback.protocol.sessions import SESSION_HEADER, LegacySessionId
from ringback.protocol.transport_errors import EVENT_BYTES_MAX, to_request_error
from ringback.upstreams.config import UpstreamConfig, UpstreamTransport
from ringback.upstreams.faults import FaultCounter
from ringback.upstreams.instances import InstanceIds
from ringback.upstreams.oauth.token_source import TokenSource
from ringback.upstreams.session import CLIENT_INFO, UpstreamSession
from ringback.upstreams.session_dispatcher import SessionDispatcher
from ringback.upstreams.transports.child_process import ChildProcess
from ringback.upstreams.transports.child_records import ChildRecords
from ringback.upstreams.transports.direct_posts import DirectPosts
from ringback.upstreams.transports.guarded_http import make_guarded_transport, make_http_client
from ringback.upstreams.transports.large_results import LargeResults
from ringback.upstreams.transports.paced_streams import PacedStreams
from ringback.upstreams.transports.stdio import open_stdio

log = logging.getLogger(__name__)

HANDSHAKE_TIMEOUT_SECONDS: Final = 120.0
"""Long, because the launcher of a stdio server (npx, uvx) may download it first."""
LISTEN_TIMEOUT_SECONDS: Final = 1.0
"""How long a session that accepts elicitations waits for its stream for messages outside requests. Servers drop an elicitation
that they send before the stream is there. A server without such a stream refuses it at once; a longer wait would only help
servers that begin their response late."""


class ModernProbe(Enum):
    """What a handshake does about the protocol of 2026-07-28."""

    SKIP = auto()
    """It begins with the legacy handshake."""
    TRY = auto()
    """A legacy handshake follows if the upstream does not respond to the probe in time, or not with a modern version."""
    EXPECT = auto()
    """As `TRY`, but the handshake fails if the upstream does not respond or fails itself: it used this protocol before, and is
    perhaps busy or being restarted. Most servers speak both protocols, and a call that has begun in one cannot go on in the
    other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """The options of one session."""

    probe: ModernProbe = ModernProbe.TRY
    is_dedicated: bool = False
    """Whether the session serves only one call."""
    accepts_elicitation: bool = False
    """Whether calls of this session can answer elicitations. Legacy declares this in the handshake."""
    awaits_stream: bool = True
    """Whether a session that accepts elicitations is opened with its stream for messages outside requests."""
    rejoined_session: LegacySessionId | None = None
    """An existing session to rejoin without negotiation."""
    token_source: TokenSource | None = None
    """Provides access tokens; None if the configuration has all credentials."""
    request_id_prefix: str
    """Unique for each session."""
    look_up: LookUp
    authorities: TrustedAuthorities = USUAL_AUTHORITIES
    faults: FaultCounter
    child_records: ChildRecords
    instances: InstanceIds
    """Refuses an upstream that leads back to this service."""


@asynccontextmanager
async def open_session(
    config: UpstreamConfig, options: SessionOptions, *, on_change: Callable[[UpstreamChange], None]
) -> AsyncGenerator[UpstreamSession]:
    """Connect and negotiate. Enter and leave it in one task, as the cancel scopes of anyio require."""
    async with AsyncExitStack() as stack:
        large_results, paced_streams, child_requests = LargeResults(), PacedStreams(), set[RequestId]()
        streams, transport, child, direct = await _enter_transport(
            stack, config, options, large_results, paced_streams, child_requests
        )
        dispatcher = SessionDispatcher(
            *streams,
            large_results=large_results,
            paced_streams=paced_streams,
            direct=direct,
            child_requests=child_requests,
        )
        dispatcher.on_event_types_changed = lambda: on_change(
            UpstreamChange(upstream=config.name, listing=Listing.EVENTS)
        )
        session = await stack.enter_async_context(_make_session(config.name, dispatcher, options, on_change))
        await _begin_session(session, options, transport)
        stack.enter_context(options.instances.session_to(config.name, dispatcher.handshake_result))
        profile = _make_profile(session, dispatcher.handshake_result)
        upstream_session = UpstreamSession(
            session,
            dispatcher,
            profile=profile,
            transport=transport,
            child=child,
            forwards_meta_key=config.forwards_meta_key,
            is_dedicated=options.is_dedicated,
            request_id_prefix=options.request_id_prefix,
            upstream=config.name,
        )
        upstream_session.check_list = options.instances.require_elsewhere
        try:
            yield upstream_session
        finally:
            upstream_session.close_to_new_requests()


async def _enter_transport(
    stack: AsyncExitStack,
    config: UpstreamConfig,
    options: SessionOptions,
    large_results: LargeResults,
    paced_streams: PacedStreams,
    child_requests: set[RequestId],
) -> tuple[tuple[Any, Any], LegacySessionTransport | None, ChildProcess | None, DirectPosts | None]:
    if config.transport is UpstreamTransport.STDIO:
        streams, child = await stack.enter_async_context(
            open_stdio(
                config, faults=options.faults, child_records=options.child_records, child_requests=child_requests
            )
        )
        return streams, None, child, None
    session_id = None if options.rejoined_session is None else options.rejoined_session.session_id
    inner = make_guarded_transport(
        config,
        options.token_source,
        look_up=options.look_up,
        authorities=options.authorities,
        faults=options.faults,
        large_results=large_results,
        paced_streams=paced_streams,
    )
    transport = LegacySessionTransport(inner, rejoined=session_id)
    direct = DirectPosts(transport, config.url)
    client = make_http_client(config, direct, {} if session_id is None else {SESSION_HEADER: session_id})
    await stack.enter_async_context(client)
    direct.use_client(client)
    opened = streamable_http_client(config.url, http_client=client, max_sse_event_size=EVENT_BYTES_MAX)
    return await stack.enter_async_context(opened), transport, None, direct


def _make_session(
    upstream: str, dispatcher: SessionDispatcher, options: SessionOptions, on_change: Callable[[UpstreamChange], None]
) -> ClientSession:
    async def on_message(message: IncomingMessage) -> None:
        if (change := _parse_change(upstream, message)) is not None:
            on_change(change)

    return ClientSession(
        dispatcher=dispatcher,
        message_handler=on_message,
        client_info=CLIENT_INFO,
        elicitation_callback=_reject_elicitation if options.accepts_elicitation else None,
    )


async def _begin_session(
    session: ClientSession, options: SessionOptions, transport: LegacySessionTransport | None
) -> None:
    """Rejoin the existing session, or negotiate one within `HANDSHAKE_TIMEOUT_SECONDS`."""
    if options.rejoined_session is not None:
        _rejoin_session(session, options.rejoined_session)
        return
    with anyio.fail_after(HANDSHAKE_TIMEOUT_SECONDS):
        await _negotiate(session, options.probe)
        if options.accepts_elicitation and options.awaits_stream and transport is not None:
            await _wait_for_stream(transport)


async def _reject_elicitation(
    context: ClientRequestContext,  # noqa: ARG001 - the SDK's names
    params: mcp_types.ElicitRequestParams,  # noqa: ARG001 - as above
) -> mcp_types.ErrorData:
    """Makes the SDK declare elicitation. `SessionDispatcher` handles every elicitation before it gets here."""
    return mcp_types.ErrorData(code=mcp_types.INVALID_REQUEST, message="No call accepts an elicitation now.")


def _rejoin_session(session: ClientSession, session_id: LegacySessionId) -> None:
    """Adopt a session that another connection negotiated. Requests only need its protocol version."""
    unknown_server = mcp_types.Implementation(name="", version="")
    session.adopt(
        mcp_types.InitializeResult(
            protocol_version=session_id.protocol_version,
            capabilities=mcp_types.ServerCapabilities(),
            server_info=unknown_server,
        )
    )


async def _negotiate(session: ClientSession, probe: ModernProbe) -> None:
    """Use the modern protocol if the upstream supports it, else the legacy handshake. A request that was not sent is raised."""
    if probe is not ModernProbe.SKIP:
        try:
            await session.discover()
        except MCPError as error:
            failure = to_request_error(error.error)
            if isinstance(failure, RequestNotSent):
                raise
            if probe is ModernProbe.EXPECT and _is_failing(failure):
                raise
            if probe is ModernProbe.EXPECT and error.code == mcp_types.REQUEST_TIMEOUT:
                raise TimeoutError from error
        except (ValidationError, RuntimeError):
            log.debug("upstream.not_modern")  # it responded without a modern version
        else:
            return
    try:
        await session.initialize()
    except MCPError as error:
        if error.code != mcp_types.UNSUPPORTED_PROTOCOL_VERSION:
            raise
        # A slow start: the upstream took the abandoned probe for its first message and now uses the modern protocol.
        await session.discover()


def _is_failing(failure: RequestFailed) -> bool:
    """Whether the upstream has failed to respond to the probe, and has not said that it does not know it."""
    if isinstance(failure, UpstreamError):
        return failure.error.get("code") == mcp_types.INTERNAL_ERROR
    return isinstance(failure, ResponseLost | UpstreamServerError | UpstreamUnavailable)


async def _wait_for_stream(transport: LegacySessionTransport) -> None:
    if transport.in_session:
        with anyio.move_on_after(LISTEN_TIMEOUT_SECONDS):
            await transport.listening.wait()


def _make_profile(session: ClientSession, handshake_result: Mapping[str, Any]) -> UpstreamProfile:
    """The profile from the raw handshake result, because the SDK's models drop unknown keys."""
    meta: Mapping[str, Any] = handshake_result.get("_meta") or {}  # null counts as absent, as in the SDK
    stamp = meta.get(mcp_types.SERVER_INFO_META_KEY)
    return UpstreamProfile(
        protocol_version=session.protocol_version or "",
        capabilities=handshake_result.get("capabilities", {}),
        instructions=handshake_result.get("instructions"),
        server_info=handshake_result.get("serverInfo")
        or (cast("dict[str, Any]", stamp) if isinstance(stamp, dict) else {}),
    )


def _parse_change(upstream: str, message: IncomingMessage) -> UpstreamChange | None:
    match message:
        case mcp_types.ToolListChangedNotification():
            return UpstreamChange(upstream=upstream, listing=Listing.TOOLS)
        case mcp_types.ResourceListChangedNotification():
            return UpstreamChange(upstream=upstream, listing=Listing.RESOURCES)
        case mcp_types.PromptListChangedNotification():
            return UpstreamChange(upstream=upstream, listing=Listing.PROMPTS)
        case mcp_types.ResourceUpdatedNotification():
            return UpstreamChange(upstream=upstream, uri=message.params.uri)
        case _:
            return None
