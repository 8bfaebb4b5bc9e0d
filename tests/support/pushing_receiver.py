"""A receiver that sends bytes when the test wants, and sees the end of its connections."""

import asyncio
import os

from ringback.notifier.http.client import Http1Sender
from tests.support.limits import WAIT_SECONDS
from tests.support.receivers import (
    AcceptedConnection,
    Receiver,
)
from tests.support.resolvers import loopback_target


class PushingReceiver:
    """Answers every request with the next of the given answers, and holds its connections out to the test."""

    def __init__(self, *answers: bytes) -> None:
        self._answers = list(answers)
        self.connections: list[AcceptedConnection] = []
        self.asked: list[int] = []
        """For each request, the number of its connection."""
        self.closed: asyncio.Queue[int] = asyncio.Queue()
        """The connections that the sender closed."""

    async def __call__(self, connection: AcceptedConnection) -> None:
        number = len(self.connections)
        self.connections.append(connection)
        try:
            while await connection.request() is not None:
                self.asked.append(number)
                await connection.send(self._answers.pop(0) if len(self._answers) > 1 else self._answers[0])
        finally:
            self.closed.put_nowait(number)

    def push_bytes(self, data: bytes) -> None:
        """Put bytes onto the last connection in this very instant: the event loop gets no turn to read them."""
        os.write(self.connections[-1].writer.get_extra_info("socket").fileno(), data)

    async def wait_until_closed(self, count: int = 1) -> list[int]:
        async with asyncio.timeout(WAIT_SECONDS):
            return [await self.closed.get() for _ in range(count)]


async def send_posts(sender: Http1Sender, receiver: Receiver, count: int) -> list[int | None]:
    target = loopback_target(receiver.url())
    return [(await sender.post(target, {}, b"{}", deadline_seconds=WAIT_SECONDS)).status_code for _ in range(count)]
