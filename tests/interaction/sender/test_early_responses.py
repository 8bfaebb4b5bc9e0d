"""Answers that come before the end of their request, on both event loops: an acknowledged request is written to its end."""

import asyncio
from typing import cast

import pytest

from ringback.domain.attempt_category import AttemptCategory
from ringback.domain.delivery import AttemptResult
from ringback.notifier.http import connection as http1_connection
from ringback.notifier.http.client import Http1Sender
from tests.support.event_loops import both_event_loops
from tests.support.limits import WAIT_SECONDS
from tests.support.receivers import (
    NO_CONTENT,
    AcceptedConnection,
    Behaviour,
    CertificateAuthority,
    never_read,
    response,
    send_bytes,
    serving_receiver,
)
from tests.support.resolvers import loopback_target

anyio_backend = both_event_loops

MORE_THAN_BUFFERED = b"x" * 16_000_000
"""More than the buffers of the two kernels hold: it is not written to its end while the receiver does not read."""


async def never_read_body(connection: AcceptedConnection) -> None:
    await connection.reader.readuntil(b"\r\n\r\n")
    await connection.send(response("503 Busy"))
    await never_read(connection)


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize(
    ("behaviour", "status_code"), [(send_bytes(b"HTTP/1.1 200 OK\r\n\r\nuntil the end"), 200), (never_read_body, 503)]
)
async def test_an_answer_that_ends_or_begins_out_of_turn_ends_its_connection(
    *, http1_sender: Http1Sender, certificates: CertificateAuthority, behaviour: Behaviour, status_code: int, tls: bool
) -> None:
    """With the end of the connection, or before the end of the request."""
    async with serving_receiver(behaviour, tls=certificates.server("127.0.0.1") if tls else None) as receiver:
        target = loopback_target(receiver.url())
        for _ in range(2):
            answer = await http1_sender.post(target, {}, MORE_THAN_BUFFERED, deadline_seconds=WAIT_SECONDS)
            assert answer.status_code == status_code

        assert receiver.connections == 2


class EarlyAcknowledgement(asyncio.Protocol):
    """Says 204 to the first bytes of a request, and reads the others afterwards."""

    def __init__(self, read: "asyncio.Queue[int]") -> None:
        self._read = read
        self._bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if not self._bytes:
            self._transport.write(NO_CONTENT)
        self._bytes += len(data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's name
        self._read.put_nowait(self._bytes)


@pytest.mark.requirement("R27")
@pytest.mark.parametrize("tls", [False, True])
async def test_a_request_acknowledged_early_is_still_written_to_its_end(
    *, http1_sender: Http1Sender, certificates: CertificateAuthority, tls: bool
) -> None:
    """The answer is in our hands long before the request is out of them. The connection is not used again."""
    read: asyncio.Queue[int] = asyncio.Queue()
    receiver = await asyncio.get_running_loop().create_server(
        lambda: EarlyAcknowledgement(read), "127.0.0.1", 0, ssl=certificates.server("127.0.0.1") if tls else None
    )
    async with receiver, asyncio.timeout(WAIT_SECONDS):
        target = loopback_target(f"{'https' if tls else 'http'}://127.0.0.1:{receiver.sockets[0].getsockname()[1]}/")
        for _ in range(2):
            answer = await http1_sender.post(target, {}, MORE_THAN_BUFFERED, deadline_seconds=WAIT_SECONDS)

            assert answer.status_code == 204
            assert await read.get() > len(MORE_THAN_BUFFERED)


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("ending", ["deadline", "reset", "closed", "cancelled"])
async def test_an_acknowledged_request_that_cannot_be_written_is_waited_for_no_longer_than_the_attempt(
    *,
    http1_sender: Http1Sender,
    certificates: CertificateAuthority,
    monkeypatch: pytest.MonkeyPatch,
    tls: bool,
    ending: str,
) -> None:
    """The receiver said 2xx, so that is its answer, whatever kept it from reading on."""
    finishing, finish = asyncio.Event(), http1_connection.ReceiverConnection._finish_writing  # pyright: ignore[reportPrivateUsage] - seen nowhere else

    async def noted(connection: http1_connection.ReceiverConnection, until: float) -> None:
        finishing.set()
        await finish(connection, 0.0 if ending == "deadline" else until)

    monkeypatch.setattr(http1_connection.ReceiverConnection, "_finish_writing", noted)
    peers: asyncio.Queue[AcceptedConnection] = asyncio.Queue()

    async def acknowledges_only(connection: AcceptedConnection) -> None:
        await connection.send(NO_CONTENT)
        peers.put_nowait(connection)
        await never_read(connection)

    async with serving_receiver(acknowledges_only, tls=certificates.server("127.0.0.1") if tls else None) as receiver:
        target = loopback_target(receiver.url())
        attempt = asyncio.create_task(http1_sender.post(target, {}, MORE_THAN_BUFFERED, deadline_seconds=WAIT_SECONDS))
        async with asyncio.timeout(WAIT_SECONDS / 2):
            peer = await peers.get()
            await finishing.wait()
            match ending:
                case "reset":
                    peer.reset()
                case "closed":
                    await http1_sender.aclose()
                case "cancelled":
                    attempt.cancel()
                case _:
                    pass
            (answer,) = await asyncio.gather(attempt, return_exceptions=True)

            if ending == "cancelled":
                assert isinstance(answer, asyncio.CancelledError)
            else:
                assert answer == AttemptResult(category=AttemptCategory.DELIVERED, status_code=204)
            await http1_sender.aclose()


async def test_a_response_before_the_end_of_the_request_is_read(http1_sender: Http1Sender) -> None:
    async def too_large(connection: AcceptedConnection) -> None:
        await connection.reader.readuntil(b"\r\n\r\n")
        await connection.send(response("413 Content Too Large", b"enough", connection="close"))
        await connection.reader.read()

    async with serving_receiver(too_large) as receiver:
        answer = await http1_sender.post(
            loopback_target(receiver.url()), {}, MORE_THAN_BUFFERED, deadline_seconds=WAIT_SECONDS
        )

    assert (answer.status_code, answer.excerpt) == (413, "enough")
