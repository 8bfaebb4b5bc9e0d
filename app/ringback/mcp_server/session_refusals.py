"""What a session manager refuses before the SDK sees it: the errors of the SDK have no id and do not say what to do.

an unknown protocol version in the header      400, with the versions that are served
no session, and no initialize                  400
an unknown session, or one of another caller   404
"""

from http import HTTPStatus
from typing import Any, Final, cast

from mcp.server.streamable_http import MCP_SESSION_ID_HEADER
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from starlette.datastructures import MutableHeaders
from starlette.types import Message, Scope, Send

from ringback.domain.errors import MalformedMessage, MissingSession, UnknownSession
from ringback.mcp_server.incoming_messages import get_message
from ringback.mcp_server.session_transport import OPENING_METHOD

_SESSION_HEADER: Final = "Mcp-Session-Id"
_SESSION_METHODS: Final = frozenset({"POST", "GET", "DELETE"})


def require_known_version(version: str, scope: Scope) -> None:
    """Raise `MalformedMessage` for a version that is not served, unless the request says itself that it is a modern one.

    The SDK refuses that one with the versions that it serves. From any other request it would ask for the envelope of a modern
    one, also from a client that is in a session.
    """
    if version in MODERN_PROTOCOL_VERSIONS:
        return
    match get_message(scope):
        case {"params": {"_meta": {"io.modelcontextprotocol/protocolVersion": _}}}:
            return
        case _:
            versions = ", ".join(sorted({*HANDSHAKE_PROTOCOL_VERSIONS, *MODERN_PROTOCOL_VERSIONS}))
            raise MalformedMessage(
                f"The header MCP-Protocol-Version names no protocol version that is served here: {versions}. In a session, "
                "send the one that the response to 'initialize' names."
            )


def require_opening_request(scope: Scope) -> None:
    """Raise `MissingSession` for what opens no session. The SDK would open one for it, refuse it, and end the session."""
    if scope["method"] == "POST" and is_opening_message(get_message(scope)):
        return
    if scope["method"] in _SESSION_METHODS:
        raise MissingSession(
            f"Missing session ID. Send the header {_SESSION_HEADER} with the id from the response to 'initialize', or send "
            "'initialize' first. A client of 2026-07-28 needs no session: it sends MCP-Protocol-Version: 2026-07-28."
        )


def is_opening_message(message: Any) -> bool:
    return isinstance(message, dict) and cast("dict[str, Any]", message).get("method") == OPENING_METHOD


def unknown_session() -> UnknownSession:
    """The same for a session that has ended and for one of another caller."""
    return UnknownSession(
        "Session not found. It has ended, or it belongs to another API key or URL. Send 'initialize' without "
        f"{_SESSION_HEADER} to open another one."
    )


def omit_session_of_refusal(send: Send) -> Send:
    """Send no session id with a refused request.

    The SDK names a new session in each response to a request without one, and drops that session again after a refusal. Some
    clients (AI SDK 5) open a stream while they initialize, and take the id of whichever response arrives last.
    """

    async def send_without_session(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] >= HTTPStatus.BAD_REQUEST:
            del MutableHeaders(scope=message)[MCP_SESSION_ID_HEADER]
        await send(message)

    return send_without_session
