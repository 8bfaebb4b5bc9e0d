"""Failures of one attempt: an error for each stage of a connection, and the category and detail of any error.

lookup            UnresolvedHost (resolver), BlockedAddress (guard)
connection        ConnectTimeout, ProxyFailed, ConnectionRefusedError and other OSErrors
TLS               TlsTimeout, ssl.SSLError
request, response ResponseTimeout, BodyNotRead, InvalidResponse, ConnectionError
"""

import errno
import re
import ssl
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from ringback.domain.attempt_category import AttemptCategory
from ringback.domain.delivery import DETAIL_LENGTH_MAX, AttemptResult
from ringback.notifier.http.guard import BlockedAddress
from ringback.notifier.http.resolver import LookupFailed, NameNotFound
from ringback.signing.resume_token import redact_tokens


class ConnectTimeout(TimeoutError):
    """No address of the host, or the egress proxy, accepted a connection in time."""


class TlsTimeout(TimeoutError):
    """The TLS handshake did not end in time."""


class ResponseTimeout(TimeoutError):
    """The request was written, and no status arrived in time."""


class BodyNotRead(ConnectionError):
    """The receiver did not read the request to its end, and sent no status."""


class InvalidResponse(ConnectionError):
    """These bytes are no HTTP/1 response."""


class ProxyFailed(OSError):
    """The egress proxy is unreachable, or does not connect to receivers."""


_CATEGORIES_BY_ERROR: Final[tuple[tuple[type[BaseException], AttemptCategory], ...]] = (
    (LookupFailed, AttemptCategory.LOOK_UP_FAILED),
    (NameNotFound, AttemptCategory.NAME_NOT_FOUND),
    (BlockedAddress, AttemptCategory.BLOCKED_ADDRESS),
    (ProxyFailed, AttemptCategory.PROXY_FAILED),
    (ConnectTimeout, AttemptCategory.CONNECT_TIMEOUT),
    (TlsTimeout, AttemptCategory.TLS_TIMEOUT),
    (ResponseTimeout, AttemptCategory.RESPONSE_TIMEOUT),
    (BodyNotRead, AttemptCategory.BODY_NOT_READ),
    (InvalidResponse, AttemptCategory.INVALID_RESPONSE),
    (TimeoutError, AttemptCategory.TIMEOUT),
)
"""The first row that matches decides, so narrower errors precede wider ones."""

_CERTIFICATE_CATEGORIES: Final[Mapping[int, AttemptCategory]] = MappingProxyType(
    {
        9: AttemptCategory.CERTIFICATE_EXPIRED,  # not yet valid
        10: AttemptCategory.CERTIFICATE_EXPIRED,
        62: AttemptCategory.CERTIFICATE_NAME_MISMATCH,  # host name
        64: AttemptCategory.CERTIFICATE_NAME_MISMATCH,  # IP address
    }
)
"""By OpenSSL's X509_V_ERR_… codes (x509_vfy.h); every other one means that no trusted authority vouches for the certificate."""

_CLIENT_CERTIFICATE_ALERTS: Final = re.compile(r"ALERT_(\w*CERTIFICATE\w*|UNKNOWN_CA)\Z")
"""TLS alerts about our certificate (RFC 8446 §6.2), as OpenSSL names them: TLSV13_ALERT_CERTIFICATE_REQUIRED and others."""

_CATEGORIES_BY_ERRNO: Final[Mapping[int, AttemptCategory]] = MappingProxyType(
    {
        errno.EHOSTUNREACH: AttemptCategory.HOST_UNREACHABLE,
        errno.ENETUNREACH: AttemptCategory.HOST_UNREACHABLE,
        errno.EMFILE: AttemptCategory.INTERNAL_ERROR,  # open files of this process, and of the machine
        errno.ENFILE: AttemptCategory.INTERNAL_ERROR,
        errno.EADDRNOTAVAIL: AttemptCategory.INTERNAL_ERROR,  # no local port is free
    }
)

_USER_INFO: Final = re.compile(r"//[^/@]*@")


def result_from_error(error: BaseException) -> AttemptResult:
    """The result of an attempt without a response.

    The nearest cause that is a DNS, timeout, proxy or TLS error decides; without one, the nearest that has a known errno.
    """
    causes = list(_error_causes(error))
    for cause in causes:
        category = _specific_category(cause)
        if category is not None:
            return AttemptResult(category=category, detail=_describe_error(cause))
    for cause in causes:
        category = _general_category(cause)
        if category is not None:
            return AttemptResult(category=category, detail=_describe_error(cause))
    return AttemptResult(category=AttemptCategory.CONNECTION_BROKEN, detail=_describe_error(error))


def describe_location(location: str) -> str:
    """Where a redirect leads, for the attempt log: bounded, printable, without a query, a fragment or a password.

    A receiver may repeat the webhook's URL in it, whose query can be a secret.
    """
    address = location.partition("?")[0].partition("#")[0]
    return printable_detail(f"Location: {_USER_INFO.sub('//', address)}")


def printable_detail(text: str) -> str:
    """The text with escaped control characters, at most `DETAIL_LENGTH_MAX` characters long, without resume tokens."""
    escaped = "".join(each if each.isprintable() else f"\\x{ord(each):02x}" for each in redact_tokens(text))
    return escaped if len(escaped) <= DETAIL_LENGTH_MAX else f"{escaped[: DETAIL_LENGTH_MAX - 1]}…"


def _specific_category(error: BaseException) -> AttemptCategory | None:
    if isinstance(error, ssl.SSLCertVerificationError):
        verify_code = getattr(error, "verify_code", 0)
        return _CERTIFICATE_CATEGORIES.get(verify_code, AttemptCategory.CERTIFICATE_UNTRUSTED)
    if isinstance(error, ssl.SSLError):
        is_about_ours = _CLIENT_CERTIFICATE_ALERTS.search(_openssl_reason(error))
        return AttemptCategory.CLIENT_CERTIFICATE_REFUSED if is_about_ours else AttemptCategory.TLS_ERROR
    return next((category for kind, category in _CATEGORIES_BY_ERROR if isinstance(error, kind)), None)


def _general_category(error: BaseException) -> AttemptCategory | None:
    if isinstance(error, ConnectionRefusedError):
        return AttemptCategory.CONNECTION_REFUSED
    return _CATEGORIES_BY_ERRNO.get(error.errno or 0) if isinstance(error, OSError) else None


def _describe_error(error: BaseException) -> str | None:
    match error:
        case BlockedAddress():
            text = str(error.special_range)
        case ssl.SSLCertVerificationError():
            text = getattr(error, "verify_message", "") or str(error)
        case ssl.SSLError():
            text = _openssl_reason(error).replace("_", " ").lower() or str(error)
        case OSError() if error.strerror:
            text = error.strerror.lower()
        case _:
            text = str(error)
    return printable_detail(text) or None


def _openssl_reason(error: ssl.SSLError) -> str:
    """Such as WRONG_VERSION_NUMBER; empty for an error that does not come from OpenSSL."""
    return getattr(error, "reason", None) or ""


def _error_causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__  # httpcore raises its own errors without `from`
