"""A failed attempt is not in memory until the garbage collector runs: its body may have hundreds of kilobytes."""

import gc

import pytest

from ringback.notifier.http.client import Http1Sender
from ringback.notifier.http.connection import ReceiverConnection
from tests.support.event_loops import both_event_loops
from tests.support.receivers import AcceptedConnection, Behaviour, never_read, send_bytes, serving_receiver
from tests.support.resolvers import loopback_target

anyio_backend = both_event_loops
pytestmark = pytest.mark.usefixtures("without_garbage_collector")

ATTEMPTS = 8
KEPT_MAX = 1
"""An event loop closes a connection in a later turn."""
BODY = b"x" * 200_000


async def disconnect(connection: AcceptedConnection) -> None:
    await connection.reader.read(100)


@pytest.mark.parametrize("behaviour", [disconnect, send_bytes(b"no HTTP"), never_read])
async def test_a_failed_attempt_leaves_memory_at_once(http1_sender: Http1Sender, behaviour: Behaviour) -> None:
    async with serving_receiver(behaviour) as receiver:
        for _ in range(ATTEMPTS):
            await http1_sender.post(loopback_target(receiver.url()), {}, BODY, deadline_seconds=0.2)

        assert sum(isinstance(each, ReceiverConnection) for each in gc.get_objects()) <= KEPT_MAX
