"""The head of a response is written together with the first bytes of its body."""

import asyncio

from ringback.http_server.flow_control import CountingTransport
from tests.support.receivers import CertificateAuthority
from tests.unit.http_server.conftest import FakeTransport

HEAD = b"HTTP/1.1 200 OK\r\n\r\n"


class RecordingTransport(FakeTransport):
    def __init__(self) -> None:
        super().__init__("203.0.113.7")
        self.writes: list[bytes] = []

    def write(self, data: bytes) -> None:
        super().write(data)
        self.writes.append(data)


async def test_head_and_body_are_one_write_and_a_large_body_is_not_copied() -> None:
    inner, large = RecordingTransport(), b"x" * 20_000
    transport = CountingTransport(inner)

    for data in (HEAD, b"body", b"more", HEAD, large):
        transport.write(data)

    assert inner.writes == [HEAD + b"body", b"more", HEAD, large]
    assert transport.written_bytes == len(inner.sent)


async def test_a_head_without_a_body_is_written_in_the_next_turn_and_counts_as_unread_until_then() -> None:
    inner = RecordingTransport()
    transport = CountingTransport(inner)

    transport.write(HEAD)

    assert (inner.writes, transport.get_write_buffer_size()) == ([], len(HEAD))
    await asyncio.sleep(0)
    assert (inner.writes, transport.get_write_buffer_size()) == ([HEAD], 0)


async def test_a_head_is_written_before_the_end_of_its_connection_but_not_after_an_abort() -> None:
    closed, aborted = RecordingTransport(), RecordingTransport()
    for inner in (closed, aborted):
        transport = CountingTransport(inner)
        transport.write(HEAD)
        if inner is closed:
            transport.close()
        else:
            transport.abort()
    await asyncio.sleep(0)

    assert (closed.writes, closed.ended) == ([HEAD], "closed")
    assert (aborted.writes, aborted.ended) == ([], "aborted")


async def test_a_transport_of_asyncio_for_tls_that_is_closed_twice_still_says_what_is_unread() -> None:
    """The sweep asks all open connections, and its error in the event loop ended the sweep of the others."""
    connected: asyncio.Future[asyncio.Transport] = asyncio.get_running_loop().create_future()

    class Protocol(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            connected.set_result(transport)

    authority = CertificateAuthority()
    server = await asyncio.get_running_loop().create_server(Protocol, "127.0.0.1", 0, ssl=authority.server("127.0.0.1"))
    async with server:
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname(), ssl=authority.client())
        transport = CountingTransport(await connected)

        transport.close()
        transport.close()

        assert transport.get_write_buffer_size() == 0
        writer.close()
