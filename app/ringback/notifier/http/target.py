"""Callback URLs: one strict parser, and a cache of its results.

The parsed host is either a canonical IP literal or a plain ASCII name, so no library can read another host from the same URL.
"""

import re
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv6Address, ip_network
from typing import Final

import idna

from ringback.domain.client_address import Network
from ringback.domain.errors import InvalidCallbackUrl
from ringback.notifier.http.addresses import is_in_allowed_networks, parse_address_literal

URL_LENGTH_MAX: Final = 2048
"""Characters: the conventional limit of browsers and proxies, far above what receivers use for routing."""
HOST_LENGTH_MAX: Final = 253
"""Characters of a name in text form (RFC 1035 §2.3.4: 255 octets on the wire)."""
PORT_MAX: Final = 65_535
DEFAULT_PORTS: Final = {"https": 443, "http": 80}

_URL_PATTERN = re.compile(
    r"(?P<scheme>https?)://(?P<authority>[^/?]*)(?P<path>/[^?]*)?(?P<query>\?.*)?", re.IGNORECASE | re.ASCII
)
_AUTHORITY_PATTERN = re.compile(r"(?P<host>\[[^\[\]]*\]|[^:\[\]]+)(?::(?P<port>[0-9]{1,5}))?")
_FORBIDDEN_CHARACTERS = re.compile(r"[\x00-\x20\x7f\\#]")
_LABEL_PATTERN = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_NUMBER_PATTERN = re.compile(r"[0-9]+|0x[0-9a-f]*")
_LOCALHOST = "localhost"
_LOOPBACK_NETWORKS: Final = (ip_network("127.0.0.0/8"), ip_network("::1/128"))
PRIVATE_CIDRS_SETTING: Final = "RINGBACK_CALLBACK_PRIVATE_CIDRS"
PLAIN_HTTP_SETTING: Final = "RINGBACK_CALLBACK_HTTP"
CACHED_TARGETS_MAX: Final = 10_000
"""Some megabytes. A service with more webhooks parses URLs again, at 28 µs each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetPolicy:
    """The callback URLs that the operator allows beyond public https."""

    private_cidrs: tuple[Network, ...] = ()
    allows_private_http: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A parsed callback URL."""

    url: str
    """Exactly as registered."""
    scheme: str
    host: str
    """Canonical: an IP literal without brackets, or a lower-case ASCII name (A-labels)."""
    port: int
    path: str
    """The request target: path and query as registered, byte for byte, without an empty query."""
    origin: str
    """`scheme://host[:port]`, canonical, without the scheme's default port: the key of limits and circuit breakers."""

    @property
    def request_url(self) -> str:
        """The URL for an HTTP client, with the checked host."""
        return self.origin + self.path


def parse_target(url: str, policy: TargetPolicy) -> Target:
    """Parse a callback URL; raises InvalidCallbackUrl with a detail that says what to do.

    Pure: it neither resolves names nor checks addresses. Stricter than RFC 3986 wherever two parsers could disagree.
    """
    if len(url) > URL_LENGTH_MAX:
        raise InvalidCallbackUrl(f"The callback URL is longer than {URL_LENGTH_MAX} characters. Shorten it.")
    if _FORBIDDEN_CHARACTERS.search(url):
        raise InvalidCallbackUrl(
            "The callback URL contains a space, a control character, a backslash or a fragment (#). "
            "Percent-encode them in the path or query, and leave the fragment out."
        )
    match = _URL_PATTERN.fullmatch(url)
    if match is None:
        raise InvalidCallbackUrl("The callback URL is not an absolute https URL. Write https://host/path.")
    path = _parse_request_path(match["path"] or "/", match["query"] or "")
    host, port_text = _parse_authority(match["authority"])
    scheme = match["scheme"].lower()
    if scheme == "http" and not _is_plain_http_allowed(host, policy):
        raise InvalidCallbackUrl(
            "The callback URL uses plain http. Use https; http is accepted only for a literal address or localhost "
            f"inside a network that the operator opened with {PRIVATE_CIDRS_SETTING} and {PLAIN_HTTP_SETTING}=true."
        )
    port = _parse_port(port_text, DEFAULT_PORTS[scheme])
    return Target(url=url, scheme=scheme, host=host, port=port, path=path, origin=_format_origin(scheme, host, port))


def _parse_request_path(path: str, query: str) -> str:
    target = path if query == "?" else path + query  # clients disagree on whether to send an empty query
    if not target.isascii():
        raise InvalidCallbackUrl("The callback URL has non-ASCII characters in its path or query. Percent-encode them.")
    return target


def _parse_authority(authority: str) -> tuple[str, str | None]:
    if "@" in authority:
        raise InvalidCallbackUrl(
            "The callback URL contains a user name or password. Leave it out; callbacks are signed instead."
        )
    match = _AUTHORITY_PATTERN.fullmatch(authority)
    if match is None:
        raise InvalidCallbackUrl(
            "The callback URL's host is not valid. Write https://host/path or https://host:port/path."
        )
    host = match["host"]
    return (_parse_ipv6(host[1:-1]) if host.startswith("[") else _parse_name_or_ipv4(host)), match["port"]


def _parse_ipv6(text: str) -> str:
    try:
        address = IPv6Address(text)
    except AddressValueError:
        raise InvalidCallbackUrl("The callback URL's host is not an IPv6 address. Write it as [2001:db8::1].") from None
    if address.scope_id is not None:
        raise InvalidCallbackUrl("The callback URL's address has a zone. Use an address without a zone.")
    return str(address)


def _parse_name_or_ipv4(text: str) -> str:
    host = text.lower() if text.isascii() else _to_a_labels(text)
    labels = host.split(".")
    if len(host) > HOST_LENGTH_MAX or not all(_LABEL_PATTERN.fullmatch(label) for label in labels):
        raise InvalidCallbackUrl(
            "The callback URL's host is not a valid name. Write letters, digits and hyphens, and no dot at the end."
        )
    return _parse_ipv4(host) if _NUMBER_PATTERN.fullmatch(labels[-1]) else host


def _to_a_labels(text: str) -> str:
    """An internationalised name in its DNS form (UTS 46). Full-width digits and dots become ASCII."""
    try:
        return idna.encode(text, uts46=True).decode("ascii").lower()
    except UnicodeError:
        raise InvalidCallbackUrl("The callback URL's host is not a valid internationalised name.") from None


def _parse_ipv4(host: str) -> str:
    """A host that ends in a number must be a canonical IPv4 address.

    Resolvers read 0177.0.0.1, 2130706433, 0x7f.1 and 127.1 as 127.0.0.1 (the URL Standard, "ends in a number").
    """
    try:
        return str(IPv4Address(host))
    except AddressValueError:
        raise InvalidCallbackUrl(
            "The callback URL's host ends in a number but is no IPv4 address. Write four decimal numbers, as in 192.0.2.1."
        ) from None


def _parse_port(text: str | None, default: int) -> int:
    port = default if text is None else int(text)
    if not 1 <= port <= PORT_MAX:
        raise InvalidCallbackUrl(f"The callback URL's port is not between 1 and {PORT_MAX}.")
    return port


def _format_origin(scheme: str, host: str, port: int) -> str:
    bracketed = f"[{host}]" if ":" in host else host
    return f"{scheme}://{bracketed}" if port == DEFAULT_PORTS[scheme] else f"{scheme}://{bracketed}:{port}"


def _is_plain_http_allowed(host: str, policy: TargetPolicy) -> bool:
    if not policy.allows_private_http:
        return False
    literal = parse_address_literal(host)
    if literal is not None:
        return is_in_allowed_networks(literal, policy.private_cidrs)
    return host == _LOCALHOST and any(
        network.version == loopback.version and network.overlaps(loopback)
        for network in policy.private_cidrs
        for loopback in _LOOPBACK_NETWORKS
    )


class TargetCache:
    def __init__(self, policy: TargetPolicy) -> None:
        self._policy = policy
        self._cache: dict[str, Target | None] = {}

    def get_target(self, url: str) -> Target | None:
        """None if the operator's policy has become stricter since the webhook was registered."""
        try:
            return self._cache[url]
        except KeyError:
            return self._parse_and_cache(url)

    def get_origin(self, url: str) -> str:
        """The key of limits and circuit breakers; a URL that the policy refuses is its own origin."""
        target = self.get_target(url)
        return url if target is None else target.origin

    def _parse_and_cache(self, url: str) -> Target | None:
        if len(self._cache) >= CACHED_TARGETS_MAX:
            self._cache.clear()
        try:
            target = parse_target(url, self._policy)
        except InvalidCallbackUrl:
            target = None
        self._cache[url] = target
        return target
