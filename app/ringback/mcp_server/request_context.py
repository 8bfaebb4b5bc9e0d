"""One MCP request as handlers see it: its caller, endpoint, era, and the client's capabilities."""

import asyncio
from collections.abc import Mapping, MutableMapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Final, cast

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_REQUEST, ElicitationCapability, Implementation
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.requests import Request

from ringback.domain.principal import Caller
from ringback.mcp_server.event_ids import StreamRequest
from ringback.mcp_server.http_options import parse_wait_parameter

TASKS_EXTENSION: Final = "io.modelcontextprotocol/tasks"
"""The modern tasks extension; clients declare it with every request."""
REQUEST_CLOSED_KEY: Final = "ringback.request_closed"
"""The key of `RequestContext.request_closed` in the ASGI scope's state."""
REQUEST_CLOSED_AT_KEY: Final = "ringback.request_closed_at"
"""The key of `RequestContext.request_closed_at` in the ASGI scope's state."""
MCP_SESSION_ID_KEY: Final = "ringback.mcp_session_id"
"""The key of `RequestContext.mcp_session_id`."""
IS_REPLAYED_KEY: Final = "ringback.is_replayed"
"""The key of `RequestContext.is_replayed`."""
STREAM_REQUEST_KEY: Final = "ringback.stream_request"
"""The key of `RequestContext.stream_request`."""
IS_RESUMED_KEY: Final = "ringback.is_resumed"
"""The key of `RequestContext.is_resumed`."""
COMMENTS_OMITTED_KEY: Final = "ringback.comments_omitted"
"""Present in the ASGI scope's state if the event stream of the response has no comments. The SDK sends one each 15 s."""
SESSION_REFUSED_KEY: Final = "ringback.session_refused"
"""Present in the ASGI scope's state if the `initialize` of this request failed, or if its session could not be stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """`/mcp/{upstream}` re-exports one upstream under its own names; `/mcp` joins all upstreams that the caller may use."""

    upstream: str | None

    @property
    def path(self) -> str:
        return "/mcp" if self.upstream is None else f"/mcp/{self.upstream}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
    caller: Caller
    endpoint: Endpoint
    sdk_context: ServerRequestContext[Any, Any] = field(repr=False)

    @property
    def is_modern(self) -> bool:
        """2026-07-28: no sessions; the client declares its capabilities with each request."""
        return self.sdk_context.protocol_version in MODERN_PROTOCOL_VERSIONS

    @property
    def meta(self) -> Mapping[str, Any]:
        """The request's `_meta` in wire names, except the progress token, which the SDK renames to `progress_token`."""
        return self.sdk_context.meta or {}

    @property
    def request_closed(self) -> asyncio.Event:
        """Set when the request is over or its client has disconnected; in legacy sessions the only sign of a disconnect."""
        event: asyncio.Event = self.asgi_state[REQUEST_CLOSED_KEY]
        return event

    @property
    def request_closed_at(self) -> float | None:
        """The monotonic time at which `request_closed` was set; None before."""
        return self.asgi_state.get(REQUEST_CLOSED_AT_KEY)

    def read_endpoint_wait_seconds(self) -> float | None:
        """The `?wait=` of the URL that the client calls; raises `InvalidRequest` if it is no valid wait."""
        return parse_wait_parameter(self.query_string)

    @property
    def asgi_state(self) -> MutableMapping[str, Any]:
        """The state of the HTTP request that carries this MCP request."""
        state: MutableMapping[str, Any] = cast("Request", self.sdk_context.request).scope["state"]
        return state

    @property
    def http_headers(self) -> Sequence[tuple[bytes, bytes]]:
        """The headers of the HTTP request that carries this MCP request, with names in lower case."""
        return [] if self.sdk_context.request is None else self.sdk_context.request.scope.get("headers", [])

    @property
    def query_string(self) -> bytes:
        """The query of the HTTP request's URL, as it was sent."""
        return b"" if self.sdk_context.request is None else self.sdk_context.request.scope.get("query_string", b"")

    @property
    def mcp_session_id(self) -> str:
        """The session id of a legacy client, also for the `initialize` that opens the session; empty for a modern one."""
        session_id: str = self.asgi_state.get(MCP_SESSION_ID_KEY, "")
        return session_id

    @property
    def is_replayed(self) -> bool:
        """Whether a stored session repeats this message in this process. Its client waits for no response to it."""
        return IS_REPLAYED_KEY in self.asgi_state

    @property
    def stream_request(self) -> StreamRequest | None:
        """A legacy request as the ids of its events describe it; None for a modern request, and for an odd request id."""
        return self.asgi_state.get(STREAM_REQUEST_KEY)

    @property
    def is_resumed(self) -> bool:
        """Whether the client sent this request earlier, lost its stream, and now waits for the response again."""
        return IS_RESUMED_KEY in self.asgi_state

    @property
    def request_id(self) -> int | str | None:
        """The id of the request as the client knows it."""
        if self.is_resumed and self.stream_request is not None:
            return self.stream_request.request_id
        return self.sdk_context.request_id

    def require_request_id(self) -> int | str:
        """The same, for a request and not a notification."""
        if (request_id := self.request_id) is None:
            raise MCPError(INVALID_REQUEST, "This method is a request: send an id.")
        return request_id

    @property
    def raw_params(self) -> Mapping[str, Any]:
        """The params as the client sent them."""
        return self.sdk_context.params or {}

    @property
    def client_name(self) -> str:
        """The name in the `clientInfo` of the handshake or of this modern request; empty if it has none."""
        client = self._client
        return "" if client is None else client.name

    @property
    def client_version(self) -> str:
        client = self._client
        return "" if client is None else client.version

    @property
    def _client(self) -> Implementation | None:
        params = self.sdk_context.session.client_params
        return None if params is None else params.client_info

    def supports_elicitation(self, modes: AbstractSet[str]) -> bool:
        """Whether the client supports elicitation in all these modes; `{}` has always meant forms."""
        declared = self._elicitation
        if declared is None:
            return False
        supported = {mode for mode, value in (("form", declared.form), ("url", declared.url)) if value is not None}
        return modes <= (supported or {"form"})

    @property
    def elicitation_capability(self) -> Mapping[str, Any]:
        """The elicitation capability in wire form, as this modern request declares it; empty if it does not."""
        if not self.is_modern or self._elicitation is None:
            return {}
        return {"elicitation": self._elicitation.model_dump(by_alias=True, mode="json", exclude_none=True)}

    @property
    def _elicitation(self) -> ElicitationCapability | None:
        capabilities = self.sdk_context.session.client_capabilities
        return None if capabilities is None else capabilities.elicitation

    def declares_extension(self, extension: str) -> bool:
        """Whether the client declares this extension: in this request, or in the handshake of a legacy session."""
        capabilities = self.sdk_context.session.client_capabilities
        return capabilities is not None and extension in (capabilities.extensions or {})
