"""Messages of MCP clients whose URL lacks `/mcp`. Such a client shows the message of a JSON-RPC error, and no other body."""

from typing import Any, Final, cast

from starlette.requests import ClientDisconnect, Request

from ringback.domain import jsontext
from ringback.schemas.jsonrpc_errors import MESSAGE_ID_KEY

READ_BYTES_MAX: Final = 65536
"""Of a body at a path that takes none. The first message of a client has less."""
_MCP_MEDIA_TYPES: Final = ("application/json", "text/event-stream")
"""A client of streamable HTTP accepts both."""


async def is_mcp_message(request: Request) -> bool:
    """Whether the request has a JSON-RPC message, or accepts what only MCP clients do. Keeps the id of the message."""
    if request.method != "POST":
        return False
    message = await _read_message(request)
    message_id = message.get("id")
    if isinstance(message_id, int | str) and not isinstance(message_id, bool):
        request.scope.setdefault("state", {})[MESSAGE_ID_KEY] = message_id
    accepted = request.headers.get("accept", "")
    return message.get("jsonrpc") == "2.0" or all(each in accepted for each in _MCP_MEDIA_TYPES)


async def _read_message(request: Request) -> dict[str, Any]:
    """The JSON object in the body; empty without one, and if it is too large."""
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > READ_BYTES_MAX:
                return {}
        message: object = jsontext.loads(bytes(body))
    except (ValueError, ClientDisconnect):
        return {}
    return cast("dict[str, Any]", message) if isinstance(message, dict) else {}
