"""A client's events/stream, which may take several requests: a lost stream continues at the cursor of its last frame.

The client sees one stream: `active` once, and again only if events are missing; and its own request id in every frame.
"""

from typing import Any, Final

from mcp_types import JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from ringback.protocol.mcp_events.names import SUBSCRIPTION_ID_META_KEY, EventMethod, EventNotification

STREAM_METHOD: Final = str(EventMethod.STREAM)


class EventStreamPosition:
    def __init__(self, request: JSONRPCRequest) -> None:
        self._request_id = request.id
        self._cursor: str | None = None
        self._is_active = False
        """Whether the client has its first `active`."""

    def continue_request(self, request: JSONRPCRequest) -> JSONRPCRequest:
        """The request with the cursor of the last frame."""
        if self._cursor is None:
            return request
        return request.model_copy(update={"params": {**(request.params or {}), "cursor": self._cursor}})

    def adapt_frame(self, frame: JSONRPCNotification) -> JSONRPCNotification | None:
        """The frame for the client; None if the client needs no such frame."""
        params = frame.params or {}
        if isinstance(cursor := params.get("cursor"), str):
            self._cursor = cursor
        if frame.method == EventNotification.ACTIVE:
            is_repeated, self._is_active = self._is_active, True
            if is_repeated and not params.get("truncated"):
                return None
        return frame.model_copy(update={"params": self._with_request_id(params)})

    def adapt_response(self, response: JSONRPCResponse) -> JSONRPCResponse:
        return response.model_copy(update={"result": self._with_request_id(response.result)})

    def _with_request_id(self, message: dict[str, Any]) -> dict[str, Any]:
        return {**message, "_meta": {**message.get("_meta", {}), SUBSCRIPTION_ID_META_KEY: self._request_id}}
