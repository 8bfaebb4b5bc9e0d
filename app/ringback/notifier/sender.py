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
from ringback.domain.delivery import Answer, Category, category_of
from ringback.domain.principal import Principal
from ringback.domain.retry import parse_retry_after
from ringback.notifier.look_ups import NO_PRINCIPAL
from ringback.notifier.resolver import LookUpFailed, NameNotFound
from ringback.notifier.target_guard import Target
from ringback.signing.resume_token import without_signatures

CONNECT_SECONDS: Final = 3.0
"""TCP and TLS together. One lost SYN is survived: Linux sends the next after 1 s, and the third only after 3 s."""
ATTEMPT_SECONDS: Final = 10.0
"""One attempt from look-up to answer: GitHub's figure, and twice Shopify's."""
ANSWER_BYTES_MAX: Final = 64 * 1024
"""Read of an answer's body, so that an ordinary error page does not cost the connection."""
EXCERPT_BYTES_MAX: Final = 1024
"""Kept of it in the attempt log: enough to read an error message by."""

ASKED_BYTES_MAX: Final = 16 * 1024
"""Of an answer that is looked at: a challenge's has some 60 bytes, and a list of receivers has room for hundreds."""

FINAL_STATUSES: Final = range(200, 600)
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
    ) -> Answer:
        """POST `body` once and tell what came of it, at the latest when `deadline_seconds` have passed.

        The look-up of the host counts for `principal`.

        Redirects are not followed. Raises ValueError only for headers that cannot be sent, which is a fault of ours.
        """
        ...

    async def aclose(self) -> None:
        """Close every connection."""
        ...


Method = Literal["GET", "POST"]


class Asker(Protocol):
    """The same way out, for questions whose answer is read."""

    async def ask(
        self,
        method: Method,
        target: Target,
        headers: Mapping[str, str],
        body: bytes,
        *,
        principal: Principal = NO_PRINCIPAL,
        deadline_seconds: float,
    ) -> tuple[Answer, bytes]:
        """What came of one request, and the first `ASKED_BYTES_MAX` of the answer's body: under the terms of `Sender.post`."""
        ...


class OneExchange(ABC):
    """A Sender and Asker of whatever carries one request out and its answer back."""

    @abstractmethod
    async def exchange(
        self,
        method: Method,
        target: Target,
        headers: Mapping[str, str],
        body: bytes,
        *,
        principal: Principal,
        deadline_seconds: float,
    ) -> tuple[Answer, bytes]:
        """As `Asker.ask`, with the headers as they are sent."""

    async def post(
        self,
        target: Target,
        headers: Mapping[str, str],
        body: bytes,
        *,
        principal: Principal = NO_PRINCIPAL,
        deadline_seconds: float = ATTEMPT_SECONDS,
    ) -> Answer:
        sent = outgoing_headers(headers)
        answer, _ = await self.exchange(
            "POST", target, sent, body, principal=principal, deadline_seconds=deadline_seconds
        )
        return answer

    async def ask(
        self,
        method: Method,
        target: Target,
        headers: Mapping[str, str],
        body: bytes,
        *,
        principal: Principal = NO_PRINCIPAL,
        deadline_seconds: float,
    ) -> tuple[Answer, bytes]:
        sent = outgoing_headers(headers)
        return await self.exchange(method, target, sent, body, principal=principal, deadline_seconds=deadline_seconds)


def outgoing_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers as sent; raises ValueError for one that could break out of its line."""
    for name, value in headers.items():
        if not (name.isascii() and name.isprintable() and value.isascii() and value.isprintable()):
            raise ValueError(f"The header {name!r} holds other than printable ASCII.")
    return {**headers, **ADDED_HEADERS}


async def read_head(
    chunks: AsyncIterable[bytes],
    *,
    until: float,
    broken: tuple[type[Exception], ...],
    bytes_max: int = EXCERPT_BYTES_MAX,
) -> bytes:
    """The first `bytes_max` of a body, of which at most about `ANSWER_BYTES_MAX` are read.

    Ends at the loop time `until` at the latest. `broken` are the errors that mean the body broke off.
    """
    head = bytearray()
    with suppress(TimeoutError, *broken):
        async with asyncio.timeout_at(until):
            await _read(chunks, head, bytes_max)
    return bytes(head)


async def _read(chunks: AsyncIterable[bytes], head: bytearray, bytes_max: int) -> None:
    read = 0
    async for chunk in chunks:
        head += chunk[: bytes_max - len(head)]
        read += len(chunk)
        if read >= ANSWER_BYTES_MAX:
            return


def answered(status_code: int, *, retry_after: str | None, head: bytes, now: datetime) -> Answer:
    """A receiver's answer as the attempt log keeps it; of its body so much as fits into an excerpt.

    Receivers that echo what they got echo its resume token, which is kept nowhere but sealed.
    """
    if status_code not in FINAL_STATUSES:
        return Answer(category=Category.CONNECTION_REFUSED)
    return Answer(
        category=category_of(status_code),
        status_code=status_code,
        retry_after_seconds=parse_retry_after(retry_after, now=now),
        excerpt=without_signatures(_printable(head[:EXCERPT_BYTES_MAX])) if head else None,
    )


def failed(error: BaseException) -> Answer:
    """No answer. Clients wrap what happened: the nearest cause that is about names, time or TLS tells, else nobody served."""
    for cause in _causes(error):
        if isinstance(cause, LookUpFailed):
            return Answer(category=Category.LOOK_UP_FAILED)
        if isinstance(cause, NameNotFound):
            return Answer(category=Category.NAME_NOT_FOUND)
        if isinstance(cause, TimeoutError):
            return Answer(category=Category.TIMEOUT)
        if isinstance(cause, ssl.SSLError):
            return Answer(category=Category.TLS_ERROR)
    return Answer(category=Category.CONNECTION_REFUSED)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__  # httpcore raises its own errors without `from`


def _printable(head: bytes) -> str:
    text = head.decode("utf-8", errors="replace")
    return "".join(character if character.isprintable() or character in "\n\t" else "�" for character in text)
