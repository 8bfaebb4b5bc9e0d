"""The seam between the dispatcher and the network: one POST in, one Answer out, and nothing is ever raised for a receiver.

    dispatcher ──▶ Sender.post ──▶ Http1Sender   production: guarded, pooled, fast
                                 ╰▶ HttpxSender  over a transport that somebody hands in

Both senders agree on everything in this file: the limits, the headers they add, how an answer is read, and into which
category a failure falls. Once a status line has arrived, the status is the answer; what its body does afterwards (drip,
break off, never end) only shortens the excerpt. A receiver that said 204 has it, and must not get it twice.
"""

import asyncio
import ssl
from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Final, Literal, Protocol

from ringback import __version__
from ringback.domain.delivery import AttemptCategory, AttemptResult, category_for_status_code
from ringback.domain.principal import Principal
from ringback.domain.retry import parse_retry_after
from ringback.notifier.http.caching_resolver import NO_PRINCIPAL
from ringback.notifier.http.guard import Target
from ringback.notifier.http.resolver import LookupFailed, NameNotFound
from ringback.signing.resume_token import redact_tokens

CONNECT_SECONDS: Final = 3.0
"""TCP and TLS together. One lost SYN is survived: Linux sends the next after 1 s, and the third only after 3 s."""
ATTEMPT_SECONDS: Final = 10.0
"""One attempt from look-up to answer: GitHub's figure, and twice Shopify's."""
RESPONSE_BODY_BYTES_MAX: Final = 64 * 1024
"""Read of an answer's body, so that an ordinary error page does not cost the connection."""
EXCERPT_BYTES_MAX: Final = 1024
"""Kept of it in the attempt log: enough to read an error message by."""

BODY_PREFIX_BYTES_MAX: Final = 16 * 1024
"""Of an answer that is looked at: a challenge's has some 60 bytes, and a list of receivers has room for hundreds."""

FINAL_RESPONSE_STATUS_CODES: Final = range(200, 600)
"""What an answer can be (RFC 9110 §15). We ask for no other protocol, so 101 is none."""

ADDED_HEADERS: Final = {
    "user-agent": f"Ringback/{__version__}",
    "accept-encoding": "identity",  # answers are never inflated, so none should be compressed
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
        """POST `body` once and tell what came of it, at the latest when `deadline_seconds` have passed.

        The look-up of the host counts for `principal`.

        Redirects are not followed. Raises ValueError only for headers that cannot be sent, which is a fault of ours.
        """
        ...

    async def aclose(self) -> None:
        """Close every connection."""
        ...


RequestMethod = Literal["GET", "POST"]


class HttpRequester(Protocol):
    """The same way out, for questions whose answer is read."""

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
        """What came of one request, and the first `ASKED_BYTES_MAX` of the answer's body: under the terms of `Sender.post`."""
        ...


class BaseSender(ABC):
    """A Sender and Asker of whatever carries one request out and its answer back."""

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
        """As `Asker.ask`, with the headers as they are sent."""

    async def post(
        self,
        target: Target,
        headers: Mapping[str, str],
        body: bytes,
        *,
        principal: Principal = NO_PRINCIPAL,
        deadline_seconds: float = ATTEMPT_SECONDS,
    ) -> AttemptResult:
        sent = outgoing_headers(headers)
        result, _ = await self.exchange_request(
            "POST", target, sent, body, principal=principal, deadline_seconds=deadline_seconds
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
    """The headers as sent; raises ValueError for one that could break out of its line."""
    for name, value in headers.items():
        if not (name.isascii() and name.isprintable() and value.isascii() and value.isprintable()):
            raise ValueError(f"The header {name!r} holds other than printable ASCII.")
    return {**headers, **ADDED_HEADERS}


async def read_body_prefix(
    chunks: AsyncIterable[bytes],
    *,
    until: float,
    broken_body_errors: tuple[type[Exception], ...],
    bytes_max: int = EXCERPT_BYTES_MAX,
) -> bytes:
    """The first `bytes_max` of a body, of which at most about `ANSWER_BYTES_MAX` are read.

    Ends at the loop time `until` at the latest. `broken` are the errors that mean the body broke off.
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
    status_code: int, *, retry_after: str | None, body_prefix: bytes, now: datetime
) -> AttemptResult:
    """A receiver's answer as the attempt log keeps it; of its body so much as fits into an excerpt.

    Receivers that echo what they got echo its resume token, which is kept nowhere but sealed.
    """
    if status_code not in FINAL_RESPONSE_STATUS_CODES:
        return AttemptResult(category=AttemptCategory.CONNECTION_REFUSED)
    return AttemptResult(
        category=category_for_status_code(status_code),
        status_code=status_code,
        retry_after_seconds=parse_retry_after(retry_after, now=now),
        excerpt=redact_tokens(_printable_text(body_prefix[:EXCERPT_BYTES_MAX])) if body_prefix else None,
    )


def result_from_error(error: BaseException) -> AttemptResult:
    """No answer. Clients wrap what happened: the nearest cause that is about names, time or TLS tells, else nobody served."""
    for cause in _error_causes(error):
        if isinstance(cause, LookupFailed):
            return AttemptResult(category=AttemptCategory.LOOK_UP_FAILED)
        if isinstance(cause, NameNotFound):
            return AttemptResult(category=AttemptCategory.NAME_NOT_FOUND)
        if isinstance(cause, TimeoutError):
            return AttemptResult(category=AttemptCategory.TIMEOUT)
        if isinstance(cause, ssl.SSLError):
            return AttemptResult(category=AttemptCategory.TLS_ERROR)
    return AttemptResult(category=AttemptCategory.CONNECTION_REFUSED)


def _error_causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__  # httpcore raises its own errors without `from`


def _printable_text(head: bytes) -> str:
    text = head.decode("utf-8", errors="replace")
    return "".join(character if character.isprintable() or character in "\n\t" else "�" for character in text)
