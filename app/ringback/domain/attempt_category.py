"""How an attempt ended: a closed set of categories, the advice for each, and the reason that MCP clients get.

    DNS and address   look_up_failed, name_not_found, blocked_address, url_not_allowed
    connection        connection_refused, host_unreachable, connect_timeout, proxy_failed
    TLS               tls_timeout, certificate_untrusted, certificate_name_mismatch, certificate_expired,
                      client_certificate_refused, tls_error
    HTTP              response_timeout, body_not_read, connection_broken, invalid_response, http_3xx, http_4xx, http_5xx
    others            delivered, challenge_failed, unreadable, internal_error, timeout

Attempts, webhooks, logs, metrics and the CLI use these names. What MCP clients and receivers get has one of the six reasons of
the events specification (`WIRE_REASONS`), which says nothing about networks.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class AttemptCategory(StrEnum):
    """How an attempt ended. A receiver's text stays in the attempt log."""

    DELIVERED = "delivered"
    LOOK_UP_FAILED = "look_up_failed"
    """The host's addresses could not be looked up: a timeout, SERVFAIL, name servers that are down, or a limit of ours."""
    NAME_NOT_FOUND = "name_not_found"
    """The name servers say that the host does not exist or has no address. This counts as a failure of the receiver."""
    BLOCKED_ADDRESS = "blocked_address"
    """An address of the host is in a range that may not receive callbacks."""
    URL_NOT_ALLOWED = "url_not_allowed"
    """The operator's settings have become stricter since the webhook was registered."""
    CONNECTION_REFUSED = "connection_refused"
    HOST_UNREACHABLE = "host_unreachable"
    """There is no route to the host's address."""
    CONNECT_TIMEOUT = "connect_timeout"
    PROXY_FAILED = "proxy_failed"
    """The operator's egress proxy is unreachable or refuses to connect. The receiver did not cause it."""
    TLS_TIMEOUT = "tls_timeout"
    CERTIFICATE_UNTRUSTED = "certificate_untrusted"
    CERTIFICATE_NAME_MISMATCH = "certificate_name_mismatch"
    CERTIFICATE_EXPIRED = "certificate_expired"
    """Or not valid yet."""
    CLIENT_CERTIFICATE_REFUSED = "client_certificate_refused"
    """The receiver demands a client certificate, or does not accept ours."""
    TLS_ERROR = "tls_error"
    RESPONSE_TIMEOUT = "response_timeout"
    """The request was sent, and no status arrived in time."""
    BODY_NOT_READ = "body_not_read"
    """The receiver stopped reading before the end of the request, and sent no status."""
    CONNECTION_BROKEN = "connection_broken"
    INVALID_RESPONSE = "invalid_response"
    """The receiver sent bytes that are no HTTP/1 response."""
    TIMEOUT = "timeout"
    """A timeout of an unknown stage. Attempts before this version, and custom transports, have it."""
    HTTP_3XX = "http_3xx"
    HTTP_4XX = "http_4xx"
    HTTP_5XX = "http_5xx"
    CHALLENGE_FAILED = "challenge_failed"
    """The receiver did not answer the verification challenge. Only challenges end so."""
    UNREADABLE = "unreadable"
    """The delivery was not sent: the key that sealed its body or secret is missing from the key ring."""
    INTERNAL_ERROR = "internal_error"
    """The service could not make the attempt. The receiver did not cause it."""


OWN_FAILURES: Final = frozenset(
    {AttemptCategory.LOOK_UP_FAILED, AttemptCategory.PROXY_FAILED, AttemptCategory.INTERNAL_ERROR}
)
"""Failures that the receiver did not cause. They count against no origin and suspend no webhook (`webhook_health`)."""

RESPONDED_CATEGORIES: Final = frozenset(
    {
        AttemptCategory.DELIVERED,
        AttemptCategory.HTTP_3XX,
        AttemptCategory.HTTP_4XX,
        AttemptCategory.HTTP_5XX,
        AttemptCategory.CHALLENGE_FAILED,
    }
)
"""The receiver sent a status."""

UNREACHABLE_CATEGORIES: Final = (
    frozenset(AttemptCategory) - OWN_FAILURES - RESPONDED_CATEGORIES - {AttemptCategory.UNREADABLE}
)
"""No response: the breakers of origins, and of principals there, count these. Any response shows that the origin is up. A
failure of ours shows neither and leaves these breakers unchanged."""

ADVICE: Final[Mapping[AttemptCategory, str]] = MappingProxyType(
    {
        AttemptCategory.LOOK_UP_FAILED: "The service's name servers did not answer; the operator checks its DNS.",
        AttemptCategory.NAME_NOT_FOUND: "Create the DNS record of the host, or change the webhook's URL to its full "
        "name: search domains are not used.",
        AttemptCategory.BLOCKED_ADDRESS: "Use a host with public addresses only, or have the operator open the network "
        "with RINGBACK_CALLBACK_PRIVATE_CIDRS.",
        AttemptCategory.URL_NOT_ALLOWED: "The operator no longer allows this URL; use a public https URL.",
        AttemptCategory.CONNECTION_REFUSED: "Start the receiver, and check the URL's port.",
        AttemptCategory.HOST_UNREACHABLE: "No route leads to the receiver; check its address and the network.",
        AttemptCategory.CONNECT_TIMEOUT: "The receiver does not accept connections; check that it runs and that its "
        "firewall allows this service.",
        AttemptCategory.PROXY_FAILED: "The operator's egress proxy did not connect; the operator checks "
        "RINGBACK_CALLBACK_PROXY and the proxy's log.",
        AttemptCategory.TLS_TIMEOUT: "The receiver accepts connections but does not complete the TLS handshake; check "
        "that the port speaks TLS.",
        AttemptCategory.CERTIFICATE_UNTRUSTED: "Install a certificate of a trusted authority, with its intermediate "
        "certificates; for a private authority, the operator sets RINGBACK_CA_FILE.",
        AttemptCategory.CERTIFICATE_NAME_MISMATCH: "Install a certificate for the URL's host name, or change the "
        "webhook's URL.",
        AttemptCategory.CERTIFICATE_EXPIRED: "Renew the receiver's certificate, and check the clocks.",
        AttemptCategory.CLIENT_CERTIFICATE_REFUSED: "The receiver demands a client certificate that it accepts; the "
        "operator sets RINGBACK_CALLBACK_CLIENT_CERTIFICATES.",
        AttemptCategory.TLS_ERROR: "The TLS handshake failed; check that the port speaks TLS 1.2 or later.",
        AttemptCategory.RESPONSE_TIMEOUT: "Answer with 2xx within 10 seconds, and do the work afterwards.",
        AttemptCategory.BODY_NOT_READ: "Read the whole request body before closing the connection; raise the "
        "receiver's limit to 256 KiB.",
        AttemptCategory.CONNECTION_BROKEN: "The receiver closed the connection without a response; look at its log.",
        AttemptCategory.INVALID_RESPONSE: "The response is not HTTP/1, or its status is not 200 to 599; check the URL's "
        "scheme and port, and the receiver.",
        AttemptCategory.TIMEOUT: "Answer with 2xx within 10 seconds, and do the work afterwards.",
        AttemptCategory.HTTP_3XX: "Redirects are not followed; change the webhook's URL to the final one.",
        AttemptCategory.HTTP_4XX: "The receiver refuses the callback; check the URL's path, its authentication and "
        "the signing secret.",
        AttemptCategory.HTTP_5XX: "The receiver failed; look at its log.",
        AttemptCategory.CHALLENGE_FAILED: "Answer the POST of type 'verification' with 2xx and JSON that has the same "
        "challenge, then verify the webhook again.",
        AttemptCategory.UNREADABLE: "A sealing key is missing; the operator restores it to RINGBACK_SECRET_KEYS.",
        AttemptCategory.INTERNAL_ERROR: "The service could not make the attempt; the operator looks at its log.",
    }
)
"""One sentence for each failure: what to do next. A delivered attempt needs none."""

_WIRE_REASONS_BY_CATEGORY: Final[Mapping[AttemptCategory, str]] = MappingProxyType(
    {
        AttemptCategory.CONNECT_TIMEOUT: "timeout",
        AttemptCategory.TLS_TIMEOUT: "timeout",
        AttemptCategory.RESPONSE_TIMEOUT: "timeout",
        AttemptCategory.TIMEOUT: "timeout",
        AttemptCategory.CERTIFICATE_UNTRUSTED: "tls_error",
        AttemptCategory.CERTIFICATE_NAME_MISMATCH: "tls_error",
        AttemptCategory.CERTIFICATE_EXPIRED: "tls_error",
        AttemptCategory.CLIENT_CERTIFICATE_REFUSED: "tls_error",
        AttemptCategory.TLS_ERROR: "tls_error",
        AttemptCategory.HTTP_3XX: "http_4xx",  # the list has no redirects; the receiver must change something, as for 4xx
        AttemptCategory.HTTP_4XX: "http_4xx",
        AttemptCategory.HTTP_5XX: "http_5xx",
        AttemptCategory.CHALLENGE_FAILED: "challenge_failed",
    }
)

WIRE_REASONS: Final[Mapping[AttemptCategory, str]] = MappingProxyType(
    {
        category: _WIRE_REASONS_BY_CATEGORY.get(category, "connection_refused")
        for category in AttemptCategory
        if category is not AttemptCategory.DELIVERED
    }
)
"""The reason that leaves the service over MCP and in callbacks (mcp-events §7): connection_refused, timeout, tls_error,
http_4xx, http_5xx or challenge_failed. What is not in the list is "connection_refused", because the receiver got no request."""


_VALUES: Final = frozenset(str(category) for category in AttemptCategory)


def wire_reason(error: str) -> str:
    """The reason for a webhook's `last_error`; an error that is no category stays as it is."""
    return WIRE_REASONS.get(AttemptCategory(error), error) if error in _VALUES else error


def category_advice(error: str) -> str | None:
    """What to do next about an error of this category; None for a delivered attempt and for an error that is no category."""
    return ADVICE.get(AttemptCategory(error)) if error in _VALUES else None
