"""The messages of a legacy session on their way to the SDK's dispatcher.

The dispatcher holds a message until the session's next one comes. A message may be as large as a request may be, and a
principal has a thousand idle sessions, so a message that has been dispatched is emptied.
"""

from typing import Final

from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification

from ringback.mcp_server.message_queue import MessageQueue

_DISPATCHED: Final = JSONRPCNotification(jsonrpc="2.0", method="ringback/dispatched")
"""In the place of a message that has been dispatched."""


class IncomingQueue(MessageQueue[SessionMessage | Exception]):
    def __init__(self) -> None:
        super().__init__(waiting_max=1, on_handled=_empty_message)


def _empty_message(item: SessionMessage | Exception) -> None:
    if isinstance(item, SessionMessage):
        item.message, item.metadata = _DISPATCHED, None
