"""The interface between the dispatcher and the network: one POST in, one AttemptResult out; receivers cause no exceptions.

    dispatcher ──▶ Sender.post ──▶ Http1Sender   production: guarded and pooled
                                 ╰▶ HttpxSender  over a given httpx transport

Both senders share everything in this file: limits, added headers, reading of responses, and the category of each failure.
Once the status line has arrived, the status is the result. A body that stalls, breaks off or never ends only shortens the
excerpt: a receiver that has sent 204 has accepted the callback and must not get it again.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Final, Literal, Protocol

from ringback import __version__
from ringback.backoff import parse_retry_after
from ringback.domain.attempt_category import AttemptCategory
from ringback.domain.delivery import AttemptResult, category_for_status_code
from ringback.domain.principal import Principal
from ringback.notifier.http.caching_resolver import NO_PRINCIPAL
from ringback.notifier.http.failures import describe_location
from ringback.notifier.http.target import Target
from ringback.signing.resume_token import redact_tokens

CONNECT_SECONDS: Final = 3.0
"""TCP and TLS together. It allows for one lost SYN: Linux sends the second after 1 s and the third after 3 s."""
ATTEMPT_SECONDS: Final = 10.0
"""One attempt, from lookup to response: the same as GitHub, twice that of Shopify."""
RESPONSE_BODY_BYTES_MAX: Final = 64 * 1024
"""The sender reads this much of a response body, so that the connection survives an ordinary error page."""
EXCERPT_BYTES_MAX: Final = 1024
"""The part of the body that the attempt log keeps: enough for an error message."""

BODY_PREFIX_BYTES_MAX: Final = 16 * 1024
"""The part of a body that callers may inspect: a challenge response has some 60 bytes, a receiver list has room for
hundreds of prefixes."""

FINAL_RESPONSE_STATUS_CODES: Final = range(200, 600)
"""RFC 9110 §15. The sender never requests a protocol upgrade, so 101 is not valid."""

ADDED_HEADERS: Final = {
    "user-agent": f"Ringback/{__version__}",
    "accept-encoding": "identity",  # the sender does not decompress responses
}


class Sender(Protocol):
    async def post(
        self,
        target: Target,
        headers: Mapping[str, str],
        body: bytes,
        *,
        principal: Principal = NO_PRINCIPAL,
        deadline_seconds: float = ATTEMPT_SECONDS,
    ) -> AttemptResult:
        """POST `body` once and return the result within `deadline_seconds`. Redirects are not followed.

        The lookup of the host counts against the limit of `principal`. Raises ValueError only for headers that cannot be
        sent, which is a bug in the caller.
        """
        ...

    async def aclose(self) -> None: ...


RequestMethod = Literal["GET", "POST"]


class HttpRequester(Protocol):
    """Sends requests whose response body the caller reads."""

    async def send_request(
        self,
        method: RequestMethod,
        target: Target,
        headers: Mapping[str, str],
        body: bytes,
        *,
        principal: Principal = NO_PRINCIPAL,
        deadline_seconds: float,
    ) -> tuple[AttemptResult, bytes]:
        """The result of one request and the first `BODY_PREFIX_BYTES_MAX` of the response body; otherwise as `Sender.post`."""
        ...


class BaseSender(ABC):
    """A Sender and HttpRequester over the one method `exchange_request`."""

    @abstractmethod
    async def exchange_request(
        self,
        method: RequestMethod,
        target: Target,
        headers: Mapping[str, str],
        body: bytes,
        *,
        principal: Principal,
        deadline_seconds: float,
    ) -> tuple[AttemptResult, bytes]:
        """As `HttpRequester.send_request`, with the final headers."""

    async def post(
        self,
        target: Target,
        headers: Mapping[str, str],
        body: bytes,
        *,
        principal: Principal = NO_PRINCIPAL,
        deadline_seconds: float = ATTEMPT_SECONDS,
    ) -> AttemptResult:
        result, _ = await self.send_request(
            "POST", target, headers, body, principal=principal, deadline_seconds=deadline_seconds
        )
        return result

    async def send_request(
        self,
        method: RequestMethod,
        target: Target,
        headers: Mapping[str, str],
        body: bytes,
        *,
        principal: Principal = NO_PRINCIPAL,
        deadline_seconds: float,
    ) -> tuple[AttemptResult, bytes]:
        sent = outgoing_headers(headers)
        return await self.exchange_request(
            method, target, sent, body, principal=principal, deadline_seconds=deadline_seconds
        )


def outgoing_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The final headers; raises ValueError for a header that contains anything but printable ASCII."""
    if not _is_printable_ascii("".join([*headers, *headers.values()])):
        (name, *_) = (each for each, value in headers.items() if not _is_printable_ascii(each + value))
        raise ValueError(f"The header {name!r} contains characters other than printable ASCII.")
    return {**headers, **ADDED_HEADERS}


def _is_printable_ascii(text: str) -> bool:
    return text.isascii() and text.isprintable()


async def read_body_prefix(
    chunks: AsyncIterable[bytes],
    *,
    until: float,
    broken_body_errors: tuple[type[Exception], ...],
    bytes_max: int = EXCERPT_BYTES_MAX,
) -> bytes:
    """The first `bytes_max` of a body; reads about `RESPONSE_BODY_BYTES_MAX` of it, until the loop time `until`.

    `broken_body_errors` are the errors that mean that the body broke off.
    """
    prefix = bytearray()
    with suppress(TimeoutError, *broken_body_errors):
        async with asyncio.timeout_at(until):
            await _read_chunks(chunks, prefix, bytes_max)
    return bytes(prefix)


async def _read_chunks(chunks: AsyncIterable[bytes], prefix: bytearray, bytes_max: int) -> None:
    read = 0
    async for chunk in chunks:
        prefix += chunk[: bytes_max - len(prefix)]
        read += len(chunk)
        if read >= RESPONSE_BODY_BYTES_MAX:
            return


def result_from_response(
    status_code: int, *, retry_after: str | None, location: str | None = None, body_prefix: bytes, now: datetime
) -> AttemptResult:
    """A receiver's response as the attempt log keeps it, with an excerpt of its body, and where a redirect leads.

    The excerpt is redacted: a receiver that echoes the request echoes its resume token, which is stored only encrypted.
    """
    if status_code not in FINAL_RESPONSE_STATUS_CODES:
        return AttemptResult(category=AttemptCategory.INVALID_RESPONSE, detail=describe_status_code(status_code))
    category = category_for_status_code(status_code)
    return AttemptResult(
        category=category,
        status_code=status_code,
        retry_after_seconds=parse_retry_after(retry_after, now=now),
        excerpt=redact_tokens(_printable_text(body_prefix[:EXCERPT_BYTES_MAX])) if body_prefix else None,
        detail=describe_location(location) if location and category is AttemptCategory.HTTP_3XX else None,
    )


def describe_status_code(status_code: int) -> str:
    """What is wrong with a status that ends no response."""
    first, last = FINAL_RESPONSE_STATUS_CODES[0], FINAL_RESPONSE_STATUS_CODES[-1]
    return f"the status {status_code} is not one of {first} to {last}"


def _printable_text(head: bytes) -> str:
    text = head.decode("utf-8", errors="replace")
    return "".join(character if character.isprintable() or character in "\n\t" else "�" for character in text)
