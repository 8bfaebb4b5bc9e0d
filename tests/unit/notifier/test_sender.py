"""What both senders share: headers, answers, failures, and reading no more than is wanted."""

import asyncio
import ssl
from collections.abc import AsyncIterator

import pytest

from ringback.domain.attempt_category import AttemptCategory
from ringback.domain.delivery import AttemptResult
from ringback.notifier.http.failures import result_from_error
from ringback.notifier.http.sender import (
    EXCERPT_BYTES_MAX,
    RESPONSE_BODY_BYTES_MAX,
    outgoing_headers,
    read_body_prefix,
    result_from_response,
)
from ringback.signing.resume_token import ResumeClaims, ResumeTokenCodec
from tests.support.clock import START
from tests.support.limits import WAIT_SECONDS


class BrokenStream(Exception):
    pass


class ChunkSource:
    """Gives a chunk of 1,000 bytes as often as it is asked, up to `chunks`, and then breaks or ends."""

    def __init__(self, chunks: int, *, breaks: bool = False) -> None:
        self._chunks = chunks
        self._breaks = breaks
        self.given = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while self.given < self._chunks:
            self.given += 1
            yield b"s" * 1000
        if self._breaks:
            raise BrokenStream


async def read(source: ChunkSource) -> bytes:
    until = asyncio.get_running_loop().time() + WAIT_SECONDS
    return await read_body_prefix(source, until=until, broken_body_errors=(BrokenStream,))


async def test_a_short_body_is_read_to_its_end() -> None:
    assert await read(ChunkSource(1)) == b"s" * 1000


async def test_no_more_is_read_than_the_limit_and_no_more_kept_than_the_excerpt() -> None:
    source = ChunkSource(1_000_000)

    assert len(await read(source)) == EXCERPT_BYTES_MAX
    assert source.given == RESPONSE_BODY_BYTES_MAX // 1000 + 1


async def test_a_body_that_breaks_off_keeps_its_beginning() -> None:
    assert await read(ChunkSource(1, breaks=True)) == b"s" * 1000


async def test_a_body_that_hangs_keeps_its_beginning() -> None:
    async def hangs() -> AsyncIterator[bytes]:
        yield b"begin"
        await asyncio.Event().wait()

    until = asyncio.get_running_loop().time() + 0.05

    assert await read_body_prefix(hangs(), until=until, broken_body_errors=()) == b"begin"


def test_our_own_headers_are_added_and_win() -> None:
    sent = outgoing_headers({"webhook-id": "evt_1", "user-agent": "another client"})

    assert sent["webhook-id"] == "evt_1"
    assert sent["user-agent"].startswith("Ringback/")


@pytest.mark.parametrize("name", ["a\r\nb", "a\nb", "ä", "a\0"])
def test_a_header_name_that_could_break_its_line_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="printable ASCII"):
        outgoing_headers({name: "value"})


def test_a_refused_header_does_not_show_its_value() -> None:
    with pytest.raises(ValueError, match="webhook-signature") as refused:
        outgoing_headers({"webhook-signature": "v1,secret\n"})

    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("head", "excerpt"),
    [
        (b"", None),
        (b"plain\n\ttext", "plain\n\ttext"),
        ("grüße 🎉".encode(), "grüße 🎉"),
        (b"\x1b[31mred\x00\r\n", "�[31mred��\n"),
        (b"\xff\xfe", "��"),
        ("\u202ebidi\u2028".encode(), "�bidi�"),
    ],
)
def test_an_excerpt_holds_nothing_that_a_terminal_obeys(head: bytes, excerpt: str | None) -> None:
    assert result_from_response(500, retry_after=None, body_prefix=head, now=START).excerpt == excerpt


def test_an_answer_is_what_its_status_says() -> None:
    assert result_from_response(429, retry_after="12", body_prefix=b"wait", now=START) == AttemptResult(
        category=AttemptCategory.HTTP_4XX, status_code=429, retry_after_seconds=12.0, excerpt="wait"
    )


@pytest.mark.parametrize(
    ("error", "category"),
    [
        (OSError("no route"), AttemptCategory.CONNECTION_BROKEN),
        (ConnectionResetError(), AttemptCategory.CONNECTION_BROKEN),
        (TimeoutError(), AttemptCategory.TIMEOUT),
        (ssl.SSLCertVerificationError("expired"), AttemptCategory.CERTIFICATE_UNTRUSTED),
    ],
)
def test_a_failure_is_found_below_what_clients_wrap_around_it(error: Exception, category: AttemptCategory) -> None:
    wrapped = BrokenStream()
    wrapped.__cause__ = BrokenStream()
    wrapped.__cause__.__context__ = error

    assert result_from_error(error).category is result_from_error(wrapped).category is category


def test_the_nearest_cause_decides_the_category() -> None:
    """A handshake that hangs is a timeout, although OpenSSL was still wanting to read when it was cancelled."""
    timeout = TimeoutError()
    timeout.__context__ = ssl.SSLWantReadError()

    assert result_from_error(timeout).category is AttemptCategory.TIMEOUT


def test_a_token_that_a_receiver_echoes_is_worthless_in_its_excerpt() -> None:
    tokens = ResumeTokenCodec([b"k" * 32], audience="test")
    claims = ResumeClaims(call_id="call_1", principal="alice", token_version=1, cursor_seq=0, expires_at=2**31)
    token = tokens.encode_token(claims)

    answer = result_from_response(500, retry_after=None, body_prefix=f'you said "{token}" and more'.encode(), now=START)

    assert answer.excerpt == f'you said "{token.partition(".")[0]}.[hidden]" and more'
