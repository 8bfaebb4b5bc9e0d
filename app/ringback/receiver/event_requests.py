"""Requests of MCP Events, over whatever connection the application has."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from ringback.protocol.mcp_events.errors import read_error_name

if TYPE_CHECKING:
    from mcp import ClientSession

EventRequest = Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
"""Sends one request, `(method, params)`, and returns its result. Raises `EventRequestError` for an error response."""
METHOD_NOT_FOUND: Final = -32601
"""The server does not have this method: it offers no Events, or no polling."""


class EventRequestError(Exception):
    """The server has refused the request."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(code, message, data)
        self.code = code
        self.message = message
        self.data = data
        self.name: str | None = read_error_name(code, message)
        """Of an error of MCP Events, such as `NotFound`; None for other errors."""

    def __str__(self) -> str:
        return f"{self.message} ({self.code})"


def requests_of_session(session: "ClientSession") -> EventRequest:
    """Requests over a session of the MCP SDK: `requests_of_session(client.session)`. Needs `pip install "ringback[mcp]"`."""
    from mcp import MCPError  # noqa: PLC0415 - optional: the receiver needs no SDK
    from mcp_types import Request  # noqa: PLC0415 - the same
    from pydantic import BaseModel, ConfigDict  # noqa: PLC0415 - the same

    class AnyResult(BaseModel):
        """A result as it came: the SDK has no types for Events."""

        model_config = ConfigDict(extra="allow")

    async def send(method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        request = Request[dict[str, Any], str](method=method, params=dict(params))
        try:
            return (await session.send_request(request, AnyResult)).model_dump()
        except MCPError as error:
            raise EventRequestError(error.error.code, error.error.message, error.error.data) from error

    return send
