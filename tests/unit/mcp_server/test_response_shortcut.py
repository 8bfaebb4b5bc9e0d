"""A response of a legacy session goes straight to the stream of its request, but overtakes no other message of the request."""

from typing import Any, Final

import anyio
import pytest
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types import ErrorData, JSONRPCError, JSONRPCNotification, JSONRPCResponse

from ringback.mcp_server.response_shortcut import NO_MESSAGE, DeliverResponse, ResponseShortcut

RESPONSE: Final = SessionMessage(JSONRPCResponse(jsonrpc="2.0", id=7, result={}))
ERROR: Final = SessionMessage(JSONRPCError(jsonrpc="2.0", id=7, error=ErrorData(code=-32603, message="broken")))


def notification(related_request_id: int | str | None) -> SessionMessage:
    message = JSONRPCNotification(jsonrpc="2.0", method="notifications/message", params={})
    metadata = None if related_request_id is None else ServerMessageMetadata(related_request_id=related_request_id)
    return SessionMessage(message, metadata)


class Session:
    """The requests that wait for a response, and what the router and they get."""

    def __init__(self, *request_ids: str) -> None:
        self.delivered: list[Any] = []
        self.deliveries: dict[str, DeliverResponse] = dict.fromkeys(request_ids, self.deliver)
        self.replaced_ids: set[int | str] = set()

    async def deliver(self, response: JSONRPCResponse | JSONRPCError) -> None:
        self.delivered.append(response)

    async def write(self, *messages: SessionMessage) -> list[Any]:
        """What the router gets of these messages."""
        router, routed = anyio.create_memory_object_stream[SessionMessage](2 * len(messages))
        shortcut = ResponseShortcut(router, self.deliveries, is_replaced=self.replaced_ids.__contains__)
        async with routed, shortcut:
            for message in messages:
                await shortcut.send(message)
            return [routed.receive_nowait() for _ in range(routed.statistics().current_buffer_used)]


@pytest.mark.parametrize("response", [RESPONSE, ERROR], ids=["result", "error"])
async def test_a_response_goes_straight_to_its_request(response: SessionMessage) -> None:
    session = Session("7")

    assert await session.write(response) == []
    assert session.delivered == [response.message]


@pytest.mark.parametrize("related", [7, "7"], ids=["integer", "text"])
async def test_a_response_does_not_overtake_a_message_of_its_request(related: int | str) -> None:
    session, first = Session("7"), notification(related)

    assert await session.write(first, RESPONSE) == [first, RESPONSE, NO_MESSAGE]
    assert session.delivered == []


@pytest.mark.parametrize("related", [8, None])
async def test_messages_of_others_hold_up_no_response(related: int | None) -> None:
    session, other = Session("7", "8"), notification(related)

    assert await session.write(other, RESPONSE) == [other]
    assert session.delivered == [RESPONSE.message]


async def test_a_response_for_which_no_request_waits_goes_to_the_router() -> None:
    """The router holds its last message, so another one follows: an idle session would keep a large result."""
    assert await Session("8").write(RESPONSE) == [RESPONSE, NO_MESSAGE]


async def test_messages_of_a_request_whose_id_a_later_one_has_reach_nobody() -> None:
    session = Session("7")
    session.replaced_ids.add(7)

    assert await session.write(notification(7), RESPONSE, ERROR) == []
    assert (session.delivered, list(session.deliveries)) == ([], ["7"])


async def test_the_end_of_the_dispatcher_closes_the_router() -> None:
    router, routed = anyio.create_memory_object_stream[SessionMessage](0)
    async with ResponseShortcut(router, {}, is_replaced=lambda _: False):
        pass

    with routed, pytest.raises(anyio.EndOfStream):
        await routed.receive()
