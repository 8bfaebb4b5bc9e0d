"""Questions whose answer is read: the same way out as callbacks, the same guard, and a bounded part of the body."""

import ssl

import pytest

from ringback.domain.attempt_category import AttemptCategory
from ringback.notifier.http.client import Http1Sender
from ringback.notifier.http.guard import TargetGuard
from ringback.notifier.http.httpx_sender import HttpxSender
from ringback.notifier.http.sender import BODY_PREFIX_BYTES_MAX
from ringback.notifier.http.target import parse_target
from tests.support.clock import FakeClock
from tests.support.limits import WAIT_SECONDS, let_deadline_pass
from tests.support.receivers import never_respond, respond_with, response, send_body_endlessly, serving_receiver
from tests.support.resolvers import PUBLIC_POLICY, FakeResolver, SocketCounter, loopback_target

RequestFunction = Http1Sender | HttpxSender
DOCUMENT = b'{"receivers": ["/hooks/"]}' + b" " * 2000


@pytest.fixture(params=["http1", "httpx"])
def asker(request: pytest.FixtureRequest, http1_sender: Http1Sender, httpx_sender: HttpxSender) -> RequestFunction:
    return http1_sender if request.param == "http1" else httpx_sender


async def test_an_answer_is_read_further_than_an_excerpt(asker: RequestFunction) -> None:
    async with serving_receiver(respond_with(response("200 OK", DOCUMENT))) as receiver:
        answer, body = await asker.send_request(
            "GET", loopback_target(receiver.url("/list")), {}, b"", deadline_seconds=WAIT_SECONDS
        )

        assert (answer.category, answer.status_code, body) == (AttemptCategory.DELIVERED, 200, DOCUMENT)
        (request,) = receiver.requests
        assert (request.method, request.path, request.body) == ("GET", "/list", b"")


async def test_a_question_may_have_a_body(asker: RequestFunction) -> None:
    async with serving_receiver(respond_with(response("200 OK", b"{}"))) as receiver:
        target = loopback_target(receiver.url())
        _, body = await asker.send_request(
            "POST", target, {"webhook-id": "msg_1"}, b"[1]", deadline_seconds=WAIT_SECONDS
        )

        assert body == b"{}"
        assert (receiver.requests[0].body, receiver.requests[0].headers["webhook-id"]) == (b"[1]", "msg_1")


async def test_an_answer_without_end_is_cut_off(asker: RequestFunction) -> None:
    async with serving_receiver(send_body_endlessly) as receiver:
        answer, body = await asker.send_request(
            "GET", loopback_target(receiver.url()), {}, b"", deadline_seconds=WAIT_SECONDS
        )

        assert (answer.status_code, len(body)) == (200, BODY_PREFIX_BYTES_MAX)


async def test_a_request_never_takes_longer_than_its_deadline(asker: RequestFunction) -> None:
    async with serving_receiver(never_respond) as receiver:
        answer, body = await let_deadline_pass(
            lambda seconds: asker.send_request(
                "GET", loopback_target(receiver.url()), {}, b"", deadline_seconds=seconds
            ),
            until=lambda late: late[0].category is not AttemptCategory.CONNECT_TIMEOUT,
        )

        assert answer.category in {AttemptCategory.RESPONSE_TIMEOUT, AttemptCategory.TIMEOUT}
        assert body == b""


@pytest.mark.requirement("R26")
async def test_a_question_to_a_blocked_address_opens_no_socket() -> None:
    sockets, guard = (
        SocketCounter(),
        TargetGuard(PUBLIC_POLICY, resolver=FakeResolver({"inside.example": ["10.0.0.1"]})),
    )
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    sender = Http1Sender(guard, clock=FakeClock(), ssl_context=tls, open_socket=sockets)
    try:
        for host in ("inside.example", "169.254.169.254"):
            target = parse_target(f"https://{host}/.well-known/mcp-webhook-receiver.json", PUBLIC_POLICY)
            answer, _ = await sender.send_request("GET", target, {}, b"", deadline_seconds=WAIT_SECONDS)
            assert answer.category is AttemptCategory.BLOCKED_ADDRESS
    finally:
        await sender.aclose()

    assert sockets.addresses == []
