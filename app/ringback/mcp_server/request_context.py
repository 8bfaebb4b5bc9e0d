"""One MCP request as our handlers see it: who asks, through which endpoint, in which era, and what their client can do."""

import asyncio
from collections.abc import Mapping, MutableMapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Final, cast

from mcp.server.context import ServerRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.requests import Request

from ringback.domain.principal import Caller

TASKS_EXTENSION: Final = "io.modelcontextprotocol/tasks"
"""The extension of 2026-07-28, as clients declare it on every request."""
REQUEST_CLOSED_KEY: Final = "ringback.left"
"""Where the ASGI scope's state keeps `Exchange.left`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """`/mcp/{upstream}` passes one upstream on with unchanged names; `/mcp` joins all that the caller may see."""

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
        """2026-07-28 and later: no sessions, and what the client can do is told with each request."""
        return self.sdk_context.protocol_version in MODERN_PROTOCOL_VERSIONS

    @property
    def meta(self) -> Mapping[str, Any]:
        """The request's `_meta` by its names on the wire, but for the progress token (`progress_token`: the SDK's spelling)."""
        return self.sdk_context.meta or {}

    @property
    def request_closed(self) -> asyncio.Event:
        """Set once this request is over or its client has gone; before 2026-07-28 nothing else tells a handler of that."""
        event: asyncio.Event = self.asgi_state[REQUEST_CLOSED_KEY]
        return event

    @property
    def asgi_state(self) -> MutableMapping[str, Any]:
        """What belongs to the HTTP request that brought this one, and to its answer."""
        state: MutableMapping[str, Any] = cast("Request", self.sdk_context.request).scope["state"]
        return state

    @property
    def mcp_session_id(self) -> str:
        """Of a client of before 2026-07-28; empty for any other."""
        request = self.sdk_context.request
        return "" if request is None else request.headers.get("mcp-session-id", "")

    def supports_elicitation(self, modes: AbstractSet[str]) -> bool:
        """Whether the client can put questions in all these modes to its user; `{}` has always meant forms."""
        capabilities = self.sdk_context.session.client_capabilities
        if capabilities is None or capabilities.elicitation is None:
            return False
        declared = capabilities.elicitation
        supported = {
            mode
            for mode, mode_capability in (("form", declared.form), ("url", declared.url))
            if mode_capability is not None
        }
        return modes <= (supported or {"form"})

    @property
    def elicitation_capability(self) -> Mapping[str, Any]:
        """The capability to be asked, as the client declared it with this very request."""
        capabilities = self.sdk_context.session.client_capabilities
        if not self.is_modern or capabilities is None or capabilities.elicitation is None:
            return {}
        return {"elicitation": capabilities.elicitation.model_dump(by_alias=True, mode="json", exclude_none=True)}

    def declares_extension(self, extension: str) -> bool:
        """Whether the client speaks this extension: said with this request, or before 2026-07-28 with the handshake."""
        capabilities = self.sdk_context.session.client_capabilities
        return capabilities is not None and extension in (capabilities.extensions or {})
