"""The parts of server-sent events: the data of one, its type, and events of ours. Lines are without their ends."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Final

import httpx2
from mcp.shared.dispatcher import coerce_request_id
from mcp_types import JSONRPCError, JSONRPCMessage, JSONRPCResponse, RequestId

from ringback.domain import jsontext
from ringback.protocol.transport_errors import TransportErrorCode, make_transport_error

CANCELLED: Final = "The request was cancelled."
"""In an error that no caller receives."""


def answers_another_request(message: JSONRPCMessage, request_id: RequestId | None) -> bool:
    """Whether this is the response to another request than this one. An error without an id may be the response to any."""
    match message:
        case JSONRPCResponse(id=int() | str() as own_id) | JSONRPCError(id=int() | str() as own_id):
            return request_id is not None and coerce_request_id(own_id) != coerce_request_id(request_id)
        case _:
            return False


def cancelled_response() -> httpx2.Response:
    """A response that ends a request that no caller waits for."""
    return httpx2.Response(
        HTTPStatus.OK,
        headers={"content-type": "text/event-stream"},
        content=encode_error_event(TransportErrorCode.RESPONSE_LOST, CANCELLED),
    )


def encode_error_event(code: TransportErrorCode, why: str) -> bytes:
    return b"data: " + jsontext.dumps(make_transport_error(code, why)) + b"\n\n"


def join_data(lines: Sequence[bytes]) -> bytes:
    return b"\n".join(line[5:].strip() for line in lines if line.startswith(b"data:"))


def is_other_event_type(line: bytes) -> bool:
    """Whether the line gives the event a type other than `message`."""
    return line.startswith(b"event:") and line[6:].strip() not in {b"message", b""}


def encode_message(message: JSONRPCMessage) -> bytes:
    return message.model_dump_json(by_alias=True, exclude_unset=True).encode()


def replace_data(lines: list[bytes], data: bytes) -> bytes:
    rest = [line for line in lines if line and not line.startswith(b"data:")]
    return b"\n".join([*rest, b"data: " + data.replace(b"\n", b"\ndata: ")]) + b"\n\n"
