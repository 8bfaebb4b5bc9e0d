"""The messages of a session that wait for its dispatcher: kept until they are dispatched, and dropped when it has ended."""

import anyio
import pytest
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types import JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from ringback.mcp_server.message_queue import IncomingQueue

NOTIFICATION = JSONRPCNotification(jsonrpc="2.0", method="notifications/initialized")
REQUEST = JSONRPCRequest(jsonrpc="2.0", id=1, method="ping", params={"note": "large"})


async def test_a_message_is_emptied_once_the_next_one_is_awaited() -> None:
    queue = IncomingQueue()
    await queue.send(SessionMessage(REQUEST, ServerMessageMetadata(related_request_id=1)))
    received = await queue.receive()
    assert isinstance(received, SessionMessage)
    assert received.message is REQUEST
    await queue.send(SessionMessage(NOTIFICATION))
    await queue.receive()

    assert (received.message.model_dump().get("params"), received.metadata) == (None, None)


@pytest.mark.parametrize("message", [NOTIFICATION, JSONRPCResponse(jsonrpc="2.0", id=1, result={})])
async def test_a_message_without_a_response_is_dropped_when_the_session_has_ended(
    message: JSONRPCNotification | JSONRPCResponse,
) -> None:
    """The SDK had sent 202, and sent an error on the same connection after it: its client lost its next response."""
    queue = IncomingQueue()
    queue.close()
    await queue.send(SessionMessage(message))
    await queue.send(ValueError("not a message"))


async def test_a_request_learns_that_the_session_has_ended() -> None:
    queue = IncomingQueue()
    queue.close()
    with pytest.raises(anyio.ClosedResourceError):
        await queue.send(SessionMessage(REQUEST))
