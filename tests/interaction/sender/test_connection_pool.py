"""Which connections are used again, on both event loops: never one that has sent unrequested bytes."""

import asyncio

import pytest

from ringback.notifier.http import connection_pool as http1_pool
from ringback.notifier.http.client import Http1Sender
from tests.support.event_loops import both_event_loops
from tests.support.limits import WAIT_SECONDS
from tests.support.pushing_receiver import PushingReceiver, send_posts
from tests.support.receivers import (
    NO_CONTENT,
    AcceptedConnection,
    CertificateAuthority,
    respond_with,
    response,
    serving_receiver,
)
from tests.support.resolvers import loopback_target

anyio_backend = both_event_loops

SMUGGLED = b"HTTP/1.1 410 Gone\r\ncontent-length: 0\r\n\r\n"


async def test_one_connection_carries_one_post_after_the_other(http1_sender: Http1Sender) -> None:
    async with serving_receiver(respond_with(NO_CONTENT, response("200 OK", b"x"), response("500 Oops"))) as receiver:
        assert await send_posts(http1_sender, receiver, 5) == [204, 200, 500, 500, 500]

        assert receiver.connections == 1


@pytest.mark.requirement("R27")
@pytest.mark.parametrize("behind", [SMUGGLED, b"\r\n", b"x"])
async def test_an_answer_with_something_behind_it_ends_its_connection(http1_sender: Http1Sender, behind: bytes) -> None:
    desk = PushingReceiver(NO_CONTENT + behind)
    async with serving_receiver(desk) as receiver:
        assert await send_posts(http1_sender, receiver, 3) == [204, 204, 204]

        assert desk.asked == [0, 1, 2]


@pytest.mark.requirement("R27")
@pytest.mark.parametrize("surplus", [SMUGGLED, b"\r\n", b"H"])
async def test_bytes_received_before_a_post_are_never_its_response(http1_sender: Http1Sender, surplus: bytes) -> None:
    """The smuggled answer is in the machine when the next POST begins, and the event loop has not seen it yet."""
    desk = PushingReceiver(NO_CONTENT)
    async with serving_receiver(desk) as receiver:
        assert await send_posts(http1_sender, receiver, 1) == [204]
        desk.push_bytes(surplus)
        assert await send_posts(http1_sender, receiver, 2) == [204, 204]

        assert desk.asked == [0, 1, 1]


@pytest.mark.requirement("R27")
async def test_over_tls_nothing_smuggled_is_an_answer_either(
    http1_sender: Http1Sender, certificates: CertificateAuthority
) -> None:
    desk = PushingReceiver(NO_CONTENT + SMUGGLED)
    async with serving_receiver(desk, tls=certificates.server("127.0.0.1")) as receiver:
        assert await send_posts(http1_sender, receiver, 2) == [204, 204]
        desk.push_bytes(b"\x17")
        assert await send_posts(http1_sender, receiver, 1) == [204]

        assert desk.asked == [0, 1, 2]


async def test_a_byte_on_an_idle_connection_closes_it_at_once(
    http1_sender: Http1Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http1_pool, "KEEPALIVE_SECONDS", 1000.0)
    desk = PushingReceiver(NO_CONTENT)
    async with serving_receiver(desk) as receiver:
        await send_posts(http1_sender, receiver, 1)
        desk.push_bytes(SMUGGLED)

        assert await desk.wait_until_closed() == [0]


async def test_the_receivers_end_of_an_idle_connection_is_seen(
    http1_sender: Http1Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http1_pool, "KEEPALIVE_SECONDS", 1000.0)
    desk = PushingReceiver(NO_CONTENT)
    async with serving_receiver(desk) as receiver:
        await send_posts(http1_sender, receiver, 1)
        desk.connections[0].writer.write_eof()
        assert await desk.wait_until_closed() == [0]

        assert await send_posts(http1_sender, receiver, 1) == [204]
        assert desk.asked == [0, 1]


@pytest.mark.parametrize(
    ("answer", "connections"),
    [
        (response("200 OK", connection="close"), 3),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n", 3),
        (b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 0\r\n\r\n", 1),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nx-trailer: 1\r\n\r\n", 1),
        (b"HTTP/1.1 103 Early Hints\r\n\r\n" + NO_CONTENT, 1),
    ],
)
async def test_a_receiver_says_whether_its_connection_stays(
    http1_sender: Http1Sender, answer: bytes, connections: int
) -> None:
    async with serving_receiver(respond_with(answer)) as receiver:
        await send_posts(http1_sender, receiver, 3)

        assert receiver.connections == connections


async def test_each_origin_has_its_own_connections(http1_sender: Http1Sender) -> None:
    desk = PushingReceiver(NO_CONTENT)
    async with serving_receiver(desk) as receiver:
        for host in ("127.0.0.1", "127.0.0.2", "127.0.0.1"):
            target = loopback_target(receiver.url(host="127.0.0.1"))
            object.__setattr__(target, "origin", f"http://{host}:{receiver.port}")
            await http1_sender.post(target, {}, b"{}")

    assert desk.asked == [0, 1, 0]


async def test_the_connection_that_was_used_last_is_used_next(http1_sender: Http1Sender) -> None:
    order: list[int] = []
    turns = [asyncio.Event() for _ in range(3)]

    async def in_turn(connection: AcceptedConnection) -> None:
        number = connection.receiver.connections - 1
        while await connection.request() is not None:
            order.append(number)
            await turns[number].wait()
            await connection.send(NO_CONTENT)

    async with serving_receiver(in_turn) as receiver:
        running: list[asyncio.Task[list[int | None]]] = []
        for number in range(3):
            running.append(asyncio.create_task(send_posts(http1_sender, receiver, 1)))
            await receiver.wait_for_requests(number + 1, within_seconds=WAIT_SECONDS)
        for number in (2, 0, 1):
            turns[number].set()
            await running[number]
        await send_posts(http1_sender, receiver, 1)

    assert order == [0, 1, 2, 1]


async def test_an_old_connection_is_not_used_again(http1_sender: Http1Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http1_pool, "KEEPALIVE_SECONDS", 0.0)
    async with serving_receiver(respond_with(NO_CONTENT)) as receiver:
        assert await send_posts(http1_sender, receiver, 2) == [204, 204]

        assert receiver.connections == 2


async def test_connections_are_closed_when_they_are_old(
    http1_sender: Http1Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http1_pool, "KEEPALIVE_SECONDS", 0.05)
    monkeypatch.setattr(http1_pool, "SWEEP_SECONDS", 0.01)
    desk = PushingReceiver(NO_CONTENT)
    async with serving_receiver(desk) as receiver:
        for _ in range(2):  # sweeping goes on, ends, and begins again when there is something to sweep
            await send_posts(http1_sender, receiver, 1)
            await desk.wait_until_closed()

        assert len(desk.connections) == 2


async def test_only_old_connections_are_removed_by_a_sweep(
    http1_sender: Http1Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http1_pool, "KEEPALIVE_SECONDS", 1000.0)
    monkeypatch.setattr(http1_pool, "SWEEP_SECONDS", 0.01)
    desk = PushingReceiver(NO_CONTENT)
    async with serving_receiver(desk) as receiver:
        await asyncio.gather(send_posts(http1_sender, receiver, 1), send_posts(http1_sender, receiver, 1))
        older, _ = http1_sender._pool._idle[f"http://127.0.0.1:{receiver.port}"]  # pyright: ignore[reportPrivateUsage] - made old without waiting
        older.idle_since -= 2000.0
        (gone,) = await desk.wait_until_closed()

        assert await send_posts(http1_sender, receiver, 1) == [204]
        assert desk.asked[-1] == 1 - gone


@pytest.mark.parametrize("limit", ["IDLE_CONNECTIONS_PER_ORIGIN_MAX", "IDLE_CONNECTIONS_MAX"])
async def test_only_so_many_connections_are_kept(
    http1_sender: Http1Sender, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(http1_pool, limit, 2)
    everybody = asyncio.Barrier(5)
    closed: asyncio.Queue[None] = asyncio.Queue()

    async def together(connection: AcceptedConnection) -> None:
        await connection.request()
        await everybody.wait()
        await connection.send(NO_CONTENT)
        if await connection.request() is None:
            closed.put_nowait(None)

    async with serving_receiver(together) as receiver, asyncio.timeout(WAIT_SECONDS):
        await asyncio.gather(*(send_posts(http1_sender, receiver, 1) for _ in range(5)))
        for _ in range(3):
            await closed.get()
        assert closed.empty()
        await http1_sender.aclose()
        for _ in range(2):
            await closed.get()


async def test_a_connection_closed_by_its_receiver_frees_its_place(
    http1_sender: Http1Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http1_pool, "IDLE_CONNECTIONS_MAX", 1)
    closing, staying = PushingReceiver(NO_CONTENT), PushingReceiver(NO_CONTENT)
    async with serving_receiver(closing) as first, serving_receiver(staying) as second:
        await send_posts(http1_sender, first, 1)
        closing.connections[0].writer.write_eof()
        await closing.wait_until_closed()
        await send_posts(http1_sender, second, 2)

        assert staying.asked == [0, 0]
