"""The answers to requests that no application sees: problem documents, as the bytes of a whole response."""

from collections.abc import Sequence
from functools import cache
from http import HTTPStatus

from ringback.api.problems import (
    HeadersTooLarge,
    MalformedRequest,
    RequestTooSlow,
    TooManyConnections,
    UrlTooLong,
    problem_response,
)
from ringback.domain.errors import RingbackError

MALFORMED_REQUEST = MalformedRequest("The request cannot be read as HTTP/1.1. Nothing was done.")
REQUEST_TOO_SLOW = RequestTooSlow(
    "The rest of the request did not come in time. Nothing was done. Send it again, whole."
)
TOO_MANY_CONNECTIONS = TooManyConnections(
    "There are too many connections, in all or from your address. Nothing was read. Close some, use those that are open "
    "again, or have the operator raise RINGBACK_CONNECTIONS_MAX or RINGBACK_PEER_CONNECTIONS_MAX, or name your proxy in "
    "RINGBACK_TRUSTED_PROXIES."
)


@cache
def url_too_long_error(bytes_max: int) -> UrlTooLong:
    return UrlTooLong(f"The URL is longer than {bytes_max} bytes. Nothing was done. Send what is long in the body.")


@cache
def headers_too_large_error(bytes_max: int, count_max: int) -> HeadersTooLarge:
    return HeadersTooLarge(
        f"The headers are more than {count_max} or larger than {bytes_max} bytes. Nothing was done. Send fewer or smaller ones."
    )


def encode_error_response(error: RingbackError, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    """The whole response; `headers` are those of every response of this server."""
    head, rest = _response_prefix_and_suffix(error)
    return head + b"".join(b"%b: %b\r\n" % header for header in headers) + rest


@cache
def _response_prefix_and_suffix(error: RingbackError) -> tuple[bytes, bytes]:
    """The status line, and everything from our own headers on. There is a handful of errors, each made once."""
    response = problem_response(error)
    status = HTTPStatus(response.status_code)
    own = b"".join(b"%b: %b\r\n" % header for header in response.raw_headers)
    line = f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode()
    return line, own + b"connection: close\r\n\r\n" + bytes(response.body)
