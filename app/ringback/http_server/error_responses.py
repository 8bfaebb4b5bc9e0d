"""Responses to requests that the server rejects before the application: problem documents, encoded as whole responses."""

from collections.abc import Sequence
from functools import cache
from http import HTTPStatus

from ringback.api.http_errors import HeadersTooLarge, MalformedRequest, RequestTooSlow, TooManyConnections, UrlTooLong
from ringback.api.problems import problem_response
from ringback.domain.errors import RingbackError

MALFORMED_REQUEST = MalformedRequest("The request is not valid HTTP/1.1. Nothing was done.")
REQUEST_TOO_SLOW = RequestTooSlow(
    "The rest of the request did not arrive in time. Nothing was done. Send the whole request again."
)
TOO_MANY_CONNECTIONS = TooManyConnections(
    "There are too many connections, in all or from your address. Nothing was read. Close some, or reuse those that are "
    "open. The operator can raise RINGBACK_CONNECTIONS_MAX or RINGBACK_PEER_CONNECTIONS_MAX, or list your proxy in "
    "RINGBACK_TRUSTED_PROXIES."
)


@cache
def url_too_long_error(bytes_max: int) -> UrlTooLong:
    return UrlTooLong(f"The URL is longer than {bytes_max} bytes. Nothing was done. Send long values in the body.")


@cache
def headers_too_large_error(bytes_max: int, count_max: int) -> HeadersTooLarge:
    return HeadersTooLarge(
        f"The request has more than {count_max} headers, or more than {bytes_max} bytes of them. Nothing was done. Send fewer "
        "or smaller ones."
    )


def encode_error_response(error: RingbackError, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    """The whole response; `headers` are the server's default headers."""
    head, rest = _response_prefix_and_suffix(error)
    return head + b"".join(b"%b: %b\r\n" % header for header in headers) + rest


@cache
def _response_prefix_and_suffix(error: RingbackError) -> tuple[bytes, bytes]:
    """The status line, and everything from the problem's own headers on. Cached: there are five errors."""
    response = problem_response(error)
    status = HTTPStatus(response.status_code)
    own = b"".join(b"%b: %b\r\n" % header for header in response.raw_headers)
    line = f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode()
    return line, own + b"connection: close\r\n\r\n" + bytes(response.body)
