"""Events for servers made with FastMCP 4: `server.add_extension(events)`."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import NoReturn

from fastmcp.server.extensions import MethodBinding, ServerExtension

from ringback.extension.events.methods import ServedEventParams, install_handshake
from ringback.extension.events.served_events import ServedEvents
from ringback.protocol.mcp_events.names import EventMethod


class Events(ServedEvents, ServerExtension):
    """For FastMCP 4: `server.add_extension(events)`. The server's lifespan opens it."""

    _how_to_open = "Add them to the server that you run (server.add_extension), not to one that is mounted in another."

    def methods(self) -> Sequence[MethodBinding]:
        return [MethodBinding(str(method), ServedEventParams, self._methods.bind(method)) for method in EventMethod]

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        """FastMCP enters it with the lifespan of the server that runs."""
        install_handshake(self.server._mcp_server.middleware)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - FastMCP names no other way
        async with self:
            yield

    def tools(self) -> NoReturn:
        """The SDK's `MCPServer(extensions=…)` calls it first."""
        raise TypeError("For the SDK's MCPServer, import Events from ringback.extension.")
