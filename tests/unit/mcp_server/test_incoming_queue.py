"""The messages of a session that wait for its dispatcher: kept until they are dispatched."""

from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types import JSONRPCNotification, JSONRPCRequest

from ringback.mcp_server.incoming_queue import IncomingQueue

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
