"""Why an attempt failed: each category once, over real sockets and real TLS, on the sender that production uses."""

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from ringback.domain.attempt_category import AttemptCategory
from ringback.domain.delivery import DETAIL_LENGTH_MAX, AttemptResult
from ringback.notifier.http.client import Http1Sender
from ringback.notifier.http.guard import TargetGuard
from ringback.notifier.http.target import Target
from tests.support.clock import FakeClock
from tests.support.limits import WAIT_SECONDS, let_deadline_pass
from tests.support.receivers import (
    NO_CONTENT,
    AcceptedConnection,
    Behaviour,
    CertificateAuthority,
    close_after_request,
    never_read,
    never_respond,
    respond_with,
    response,
    send_body_slowly,
    send_bytes,
    serving_receiver,
)
from tests.support.resolvers import LOOPBACK_POLICY, PUBLIC_POLICY, FakeResolver, loopback_target

CONNECT_TIMEOUT = AttemptCategory.CONNECT_TIMEOUT
MORE_THAN_BUFFERED = b"x" * 16_000_000
"""Than the two kernels' buffers hold."""


async def post(
    sender: Http1Sender, behaviour: Behaviour, body: bytes = b"{}", *, seconds: float = WAIT_SECONDS
) -> AttemptResult:
    async with serving_receiver(behaviour) as receiver:
        return await sender.post(loopback_target(receiver.url()), {}, body, deadline_seconds=seconds)


async def post_until_late(
    sender: Http1Sender, behaviour: Behaviour, until: Callable[[AttemptResult], bool], body: bytes = b"{}"
) -> AttemptResult:
    return await let_deadline_pass(lambda seconds: post(sender, behaviour, body, seconds=seconds), until=until)


async def test_a_name_that_does_not_exist_and_a_blocked_address_are_different_failures() -> None:
    guard = TargetGuard(PUBLIC_POLICY, resolver=FakeResolver({"inner.test": ["10.1.2.3"]}))
    sender = Http1Sender(guard, clock=FakeClock())

    missing = await sender.post(_https("missing.test"), {}, b"{}")
    blocked = await sender.post(_https("inner.test"), {}, b"{}")
    await sender.aclose()

    assert missing.category is AttemptCategory.NAME_NOT_FOUND
    assert (blocked.category, blocked.detail) == (AttemptCategory.BLOCKED_ADDRESS, "private use (10.0.0.0/8)")


async def test_a_port_without_a_listener_refuses_the_connection(http1_sender: Http1Sender) -> None:
    async with serving_receiver(never_read) as receiver:
        target = loopback_target(receiver.url())

    refused = await http1_sender.post(target, {}, b"{}")

    assert (refused.category, refused.detail) == (AttemptCategory.CONNECTION_REFUSED, "connection refused")


@pytest.mark.parametrize("turns", range(4))
async def test_the_receiver_of_these_tests_closes_connections_that_it_is_accepting_at_its_end(turns: int) -> None:
    async with serving_receiver(never_read) as receiver:
        connection = socket.create_connection(("127.0.0.1", receiver.port), WAIT_SECONDS)
        for _ in range(turns):
            await asyncio.sleep(0)

    with connection, suppress(ConnectionResetError):
        assert connection.recv(1) == b""


async def test_a_receiver_that_never_responds_is_a_response_timeout(http1_sender: Http1Sender) -> None:
    answer = await post_until_late(http1_sender, never_respond, lambda late: late.category is not CONNECT_TIMEOUT)

    assert answer.category is AttemptCategory.RESPONSE_TIMEOUT


async def test_a_receiver_that_stops_reading_has_not_read_the_body(http1_sender: Http1Sender) -> None:
    answer = await post_until_late(
        http1_sender, never_read, lambda late: late.category is not CONNECT_TIMEOUT, MORE_THAN_BUFFERED
    )

    assert answer.category is AttemptCategory.BODY_NOT_READ


async def test_a_connection_closed_without_a_response_is_broken(http1_sender: Http1Sender) -> None:
    answer = await post(http1_sender, close_after_request)

    assert answer.category is AttemptCategory.CONNECTION_BROKEN


async def test_another_protocol_is_an_invalid_response(http1_sender: Http1Sender) -> None:
    answer = await post(http1_sender, send_bytes(b"220 mail.example ESMTP\r\n"))

    assert answer.category is AttemptCategory.INVALID_RESPONSE


@pytest.mark.parametrize(
    ("head", "detail"),
    [
        (
            b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade",
            "the status 101 is not one of 200 to 599",
        ),
        (b"HTTP/1.1 699 Nothing\r\ncontent-length: 0", "the status 699 is not one of 200 to 599"),
        (b"HTTP/2.0 200 OK\r\ncontent-length: 0", "the response is HTTP/2.0, not HTTP/1"),
    ],
    ids=["101", "699", "HTTP/2.0"],
)
async def test_an_invalid_response_says_what_is_wrong_with_it(
    http1_sender: Http1Sender, head: bytes, detail: str
) -> None:
    answer = await post(http1_sender, send_bytes(head + b"\r\n\r\n"))

    assert (answer.category, answer.detail) == (AttemptCategory.INVALID_RESPONSE, detail)


async def test_a_response_body_that_does_not_end_is_named_beside_its_status(http1_sender: Http1Sender) -> None:
    answer = await post_until_late(http1_sender, send_body_slowly, lambda late: late.status_code is not None)

    assert answer.status_code == 200
    assert answer.detail == "the response's body did not end in time"


@pytest.mark.parametrize("status", ["301 Moved Permanently", "307 Temporary Redirect"])
async def test_a_redirect_is_recorded_with_its_location_and_is_not_followed(
    http1_sender: Http1Sender, status: str
) -> None:
    moved = response(status, location="https://moved.example/hook?token=hunter2#part")
    async with serving_receiver(respond_with(moved)) as receiver:
        answer = await http1_sender.post(loopback_target(receiver.url()), {}, b"{}")

    assert (answer.category, answer.detail) == (AttemptCategory.HTTP_3XX, "Location: https://moved.example/hook")
    assert answer.error_detail == f"status {status[:3]}, Location: https://moved.example/hook"
    assert len(receiver.requests) == 1


async def test_a_location_is_bounded_and_escaped_and_has_no_password(http1_sender: Http1Sender) -> None:
    hostile = b"https://user:hunter2@moved.example/\x1b[31m\x85" + b"a" * 5000
    head = b"HTTP/1.1 302 Found\r\nlocation: " + hostile + b"\r\ncontent-length: 0\r\n\r\n"

    answer = await post(http1_sender, send_bytes(head))

    detail = answer.detail or ""
    assert answer.category in {AttemptCategory.HTTP_3XX, AttemptCategory.INVALID_RESPONSE}
    assert detail.isprintable()
    assert len(detail) <= DETAIL_LENGTH_MAX
    assert "hunter2" not in detail


async def test_only_a_redirect_is_recorded_with_a_location(http1_sender: Http1Sender) -> None:
    created = await post(http1_sender, respond_with(response("201 Created", location="/made/1")))

    assert (created.category, created.detail) == (AttemptCategory.DELIVERED, None)


async def test_a_receiver_that_demands_a_client_certificate_says_so(certificates: CertificateAuthority) -> None:
    """With TLS 1.2 the alert comes within the handshake; with 1.3 a reset may overtake it."""
    demanding = certificates.server("127.0.0.1")
    demanding.verify_mode = ssl.CERT_REQUIRED
    async with _sender(certificates.client()) as sender, serving_receiver(_read_and_stay, tls=demanding) as receiver:
        answer = await sender.post(loopback_target(receiver.url()), {}, b"{}")

    assert answer.category in {AttemptCategory.CLIENT_CERTIFICATE_REFUSED, AttemptCategory.CONNECTION_BROKEN}


async def test_a_delivery_after_a_failure_has_no_detail(http1_sender: Http1Sender) -> None:
    async with serving_receiver(respond_with(response("503 Service Unavailable"), NO_CONTENT)) as receiver:
        target = loopback_target(receiver.url())
        failed = await http1_sender.post(target, {}, b"{}")
        delivered = await http1_sender.post(target, {}, b"{}")

    assert (failed.category, failed.error_detail) == (AttemptCategory.HTTP_5XX, "status 503")
    assert (delivered.category, delivered.detail) == (AttemptCategory.DELIVERED, None)


@asynccontextmanager
async def _sender(tls: ssl.SSLContext) -> AsyncGenerator[Http1Sender]:
    sender = Http1Sender(TargetGuard(LOOPBACK_POLICY, resolver=FakeResolver({})), clock=FakeClock(), ssl_context=tls)
    try:
        yield sender
    finally:
        await sender.aclose()


async def _read_and_stay(connection: AcceptedConnection) -> None:
    await connection.reader.read()


def _https(host: str) -> Target:
    return Target(url="", scheme="https", host=host, port=443, path="/", origin=f"https://{host}")
