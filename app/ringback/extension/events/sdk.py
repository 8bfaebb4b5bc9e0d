"""Events for servers made with the MCP SDK."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NoReturn

from mcp.server.extension import Extension, MethodBinding
from mcp.server.mcpserver import MCPServer

from ringback.extension.events.methods import ServedEventParams, install_handshake
from ringback.extension.events.served_events import ServedEvents
from ringback.protocol.mcp_events.names import EventMethod


class Events(ServedEvents, Extension):
    """For the SDK: `MCPServer("orders", extensions=[events], lifespan=events.lifespan)`."""

    _how_to_open = "Pass lifespan=events.lifespan to the server."

    def methods(self) -> Sequence[MethodBinding]:
        return [MethodBinding(str(method), ServedEventParams, self._methods.bind(method)) for method in EventMethod]

    @asynccontextmanager
    async def lifespan(self, server: MCPServer[Any]) -> AsyncGenerator[dict[str, Any]]:
        """For `MCPServer(lifespan=…)`. A lifespan of the server's own enters it: `async with events.lifespan(server)`."""
        install_handshake(server.middleware)
        async with self:
            yield {}

    @property
    def _server_ref(self) -> NoReturn:
        """FastMCP's `add_extension` reads it first."""
        raise TypeError("For a FastMCP server, import Events from ringback.extension.fastmcp.")
