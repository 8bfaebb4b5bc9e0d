"""Parses one response of a receiver from bytes: no sockets, no clock.

llhttp (Node's parser, in httptools) parses HTTP/1 and refuses ambiguous framing: two lengths, a length beside chunks, bare
line ends. This module also refuses other protocols that look like HTTP, HTTP/0.9 and 2.0, invalid status codes and endless
headers.

    feed_data ──▶ status_code == 0    no status yet; InvalidResponse means that none can follow
                  status_code != 0    the receiver has responded; a broken body cannot change that
"""

from typing import Final

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from ringback.notifier.http.failures import InvalidResponse
from ringback.notifier.http.sender import (
    BODY_PREFIX_BYTES_MAX,
    FINAL_RESPONSE_STATUS_CODES,
    RESPONSE_BODY_BYTES_MAX,
    describe_status_code,
)

RESPONSE_HEADER_BYTES_MAX: Final = 64 * 1024
"""Up to the end of the final headers, informational responses included: four times the limit of Node (16 KiB)."""
INFORMATIONAL_RESPONSES_MAX: Final = 16
"""Responses with a 1xx status before the final one. Real servers send one or two."""

LOCATION_BYTES_MAX: Final = 2048
"""As long as the longest callback URL (`target.URL_LENGTH_MAX`)."""

_VERSIONS: Final = frozenset({"1.0", "1.1"})
_FIRST_BYTE: Final = ord("H")  # llhttp also reads RTSP/1.0 and ICE/1.0, and skips leading line ends
_RETRY_AFTER: Final = b"retry-after"
_LOCATION: Final = b"location"
_SWITCHING_PROTOCOLS: Final = 101


class TooManyInformationalResponses(InvalidResponse):
    """More than `INFORMATIONAL_RESPONSES_MAX` responses with a 1xx status."""


class ResponseReader:
    """Reads one response; `reset` prepares for the next one. httptools calls the `on_…` methods."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Create a new parser, so that nothing leaks from one response into the next (0.4 µs)."""
        self.status_code = 0
        self.retry_after: str | None = None
        self.location: str | None = None
        self.body_prefix = bytearray()
        """The first `BODY_PREFIX_BYTES_MAX` of the body."""
        self.received_bytes = 0
        self.is_complete = False
        """Whether reading may stop, because the response is complete, broken or too long."""
        self.is_cleanly_framed = False
        """Whether the response ended by its own framing with the last byte received, and the server keeps the connection."""
        self._informational = 0
        self._keeps_alive = False
        self._parser = HttpResponseParser(self)

    def feed_data(self, data: bytes) -> None:
        """Read the next bytes, at least one. Raises InvalidResponse if no status has arrived and none can follow.

        The result does not depend on how the bytes were split into packets.
        """
        self.is_cleanly_framed = False
        bytes_left = RESPONSE_HEADER_BYTES_MAX - self.received_bytes
        self.received_bytes += len(data)
        if self.received_bytes == len(data) and data[0] != _FIRST_BYTE:
            raise InvalidResponse("a response begins with HTTP/1")
        if len(data) > bytes_left and not self.status_code:
            self._parse(data[:bytes_left])
            if not self.status_code:
                raise InvalidResponse(f"no status within {RESPONSE_HEADER_BYTES_MAX} bytes")
            data = data[bytes_left:]
        self._parse(data)
        if self.received_bytes >= RESPONSE_HEADER_BYTES_MAX + RESPONSE_BODY_BYTES_MAX:
            self.is_complete = True

    def _parse(self, data: bytes) -> None:
        """Feed all but the last byte, then the last: a response that is complete before the last byte has surplus bytes."""
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
            raise InvalidResponse(_describe_parse_error(error)) from error
        self.is_complete = True  # the body broke its framing, or bytes followed it

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep the first Retry-After and Location headers; trailers come after the status is final and are ignored."""
        if len(name) == len(_RETRY_AFTER) and not self.status_code and name.lower() == _RETRY_AFTER:
            self.retry_after = self.retry_after or value.decode("latin-1")
        elif len(name) == len(_LOCATION) and not self.status_code and name.lower() == _LOCATION:
            self.location = self.location or value[:LOCATION_BYTES_MAX].decode("latin-1")

    def on_headers_complete(self) -> None:
        if self.status_code:
            raise InvalidResponse("a second response")
        status_code, version = self._parser.get_status_code(), self._parser.get_http_version()
        if status_code // 100 == 1 and status_code != _SWITCHING_PROTOCOLS:
            self._skip_informational()
        elif version not in _VERSIONS:
            raise InvalidResponse(f"the response is HTTP/{version}, not HTTP/1")
        elif status_code not in FINAL_RESPONSE_STATUS_CODES:
            raise InvalidResponse(describe_status_code(status_code))
        else:
            self.status_code = status_code

    def on_body(self, body: bytes) -> None:
        self.body_prefix += body[: BODY_PREFIX_BYTES_MAX - len(self.body_prefix)]

    def on_message_complete(self) -> None:
        if self.status_code:
            self._keeps_alive = self._parser.should_keep_alive()
            self.is_complete = True

    def _skip_informational(self) -> None:
        self.retry_after = self.location = None
        self._informational += 1
        if self._informational > INFORMATIONAL_RESPONSES_MAX:
            raise TooManyInformationalResponses


def _describe_parse_error(error: Exception) -> str:
    """What is wrong with the response. llhttp's own text for an error of an `on_…` method does not say it; the cause does."""
    return str(error.__context__) if isinstance(error.__context__, InvalidResponse) else str(error)
