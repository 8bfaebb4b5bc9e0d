"""Explicit cancellation of 2026-07-28 requests through `ringback mcp`.

    client ──notifications/cancelled──▶ bridge ──ringback/cancelRequest──▶ Ringback      the call is cancelled
                                              ──closes the stream────────▶ Ringback      the request ends

Over standard input and output, `notifications/cancelled` is how a client cancels a request (MCP 2026-07-28, Cancellation). Over
HTTP the protocol has no such message: the SDK's transport closes the stream, which Ringback takes for a lost client, and keeps
the call. So each tools/call gets a key, and a cancellation names it (`domain.cancel_keys`).
"""

import itertools
import secrets
from typing import Any, Final

import httpx2
from mcp.shared.inbound import MCP_METHOD_HEADER, MCP_PROTOCOL_VERSION_HEADER
from mcp.shared.jsonrpc_dispatcher import cancelled_request_id_from_params
from mcp.shared.message import ClientMessageMetadata, SessionMessage
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    PROTOCOL_VERSION_META_KEY,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from ringback.domain.cancel_keys import CANCEL_KEY_HEADER, CANCEL_REQUEST_METHOD

CANCEL_SECONDS: Final = 2.0
"""For sending a cancellation. Meanwhile the client's next messages wait; after that the stream is closed all the same."""
_PREFIX_BYTES: Final = 16
"""128 random bits make the keys of this process unguessable."""


class RequestCanceller:
    """Gives each tools/call of 2026-07-28 a key, and sends the client's cancellation with it."""

    def __init__(self, http: httpx2.AsyncClient, endpoint: str) -> None:
        """`http` responds also when the service does not (`stdio_bridge.JsonRpcErrorTransport`)."""
        self._http = http
        self._endpoint = endpoint
        self._prefix = secrets.token_hex(_PREFIX_BYTES)
        self._numbers = itertools.count(1)
        self._requests: dict[RequestId, tuple[str, str]] = {}
        """The key and the protocol version of each request without a response."""

    def add_key(self, message: SessionMessage) -> SessionMessage:
        """The message, with a key if it is a tools/call of 2026-07-28."""
        match message:
            case SessionMessage(
                message=JSONRPCRequest(id=request_id, method="tools/call"),
                metadata=ClientMessageMetadata(headers=dict() as headers),
            ) if (version := headers.get(MCP_PROTOCOL_VERSION_HEADER)) in MODERN_PROTOCOL_VERSIONS:
                key = f"{self._prefix}-{next(self._numbers)}"
                self._requests[request_id] = key, version
                return SessionMessage(
                    message.message, metadata=ClientMessageMetadata(headers={**headers, CANCEL_KEY_HEADER: key})
                )
            case _:
                return message

    def remove_answered(self, message: JSONRPCMessage) -> None:
        if isinstance(message, JSONRPCResponse | JSONRPCError) and message.id is not None:
            self._requests.pop(message.id, None)

    async def cancel_request(self, message: JSONRPCMessage) -> None:
        """Send the cancellation, if this message is one of a request with a key."""
        if not isinstance(message, JSONRPCNotification) or message.method != "notifications/cancelled":
            return
        request_id = cancelled_request_id_from_params(message.params)
        if request_id is not None and (request := self._requests.pop(request_id, None)) is not None:
            await self._send_cancellation(*request)

    async def _send_cancellation(self, key: str, version: str) -> None:
        meta: dict[str, Any] = {PROTOCOL_VERSION_META_KEY: version, CLIENT_CAPABILITIES_META_KEY: {}}
        await self._http.post(
            self._endpoint,
            json={"jsonrpc": "2.0", "id": key, "method": CANCEL_REQUEST_METHOD, "params": {"_meta": meta}},
            headers={
                "accept": "application/json, text/event-stream",
                MCP_PROTOCOL_VERSION_HEADER: version,
                MCP_METHOD_HEADER: CANCEL_REQUEST_METHOD,
                CANCEL_KEY_HEADER: key,
            },
            timeout=CANCEL_SECONDS,
        )
