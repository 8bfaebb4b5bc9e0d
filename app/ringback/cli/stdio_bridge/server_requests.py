"""Requests of the service to the client, such as elicitation/create.

    service ──id 0──▶ expose_request ──id 7──▶ client
            ◀─id 0─── resolve_answer ◀─id 7──

A service that has restarted counts its request ids from the beginning. Under the bridge's own ids a late answer to an earlier
question cannot answer a new one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse, RequestId

CANCELLED_METHOD: Final = "notifications/cancelled"


@dataclass(frozen=True, slots=True)
class _OpenRequest:
    service_id: RequestId
    stream: object


class ServerRequests:
    def __init__(self) -> None:
        self._open: dict[RequestId, _OpenRequest] = {}
        self._ids = count(1)

    def expose_request(self, request: JSONRPCRequest, *, stream: object) -> JSONRPCRequest:
        """The request for the client. `stream` identifies the response stream on which it came."""
        client_id = next(self._ids)
        self._open[client_id] = _OpenRequest(request.id, stream)
        return request.model_copy(update={"id": client_id})

    def resolve_answer(self, answer: JSONRPCResponse | JSONRPCError) -> JSONRPCResponse | JSONRPCError | None:
        """The client's answer for the service; None if the request is no longer open."""
        opened = None if answer.id is None else self._open.pop(answer.id, None)
        return None if opened is None else answer.model_copy(update={"id": opened.service_id})

    def expose_cancellation(self, notification: JSONRPCNotification, *, stream: object) -> JSONRPCNotification | None:
        """The service's cancellation of one of its requests, for the client; None if it is not open."""
        params: dict[str, Any] = notification.params or {}
        for client_id, opened in self._open.items():
            if opened == _OpenRequest(params.get("requestId", ""), stream):
                del self._open[client_id]
                return notification.model_copy(update={"params": {**params, "requestId": client_id}})
        return None

    def withdraw_requests(self, stream: object) -> Sequence[JSONRPCNotification]:
        """Close the open requests of a stream that has ended; return the cancellations for the client."""
        client_ids = [client_id for client_id, opened in self._open.items() if opened.stream is stream]
        for client_id in client_ids:
            del self._open[client_id]
        return [
            JSONRPCNotification(
                jsonrpc="2.0",
                method=CANCELLED_METHOD,
                params={"requestId": client_id, "reason": "The connection on which this was asked has ended."},
            )
            for client_id in client_ids
        ]
