"""New connections, on both event loops: in time, to a bounded number of addresses, and nothing left open when it fails."""

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringback.domain.attempt_category import AttemptCategory
from ringback.domain.client_address import Address
from ringback.domain.delivery import AttemptResult
from ringback.notifier.http import dialer as http1_dialer
from ringback.notifier.http.client import Http1Sender, encode_request
from ringback.notifier.http.connection import ReceiverConnection
from ringback.notifier.http.connection_pool import ConnectionPool
from ringback.notifier.http.dialer import ADDRESSES_TRIED_MAX, Egress, open_socket
from ringback.notifier.http.guard import TargetGuard
from ringback.notifier.http.target import Target, parse_target
from tests.support.clock import FakeClock
from tests.support.event_loops import both_event_loops
from tests.support.limits import WAIT_SECONDS
from tests.support.receivers import (
    NO_CONTENT,
    CertificateAuthority,
    Receiver,
    close_at_once,
    never_read,
    never_respond,
    respond_with,
    serving_receiver,
)
from tests.support.receivers import AcceptedConnection as Peer
from tests.support.resolvers import LOOPBACK_POLICY, PUBLIC_POLICY, FakeResolver, SocketCounter, loopback_target

anyio_backend = both_event_loops

BROKEN = AttemptCategory.CONNECTION_BROKEN


class OpenedSockets:
    """Real ones, remembered."""

    def __init__(self) -> None:
        self.opened: list[socket.socket] = []

    def __call__(self, address: Address) -> socket.socket:
        self.opened.append(open_socket(address))
        return self.opened[-1]

    @property
    def all_closed(self) -> bool:
        return all(opened.fileno() == -1 for opened in self.opened)


@asynccontextmanager
async def make_sender(
    sockets: http1_dialer.OpenSocket, tls: ssl.SSLContext, **names: list[str]
) -> AsyncGenerator[Http1Sender]:
    guard = TargetGuard(
        LOOPBACK_POLICY, resolver=FakeResolver({f"{name}.test": found for name, found in names.items()})
    )
    sender = Http1Sender(guard, clock=FakeClock(), ssl_context=tls, open_socket=sockets)
    try:
        yield sender
    finally:
        await sender.aclose()


def make_target(scheme: str, host: str, port: int) -> Target:
    return Target(url="", scheme=scheme, host=host, port=port, path="/", origin=f"{scheme}://{host}:{port}")


@contextmanager
def silent_address(address: str, port: int = 0) -> Generator[int]:
    """A port that accepts nothing: the listener's backlog is full, so SYNs are dropped, as a firewall drops them."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(0)
        with socket.create_connection(listener.getsockname(), timeout=WAIT_SECONDS):
            yield listener.getsockname()[1]


async def test_a_silent_address_leaves_time_for_the_next(
    client_tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http1_dialer, "ADDRESS_TIMEOUT_FRACTION", 0.01)
    sockets = OpenedSockets()
    async with (
        serving_receiver(respond_with(NO_CONTENT)) as receiver,
        make_sender(sockets, client_tls, two=["127.0.0.2", "127.0.0.1"]) as sender,
    ):
        with silent_address("127.0.0.2", receiver.port):
            answer = await sender.post(make_target("http", "two.test", receiver.port), {}, b"{}")

    assert answer.category is AttemptCategory.DELIVERED
    assert len(sockets.opened) == 2


async def test_connecting_ends_before_the_attempt(client_tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http1_dialer, "CONNECT_SECONDS", 0.05)
    sockets = OpenedSockets()
    async with (
        make_sender(sockets, client_tls) as sender,
        serving_receiver(never_read) as mute,
        asyncio.timeout(WAIT_SECONDS),
    ):
        with silent_address("127.0.0.1") as port:
            target = loopback_target(f"http://127.0.0.1:{port}/")
            answer = await sender.post(target, {}, b"{}", deadline_seconds=60)
            assert answer.category is AttemptCategory.CONNECT_TIMEOUT
        target = loopback_target(f"https://127.0.0.1:{mute.port}/")
        answer = await sender.post(target, {}, b"{}", deadline_seconds=60)

    assert answer.category is AttemptCategory.TLS_TIMEOUT
    assert sockets.all_closed


@pytest.mark.parametrize(
    ("scheme", "category"), [("http", AttemptCategory.CONNECT_TIMEOUT), ("https", AttemptCategory.TLS_TIMEOUT)]
)
async def test_only_a_connection_with_tls_has_a_late_handshake(
    scheme: str, category: AttemptCategory, client_tls: ssl.SSLContext
) -> None:
    """The time is over when the socket is connected: a busy machine has used it up."""

    class LateConnector:
        async def connect(self, address: Address, port: int) -> socket.socket:  # noqa: ARG002 - the names of `Connector`
            connected, peer = socket.socketpair()
            connected.setblocking(False)  # noqa: FBT003 - its only argument
            peers.append(peer)
            return connected

    peers: list[socket.socket] = []
    egress = Egress(find_connector=lambda _: LateConnector())
    guard = TargetGuard(LOOPBACK_POLICY, resolver=FakeResolver({}))
    sender = Http1Sender(guard, clock=FakeClock(), ssl_context=client_tls, egress=egress)

    answer = await sender.post(make_target(scheme, "127.0.0.1", 1), {}, b"{}", deadline_seconds=-1)
    await sender.aclose()
    await guard.aclose()
    for peer in peers:
        peer.close()

    assert answer.category is category


async def test_connections_are_attempted_to_a_limited_number_of_addresses(client_tls: ssl.SSLContext) -> None:
    sockets = SocketCounter()
    many = [f"93.184.216.{number}" for number in range(1, 100)]
    guard = TargetGuard(PUBLIC_POLICY, resolver=FakeResolver({"many.test": many}))
    sender = Http1Sender(guard, clock=FakeClock(), ssl_context=client_tls, open_socket=sockets)
    await sender.post(parse_target("https://many.test/", PUBLIC_POLICY), {}, b"{}")
    await sender.aclose()

    assert [str(address) for address in sockets.addresses] == many[:ADDRESSES_TRIED_MAX]


async def test_small_packets_are_not_held_back(client_tls: ssl.SSLContext, certificates: CertificateAuthority) -> None:
    """Nagle's algorithm would wait for the acknowledgement of the packet before: 40 ms on many machines."""
    sockets = OpenedSockets()
    async with (
        make_sender(sockets, client_tls) as sender,
        serving_receiver(respond_with(NO_CONTENT)) as plain,
        serving_receiver(respond_with(NO_CONTENT), tls=certificates.server("127.0.0.1")) as encrypted,
    ):
        for receiver in (plain, encrypted):
            await sender.post(loopback_target(receiver.url()), {}, b"{}")

        assert [opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for opened in sockets.opened] == [1, 1]


async def interrupt_at_each_turn(
    interrupt: Callable[[Http1Sender, "asyncio.Task[AttemptResult]"], Awaitable[bool]],
    client_tls: ssl.SSLContext,
    server_tls: ssl.SSLContext | None,
) -> None:
    """Interrupt attempts, each one turn of the event loop later, until one is delivered as `interrupt` says."""
    sockets, turns, delivered = OpenedSockets(), 0, False
    async with serving_receiver(respond_with(NO_CONTENT), tls=server_tls) as receiver, asyncio.timeout(WAIT_SECONDS):
        while not delivered:
            async with make_sender(sockets, client_tls, receiver=["127.0.0.9", "127.0.0.1"]) as sender:
                target = make_target(receiver.scheme, "receiver.test", receiver.port)
                attempt = asyncio.create_task(sender.post(target, {}, b"{}"))
                for _ in range(turns):
                    await asyncio.sleep(0)
                delivered = await interrupt(sender, attempt)
            turns += 1

    assert turns > 5
    assert sockets.all_closed


@pytest.mark.parametrize("tls", [False, True])
async def test_an_attempt_may_be_cancelled_at_any_time(
    *, client_tls: ssl.SSLContext, certificates: CertificateAuthority, tls: bool
) -> None:
    """Each time one turn of the event loop later, until one attempt comes to its end."""

    async def cancel(_sender: Http1Sender, attempt: asyncio.Task[AttemptResult]) -> bool:
        attempt.cancel()
        (ended,) = await asyncio.gather(attempt, return_exceptions=True)
        return isinstance(ended, AttemptResult) and ended.category is AttemptCategory.DELIVERED

    await interrupt_at_each_turn(cancel, client_tls, certificates.server("receiver.test") if tls else None)


@pytest.mark.parametrize("tls", [False, True])
async def test_a_sender_may_be_closed_at_any_time_of_an_attempt(
    *, client_tls: ssl.SSLContext, certificates: CertificateAuthority, tls: bool
) -> None:
    """Each time one turn of the event loop later: delivered or refused, and nothing stays open."""

    async def close(sender: Http1Sender, attempt: asyncio.Task[AttemptResult]) -> bool:
        await sender.aclose()
        answer = await attempt
        assert answer.category in {AttemptCategory.DELIVERED, BROKEN}
        return answer.category is AttemptCategory.DELIVERED

    await interrupt_at_each_turn(close, client_tls, certificates.server("receiver.test") if tls else None)


async def test_a_sender_that_is_closed_while_it_dials_sends_nothing(client_tls: ssl.SSLContext) -> None:
    closing: list[asyncio.Task[None]] = []

    def closed_meanwhile(address: Address) -> socket.socket:
        closing.append(asyncio.create_task(sender.aclose()))
        return open_socket(address)

    async with (
        serving_receiver(respond_with(NO_CONTENT)) as receiver,
        make_sender(closed_meanwhile, client_tls) as sender,
    ):
        answer = await sender.post(loopback_target(receiver.url()), {}, b"{}", deadline_seconds=WAIT_SECONDS)
        await asyncio.gather(*closing)

        assert (answer.category, receiver.requests) == (BROKEN, [])


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
async def test_connecting_causes_no_lookup(
    client_tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    """Names of other people's that hang may hold every thread that the event loop has for look-ups.

    uvloop's `sock_connect` makes one even for an address, where no test can see it.
    """

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(NO_CONTENT)
        await reader.read()
        writer.close()

    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError

    receiver, loop = await asyncio.start_server(answer, address, 0), asyncio.get_running_loop()
    host, port, *_ = receiver.sockets[0].getsockname()
    target = loopback_target(f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/")
    for look_up in ("getaddrinfo", "sock_connect"):
        monkeypatch.setattr(loop, look_up, forbidden)
    monkeypatch.setattr(socket, "getaddrinfo", forbidden)
    async with receiver, make_sender(open_socket, client_tls) as sender:
        result = await sender.post(target, {}, b"", deadline_seconds=WAIT_SECONDS)

    assert result.category is AttemptCategory.DELIVERED


async def test_bytes_sent_before_tls_are_no_response(client_tls: ssl.SSLContext) -> None:
    """Any host on the way could send it."""

    async def speaks_first(connection: Peer) -> None:
        await connection.send(NO_CONTENT)
        await connection.reader.read()

    sockets = OpenedSockets()
    async with serving_receiver(speaks_first) as receiver, make_sender(sockets, client_tls) as sender:
        target = loopback_target(f"https://127.0.0.1:{receiver.port}/")
        answer = await sender.post(target, {}, b"{}", deadline_seconds=WAIT_SECONDS)

    assert answer.category is AttemptCategory.TLS_ERROR
    assert sockets.all_closed


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_an_attempt_that_fails_leaves_no_socket(client_tls: ssl.SSLContext, scheme: str) -> None:
    sockets = OpenedSockets()
    async with serving_receiver(close_at_once) as receiver, make_sender(sockets, client_tls) as sender:
        target = loopback_target(f"{scheme}://127.0.0.1:{receiver.port}/")
        answer = await sender.post(target, {}, b"{}", deadline_seconds=WAIT_SECONDS)

    assert answer.category is not AttemptCategory.DELIVERED
    assert sockets.all_closed


@asynccontextmanager
async def connected_to(receiver: Receiver) -> AsyncGenerator[ReceiverConnection]:
    """A connection by itself, on which nothing was asked yet."""
    pool, loop = ConnectionPool(), asyncio.get_running_loop()
    connected = socket.create_connection(("127.0.0.1", receiver.port), timeout=WAIT_SECONDS)
    _, connection = await loop.create_connection(
        lambda: pool.create_connection("http://early.test", connected), sock=connected
    )
    pool.register_connection(connection)
    try:
        yield connection
    finally:
        await pool.aclose()


async def test_an_answer_before_the_request_counts_once() -> None:
    """Receivers that are too busy say so on every new connection, which is not used for anything else."""
    until = asyncio.get_running_loop().time() + WAIT_SECONDS
    async with serving_receiver(never_respond) as receiver, connected_to(receiver) as connection:
        connection.data_received(NO_CONTENT)
        reply = await connection.send_request(b"POST / HTTP/1.1\r\n\r\n", until=until)
        await receiver.wait_for_requests(1)

        assert (reply.status_code, connection.is_reusable) == (204, False)


async def test_a_connection_that_is_lost_before_the_request_is_no_answer() -> None:
    until, accepted = asyncio.get_running_loop().time() + WAIT_SECONDS, asyncio.Event()

    async def accepts(connection: Peer) -> None:
        accepted.set()
        await never_read(connection)

    async with serving_receiver(accepts) as receiver, connected_to(receiver) as connection:
        await accepted.wait()
        connection.abort()
        await connection.closed

        with pytest.raises(ConnectionResetError):
            await connection.send_request(b"POST / HTTP/1.1\r\n\r\n", until=until)


# -- what is written --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://Receiver.Example/", "receiver.example"),
        ("https://receiver.example:8443/", "receiver.example:8443"),
        ("https://[2606:4700::1111]/", "[2606:4700::1111]"),
        ("https://[2606:4700:0::1111]:8443/", "[2606:4700::1111]:8443"),
        ("https://bücher.example/", "xn--bcher-kva.example"),
    ],
)
def test_the_host_header_is_the_host_that_was_judged(url: str, host: str) -> None:
    request = encode_request("GET", parse_target(url, PUBLIC_POLICY), {"x": "y"}, b"")

    assert request == f"GET / HTTP/1.1\r\nhost: {host}\r\nx: y\r\n\r\n".encode()


@given(body=st.binary(max_size=100))
def test_a_post_sends_its_content_length(body: bytes) -> None:
    request = encode_request("POST", parse_target("https://receiver.example/a?b", PUBLIC_POLICY), {}, body)

    head = f"POST /a?b HTTP/1.1\r\nhost: receiver.example\r\ncontent-length: {len(body)}\r\n\r\n"
    assert request == head.encode() + body
