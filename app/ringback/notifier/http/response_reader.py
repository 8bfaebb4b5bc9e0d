"""One answer of a receiver, read from bytes: no sockets, no clock.

llhttp (the parser of Node, in httptools) takes HTTP/1 apart and refuses what is ambiguous: two lengths, a length beside
chunks, bare line ends. What it lets pass and a callback has no use for is refused here: other protocols that look like HTTP,
HTTP/0.9 and 2.0, statuses that do not exist, heads without end.

    feed ──▶ status_code == 0       nothing is known yet, and BadAnswer means that nothing ever will
             status_code, complete  the receiver has answered; what its body does afterwards cannot undo that
"""

from typing import Final

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from ringback.notifier.http.sender import BODY_PREFIX_BYTES_MAX, FINAL_RESPONSE_STATUS_CODES, RESPONSE_BODY_BYTES_MAX

RESPONSE_HEADER_BYTES_MAX: Final = 64 * 1024
"""Before the end of the final headers, informational answers included: four times what Node accepts (16 KiB)."""
INFORMATIONAL_RESPONSES_MAX: Final = 16
"""Answers of the kind 1xx before the final one. A server that means them sends one or two."""

_VERSIONS: Final = frozenset({"1.0", "1.1"})
_FIRST_BYTE: Final = ord("H")  # llhttp also reads RTSP/1.0 and ICE/1.0, and skips line ends that nobody asked for
_RETRY_AFTER: Final = b"retry-after"
_SWITCHING_PROTOCOLS: Final = 101


class InvalidResponse(ConnectionError):
    """These bytes are no answer."""


class TooManyInformationalResponses(InvalidResponse):
    """More informational answers than anybody means; the final one is not in sight."""


class ResponseReader:
    """What one answer says; `begin` forgets it and expects the next one. The `on_…` methods are httptools'."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """A parser of its own for each answer, so that nothing of one can leak into the next (0.4 µs)."""
        self.status_code = 0
        self.retry_after: str | None = None
        self.body_prefix = bytearray()
        """The first `ASKED_BYTES_MAX` of the body."""
        self.received_bytes = 0
        """Bytes, whatever they are."""
        self.is_complete = False
        """Nothing more is to be read, because the answer is over, broken or too long."""
        self.is_cleanly_framed = False
        """The answer ended by its own framing, with the last byte that came, and its sender means to go on."""
        self._informational = 0
        self._keeps_alive = False
        self._parser = HttpResponseParser(self)

    def feed_data(self, data: bytes) -> None:
        """Take the next bytes, at least one. Raises BadAnswer unless there is a status, or may still be one.

        What is told does not depend on how the bytes were cut into packets.
        """
        self.is_cleanly_framed = False
        bytes_left = RESPONSE_HEADER_BYTES_MAX - self.received_bytes
        self.received_bytes += len(data)
        if self.received_bytes == len(data) and data[0] != _FIRST_BYTE:
            raise InvalidResponse("an answer begins with HTTP/1")
        if len(data) > bytes_left and not self.status_code:
            self._parse(data[:bytes_left])
            if not self.status_code:
                raise InvalidResponse(f"no status within {RESPONSE_HEADER_BYTES_MAX} bytes")
            data = data[bytes_left:]
        self._parse(data)
        if self.received_bytes >= RESPONSE_HEADER_BYTES_MAX + RESPONSE_BODY_BYTES_MAX:
            self.is_complete = True

    def _parse(self, data: bytes) -> None:
        """Feed all but the last byte, then the last: an answer that is complete before has something behind it."""
        has_surplus = True
        try:
            self._parser.feed_data(data[:-1])
            if not self.is_complete:
                has_surplus = False
                self._parser.feed_data(data[-1:])
        except (HttpParserError, HttpParserUpgrade) as error:
            self._handle_parse_error(error)
        else:
            self.is_cleanly_framed = self.is_complete and self._keeps_alive and not has_surplus

    def _handle_parse_error(self, error: Exception) -> None:
        if self._informational > INFORMATIONAL_RESPONSES_MAX:
            raise TooManyInformationalResponses from error
        if not self.status_code:
            raise InvalidResponse(str(error)) from error
        self.is_complete = True  # the body broke its own framing, or bytes came after it

    def on_header(self, name: bytes, value: bytes) -> None:
        """The first Retry-After; not one of a trailer, which comes when it cannot be relied on any more."""
        if len(name) == len(_RETRY_AFTER) and not self.status_code and name.lower() == _RETRY_AFTER:
            self.retry_after = self.retry_after or value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if self.status_code:
            raise InvalidResponse("an answer that nobody asked for")
        status_code = self._parser.get_status_code()
        if status_code // 100 == 1 and status_code != _SWITCHING_PROTOCOLS:
            self._skip_informational()
        elif status_code not in FINAL_RESPONSE_STATUS_CODES or self._parser.get_http_version() not in _VERSIONS:
            raise InvalidResponse("no final status of HTTP/1")
        else:
            self.status_code = status_code

    def on_body(self, body: bytes) -> None:
        self.body_prefix += body[: BODY_PREFIX_BYTES_MAX - len(self.body_prefix)]

    def on_message_complete(self) -> None:
        if self.status_code:
            self._keeps_alive = self._parser.should_keep_alive()
            self.is_complete = True

    def _skip_informational(self) -> None:
        self.retry_after = None
        self._informational += 1
        if self._informational > INFORMATIONAL_RESPONSES_MAX:
            raise TooManyInformationalResponses
