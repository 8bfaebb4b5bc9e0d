"""What a sender does with one receiver, asked of both senders."""

import gzip
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringback import __version__
from ringback.backoff import RETRY_AFTER_SECONDS_MAX
from ringback.domain.attempt_category import AttemptCategory
from ringback.domain.delivery import AttemptResult
from ringback.notifier.http.client import Http1Sender
from ringback.notifier.http.guard import TargetGuard
from ringback.notifier.http.sender import EXCERPT_BYTES_MAX, RESPONSE_BODY_BYTES_MAX, Sender
from tests.support.clock import FakeClock
from tests.support.receivers import NO_CONTENT, never_respond, respond_with, response, serving_receiver
from tests.support.resolvers import LOOPBACK_POLICY, loopback_target

HEADERS = {"content-type": "application/json", "webhook-id": "evt_1"}
PROXY_VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


async def test_the_body_and_the_headers_arrive_as_given(sender: Sender) -> None:
    body = '{"name":"Zoë"}'.encode()
    async with serving_receiver(respond_with(NO_CONTENT)) as receiver:
        answer = await sender.post(loopback_target(receiver.url()), HEADERS, body)

    assert answer == AttemptResult(category=AttemptCategory.DELIVERED, status_code=204)
    (request,) = receiver.requests
    assert (request.method, request.path, request.body) == ("POST", "/hook", body)
    assert request.headers["content-type"] == "application/json"
    assert request.headers["webhook-id"] == "evt_1"
    assert request.headers["content-length"] == str(len(body))
    assert request.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert request.headers["user-agent"] == f"Ringback/{__version__}"


async def test_no_compression_is_requested(sender: Sender) -> None:
    async with serving_receiver(respond_with(NO_CONTENT)) as receiver:
        await sender.post(loopback_target(receiver.url()), HEADERS, b"{}")

    assert receiver.requests[0].headers["accept-encoding"] == "identity"


@pytest.mark.parametrize(
    "path",
    [
        "/hook?mcp_event_subscription=8b1c",
        "/a/../b/./c",
        "/%7Euser/%2e%2e/x",
        "//double",
        "/?a=b&a=c&=",
        "/{id}|'\"<>^`",
    ],
)
async def test_path_and_query_are_sent_byte_for_byte(sender: Sender, path: str) -> None:
    async with serving_receiver(respond_with(NO_CONTENT)) as receiver:
        await sender.post(loopback_target(receiver.url(path)), HEADERS, b"{}")

    assert receiver.requests[0].path == path


@pytest.mark.parametrize(
    ("status", "category"),
    [
        ("200 OK", AttemptCategory.DELIVERED),
        ("202 Accepted", AttemptCategory.DELIVERED),
        ("299 Whatever", AttemptCategory.DELIVERED),
        ("300 Multiple Choices", AttemptCategory.HTTP_3XX),
        ("304 Not Modified", AttemptCategory.HTTP_3XX),
        ("400 Bad Request", AttemptCategory.HTTP_4XX),
        ("404 Not Found", AttemptCategory.HTTP_4XX),
        ("410 Gone", AttemptCategory.HTTP_4XX),
        ("413 Content Too Large", AttemptCategory.HTTP_4XX),
        ("429 Too Many Requests", AttemptCategory.HTTP_4XX),
        ("500 Internal Server Error", AttemptCategory.HTTP_5XX),
        ("503 Service Unavailable", AttemptCategory.HTTP_5XX),
    ],
)
@pytest.mark.requirement("R27")
async def test_a_status_is_returned_as_received(sender: Sender, status: str, category: AttemptCategory) -> None:
    async with serving_receiver(respond_with(response(status))) as receiver:
        answer = await sender.post(loopback_target(receiver.url()), HEADERS, b"{}")

    assert (answer.category, answer.status_code) == (category, int(status[:3]))


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.requirement("R26")
async def test_a_redirect_is_a_failure_and_is_never_followed(sender: Sender, status: int) -> None:
    async with serving_receiver(respond_with(NO_CONTENT)) as inside:
        moved = response(f"{status} Moved", location=inside.url("/secret"), refresh=f"0; url={inside.url('/secret')}")
        async with serving_receiver(respond_with(moved)) as receiver:
            answer = await sender.post(loopback_target(receiver.url()), HEADERS, b"{}")

    assert (answer.category, answer.status_code) == (AttemptCategory.HTTP_3XX, status)
    assert (len(receiver.requests), inside.connections) == (1, 0)


@pytest.mark.parametrize(
    "names",
    [*((name,) for name in PROXY_VARIABLES), PROXY_VARIABLES[:3], PROXY_VARIABLES],
    ids=" ".join,
)
@pytest.mark.requirement("R26")
async def test_proxy_variables_have_no_effect(
    sender: Sender, names: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        serving_receiver(respond_with(NO_CONTENT)) as proxy,
        serving_receiver(respond_with(NO_CONTENT)) as receiver,
    ):
        for name in names:
            monkeypatch.setenv(name, proxy.url(""))
        answer = await sender.post(loopback_target(receiver.url()), HEADERS, b"{}")

    assert answer.category is AttemptCategory.DELIVERED
    assert (len(receiver.requests), proxy.connections) == (1, 0)


async def test_cookies_are_not_kept(sender: Sender) -> None:
    async with serving_receiver(respond_with(response("200 OK", set_cookie="a=b; Path=/"))) as receiver:
        target = loopback_target(receiver.url())
        await sender.post(target, HEADERS, b"{}")
        await sender.post(target, HEADERS, b"{}")

    assert "cookie" not in receiver.requests[1].headers


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        ("Fri, 20 Nov 2026 17:01:30 GMT", 90.0),
        ("soon", None),
        ("-1", None),
        ("9" * 400, RETRY_AFTER_SECONDS_MAX),
    ],
)
async def test_retry_after_is_returned_in_seconds(sender: Sender, header: str, seconds: float | None) -> None:
    async with serving_receiver(respond_with(response("503 Busy", retry_after=header))) as receiver:
        answer = await sender.post(loopback_target(receiver.url()), HEADERS, b"{}")

    assert answer.retry_after_seconds == seconds


async def test_the_excerpt_is_the_answers_beginning(sender: Sender) -> None:
    async with serving_receiver(respond_with(response("500 Oops", b"stack trace\n" + b"x" * 5000))) as receiver:
        answer = await sender.post(loopback_target(receiver.url()), HEADERS, b"{}")

    assert answer.excerpt is not None
    assert answer.excerpt.startswith("stack trace\nxxx")
    assert len(answer.excerpt) == EXCERPT_BYTES_MAX


async def test_a_compressed_answer_is_never_inflated(sender: Sender) -> None:
    bomb = gzip.compress(b"\0" * 5_000_000)
    async with serving_receiver(respond_with(response("200 OK", bomb, content_encoding="gzip"))) as receiver:
        answer = await sender.post(loopback_target(receiver.url()), HEADERS, b"{}")

    assert answer.category is AttemptCategory.DELIVERED
    assert answer.excerpt is not None
    assert len(answer.excerpt) <= EXCERPT_BYTES_MAX
    assert "\0" not in answer.excerpt


async def test_an_answer_within_the_limit_keeps_the_connection(sender: Sender) -> None:
    async with serving_receiver(respond_with(response("200 OK", b"x" * (RESPONSE_BODY_BYTES_MAX - 1)))) as receiver:
        target = loopback_target(receiver.url())
        for _ in range(3):
            assert (await sender.post(target, HEADERS, b"{}")).category is AttemptCategory.DELIVERED

    assert (receiver.connections, len(receiver.requests)) == (1, 3)


async def test_an_answer_over_the_limit_costs_the_connection(sender: Sender) -> None:
    async with serving_receiver(respond_with(response("200 OK", b"x" * (10 * RESPONSE_BODY_BYTES_MAX)))) as receiver:
        target = loopback_target(receiver.url())
        for _ in range(2):
            assert (await sender.post(target, HEADERS, b"{}")).category is AttemptCategory.DELIVERED

    assert (receiver.connections, len(receiver.requests)) == (2, 2)


async def test_no_listener_is_a_refused_connection(sender: Sender) -> None:
    async with serving_receiver(never_respond) as receiver:
        pass
    answer = await sender.post(loopback_target(receiver.url()), HEADERS, b"{}")

    assert answer.category is AttemptCategory.CONNECTION_REFUSED


@pytest.mark.parametrize("value", ["a\r\nx-injected: 1", "a\nb", "a\rb", "a\0b", "ä", "a\x7f"])
async def test_a_header_that_could_break_its_line_is_not_sent(sender: Sender, value: str) -> None:
    async with serving_receiver(respond_with(NO_CONTENT)) as receiver:
        with pytest.raises(ValueError, match="webhook-id"):
            await sender.post(loopback_target(receiver.url()), {"webhook-id": value}, b"{}")

    assert receiver.connections == 0


@given(value=st.text(st.characters(min_codepoint=0, max_codepoint=0x2FF), max_size=200))
async def test_a_header_arrives_as_it_is_or_not_at_all(value: str) -> None:
    """Whatever a value holds, the receiver never sees another header, and never another value."""
    async with serving_receiver(respond_with(NO_CONTENT)) as receiver:
        sender, target = Http1Sender(TargetGuard(LOOPBACK_POLICY), clock=FakeClock()), loopback_target(receiver.url())
        await sender.post(target, {"webhook-id": "plain"}, b"{}")
        try:
            await sender.post(target, {"webhook-id": value}, b"{}")
        except ValueError:
            assert len(receiver.requests) == 1
        else:
            plain, odd = receiver.requests
            assert odd.headers == {**plain.headers, "webhook-id": value.strip(" \t")}
        finally:
            await sender.aclose()
