"""How a link is opened: the transport, the negotiation, or the rejoining of a session that is there already."""

import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, cast

import anyio
import mcp_types
from mcp import ClientSession, MCPError
from mcp.client.session import ClientRequestContext, IncomingMessage
from mcp.client.streamable_http import streamable_http_client
from pydantic import ValidationError

from ringback.domain.upstreams import Change, Listing, Profile
from ringback.notifier.configured_hosts import LookUp
from ringback.runner.child import Child
from ringback.runner.child_records import ChildRecords
from ringback.runner.config import Transport, UpstreamConfig
from ringback.runner.direct_posts import DirectPosts
from ringback.runner.dispatcher import LinkDispatcher
from ringback.runner.drivers.base import SessionName
from ringback.runner.failures import NotSent
from ringback.runner.faults import Faults
from ringback.runner.large_results import LargeResults
from ringback.runner.link import CLIENT_INFO, Link
from ringback.runner.pipe import stdio_pipe
from ringback.runner.session_transport import SessionTransport
from ringback.runner.tokens import Tokens
from ringback.runner.transport import EVENT_BYTES_MAX, SESSION_HEADER, failure_of, guarded, http_client

log = logging.getLogger(__name__)

NEGOTIATION_SECONDS: Final = 120.0
"""A stdio server may first be downloaded by its launcher (npx, uvx)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """How a link is opened, and what for."""

    probe: bool = True
    """Ask for the protocol of 2026-07-28 first."""
    own: bool = False
    """For one call only."""
    elicits: bool = False
    """Whoever started that call can answer questions: before 2026-07-28 this is told once, with the handshake."""
    rejoin: SessionName | None = None
    """A session that is there: nothing is negotiated."""
    tokens: Tokens | None = None
    """What authorises us, if the upstream is configured with an OAuth client."""
    mark: str
    """Differs from that of every other link."""
    look_up: LookUp
    faults: Faults
    records: ChildRecords


@asynccontextmanager
async def open_link(
    config: UpstreamConfig, opening: Opening, *, on_change: Callable[[Change], None]
) -> AsyncGenerator[Link]:
    """Connect and negotiate. Must be left in the task that entered it, because anyio's scopes must."""

    async def hand_on(message: IncomingMessage) -> None:
        if (change := _change_of(config.name, message)) is not None:
            on_change(change)

    async with AsyncExitStack() as stack:
        large = LargeResults()
        streams, transport, child, direct = await _enter_transport(stack, config, opening, large)
        dispatcher = LinkDispatcher(*streams, large=large, direct=direct)
        session = ClientSession(
            dispatcher=dispatcher,
            message_handler=hand_on,
            client_info=CLIENT_INFO,
            elicitation_callback=_ask_nobody if opening.elicits else None,
        )
        await stack.enter_async_context(session)
        if opening.rejoin is not None:
            _adopt(session, opening.rejoin)
        else:
            with anyio.fail_after(NEGOTIATION_SECONDS):
                await _negotiate(session, probe=opening.probe)
        profile = _profile_of(session, dispatcher.greeting)
        link = Link(
            session,
            dispatcher,
            profile=profile,
            transport=transport,
            child=child,
            passes_meta=config.passes_meta,
            own=opening.own,
            mark=opening.mark,
        )
        try:
            yield link
        finally:
            link.retire()


async def _enter_transport(
    stack: AsyncExitStack, config: UpstreamConfig, opening: Opening, large: LargeResults
) -> tuple[tuple[Any, Any], SessionTransport | None, Child | None, DirectPosts | None]:
    if config.transport is Transport.STDIO:
        streams, child = await stack.enter_async_context(
            stdio_pipe(config, faults=opening.faults, records=opening.records)
        )
        return streams, None, child, None
    session_id = None if opening.rejoin is None else opening.rejoin.session_id
    inner = guarded(config, opening.tokens, look_up=opening.look_up, faults=opening.faults, large=large)
    transport = SessionTransport(inner, rejoined=session_id)
    direct = DirectPosts(transport, config.url)
    client = http_client(config, direct, {} if session_id is None else {SESSION_HEADER: session_id})
    await stack.enter_async_context(client)
    direct.use(client)
    opened = streamable_http_client(config.url, http_client=client, max_sse_event_size=EVENT_BYTES_MAX)
    return await stack.enter_async_context(opened), transport, None, direct


async def _ask_nobody(
    context: ClientRequestContext,  # noqa: ARG001 - the SDK's names
    params: mcp_types.ElicitRequestParams,  # noqa: ARG001
) -> mcp_types.ErrorData:
    """Makes the SDK declare elicitation. Questions go to the call (`runner.dispatcher`), and there is none at this moment."""
    return mcp_types.ErrorData(code=mcp_types.INVALID_REQUEST, message="There is nobody to be asked now.")


def _adopt(session: ClientSession, name: SessionName) -> None:
    """Take up a session that another process negotiated. Of what it had agreed on, only the version is on the wire."""
    nobody = mcp_types.Implementation(name="", version="")
    session.adopt(
        mcp_types.InitializeResult(
            protocol_version=name.protocol_version, capabilities=mcp_types.ServerCapabilities(), server_info=nobody
        )
    )


async def _negotiate(session: ClientSession, *, probe: bool) -> None:
    """Modern if the upstream speaks it, else the handshake of before. An upstream that is away is no verdict on the era."""
    if probe:
        try:
            await session.discover()
        except MCPError as error:
            if isinstance(failure_of(error.error), NotSent):
                raise
        except (ValidationError, RuntimeError):
            log.debug("upstream.not_modern")  # it answered, with no version of the new era
        else:
            return
    try:
        await session.initialize()
    except MCPError as error:
        if error.code != mcp_types.UNSUPPORTED_PROTOCOL_VERSION:
            raise
        # It was slow to start: it took the probe that we gave up for its first message, and speaks the new era now.
        await session.discover()


def _profile_of(session: ClientSession, greeting: Mapping[str, Any]) -> Profile:
    """What the upstream said of itself; from its own words, because the SDK's models drop keys that they do not know."""
    meta: Mapping[str, Any] = greeting.get("_meta") or {}  # the SDK takes null for none
    stamp = meta.get(mcp_types.SERVER_INFO_META_KEY)
    return Profile(
        protocol_version=session.protocol_version or "",
        capabilities=greeting.get("capabilities", {}),
        instructions=greeting.get("instructions"),
        server_info=greeting.get("serverInfo") or (cast("dict[str, Any]", stamp) if isinstance(stamp, dict) else {}),
    )


def _change_of(upstream: str, message: IncomingMessage) -> Change | None:
    match message:
        case mcp_types.ToolListChangedNotification():
            return Change(upstream=upstream, listing=Listing.TOOLS)
        case mcp_types.ResourceListChangedNotification():
            return Change(upstream=upstream, listing=Listing.RESOURCES)
        case mcp_types.PromptListChangedNotification():
            return Change(upstream=upstream, listing=Listing.PROMPTS)
        case mcp_types.ResourceUpdatedNotification():
            return Change(upstream=upstream, uri=message.params.uri)
        case _:
            return None
