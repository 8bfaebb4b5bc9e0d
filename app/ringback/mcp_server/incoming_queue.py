"""The messages of a legacy session on their way to the SDK's dispatcher.

The dispatcher holds a message until the session's next one comes. A message may be as large as a request may be, and a
principal has a thousand idle sessions, so a message that has been dispatched is emptied.

The SDK responds to a notification with 202 before it sends it here. If the session has ended meanwhile, the notification is
dropped: an error would be a second response on the connection.
"""

from typing import Final

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification, JSONRPCRequest

from ringback.mcp_server.message_queue import MessageQueue

_DISPATCHED: Final = JSONRPCNotification(jsonrpc="2.0", method="ringback/dispatched")
"""In the place of a message that has been dispatched."""


class IncomingQueue(MessageQueue[SessionMessage | Exception]):
    def __init__(self) -> None:
        super().__init__(waiting_max=1, on_handled=_empty_message)

    async def send(self, message: SessionMessage | Exception, /) -> None:
        """As in `MessageQueue`, but only a request for an ended session is an error."""
        try:
            await super().send(message)
        except anyio.ClosedResourceError:
            if isinstance(message, SessionMessage) and isinstance(message.message, JSONRPCRequest):
                raise


def _empty_message(item: SessionMessage | Exception) -> None:
    if isinstance(item, SessionMessage):
        item.message, item.metadata = _DISPATCHED, None
