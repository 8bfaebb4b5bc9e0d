"""The httpx sender over transports of its user: respx, a mock, an ASGI receiver."""

import asyncio
import ssl
from collections.abc import AsyncIterator

import httpx
import pytest
import respx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ringback.domain.attempt_category import AttemptCategory
from ringback.domain.delivery import AttemptResult
from ringback.notifier.http.httpx_sender import HttpxSender
from ringback.notifier.http.sender import EXCERPT_BYTES_MAX, RESPONSE_BODY_BYTES_MAX
from ringback.notifier.http.target import parse_target
from tests.support.clock import FakeClock
from tests.support.resolvers import PUBLIC_POLICY

TARGET = parse_target("https://receiver.example/hook?key=1", PUBLIC_POLICY)


class FailingTransport(httpx.AsyncBaseTransport):
    """A transport that fails in a way of its own."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:  # noqa: ARG002 - httpx's name
        raise self._error


class EndlessBody(httpx.AsyncByteStream):
    def __init__(self) -> None:
        self.sent = 0
        self.closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            self.sent += 1000
            yield b"e" * 1000

    async def aclose(self) -> None:
        self.closed = True


async def test_respx_serves_as_a_receiver() -> None:
    router = respx.MockRouter()
    route = router.post(TARGET.url).respond(429, headers={"retry-after": "3"}, text="slow down")
    sender = HttpxSender(httpx.MockTransport(router.async_handler), clock=FakeClock())

    answer = await sender.post(TARGET, {"webhook-id": "evt_1"}, b'{"a":1}')

    assert answer == AttemptResult(
        category=AttemptCategory.HTTP_4XX, status_code=429, retry_after_seconds=3.0, excerpt="slow down"
    )
    request = route.calls.last.request
    assert request.content == b'{"a":1}'
    assert request.headers["webhook-id"] == "evt_1"
    assert request.headers["host"] == "receiver.example"


async def test_an_asgi_application_serves_as_a_receiver() -> None:
    bodies: list[bytes] = []

    async def hook(request: Request) -> Response:
        bodies.append(await request.body())
        return Response(status_code=204)

    application = Starlette(routes=[Route("/hook", hook, methods=["POST"])])
    sender = HttpxSender(httpx.ASGITransport(application), clock=FakeClock())

    answer = await sender.post(TARGET, {}, b"payload")
    await sender.aclose()

    assert (answer.category, bodies) == (AttemptCategory.DELIVERED, [b"payload"])


async def test_an_endless_answer_is_read_up_to_the_limit_and_closed() -> None:
    endless = EndlessBody()
    transport = httpx.MockTransport(lambda _: httpx.Response(200, stream=endless))

    answer = await HttpxSender(transport, clock=FakeClock()).post(TARGET, {}, b"{}")

    assert answer.excerpt == "e" * EXCERPT_BYTES_MAX
    assert RESPONSE_BODY_BYTES_MAX <= endless.sent < RESPONSE_BODY_BYTES_MAX + 2000
    assert endless.closed


@pytest.mark.parametrize(
    ("error", "category"),
    [
        (httpx.ConnectError("refused"), AttemptCategory.CONNECTION_REFUSED),
        (httpx.RemoteProtocolError("garbage"), AttemptCategory.CONNECTION_BROKEN),
        (httpx.UnsupportedProtocol("no"), AttemptCategory.CONNECTION_BROKEN),
        (OSError("unplugged"), AttemptCategory.CONNECTION_BROKEN),
        (httpx.ConnectTimeout("slow"), AttemptCategory.CONNECT_TIMEOUT),
        (httpx.ReadTimeout("slow"), AttemptCategory.RESPONSE_TIMEOUT),
        (httpx.PoolTimeout("full"), AttemptCategory.TIMEOUT),
        (TimeoutError(), AttemptCategory.TIMEOUT),
        (ssl.SSLError("handshake"), AttemptCategory.TLS_ERROR),
    ],
)
async def test_every_failure_of_a_transport_is_one_category(error: Exception, category: AttemptCategory) -> None:
    answer = await HttpxSender(FailingTransport(error), clock=FakeClock()).post(TARGET, {}, b"{}")

    assert answer.category is category


@pytest.mark.parametrize("status", [101, 199, 600, 999])
async def test_a_response_without_a_final_status_is_no_response(status: int) -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(status))

    answer = await HttpxSender(transport, clock=FakeClock()).post(TARGET, {}, b"{}")

    assert answer == AttemptResult(
        category=AttemptCategory.INVALID_RESPONSE, detail=f"the status {status} is not one of 200 to 599"
    )


async def test_a_bug_in_a_transport_is_not_taken_for_a_receivers_failure() -> None:
    with pytest.raises(ZeroDivisionError):
        await HttpxSender(FailingTransport(ZeroDivisionError()), clock=FakeClock()).post(TARGET, {}, b"{}")


async def test_a_transport_that_never_answers_ends_with_the_deadline() -> None:
    async def hang(_request: httpx.Request) -> httpx.Response:
        await asyncio.Event().wait()
        raise AssertionError

    sender = HttpxSender(httpx.MockTransport(hang), clock=FakeClock())

    assert await sender.post(TARGET, {}, b"{}", deadline_seconds=0.1) == AttemptResult(category=AttemptCategory.TIMEOUT)


async def test_a_transport_without_async_support_is_refused() -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(200, content=iter([b"sync"])))

    with pytest.raises(TypeError, match="asynchronously"):
        await HttpxSender(transport, clock=FakeClock()).post(TARGET, {}, b"{}")
