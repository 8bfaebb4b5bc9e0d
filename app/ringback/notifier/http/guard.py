"""Where a callback may go: one strict reading of its URL, and a guard that judges every address before it is used.

    parse_target   text ──▶ Target, or InvalidCallbackUrl      pure; the only place where a callback URL is taken apart
    TargetGuard    host ──▶ addresses, or BlockedAddress       asked at registration and again at every connection

What is checked is what is used: a Target's `host` is either a canonical IP literal or a plain ASCII name, so no library
behind it can read another host out of the same text. A name is judged by all of its addresses, and the sender asks again
for the one address that it connects to, because a name may answer differently a moment later (DNS rebinding).

No `ringback.services` import may reach a web framework through here, so this module knows none.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final

import idna

from ringback.domain.errors import InvalidCallbackUrl
from ringback.domain.principal import Principal
from ringback.notifier.http.addresses import (
    Address,
    Network,
    SpecialRange,
    find_forbidden_range,
    is_in_allowed_networks,
)
from ringback.notifier.http.caching_resolver import NO_PRINCIPAL, CachingResolver
from ringback.notifier.http.resolver import CAresResolver, Resolver, UnresolvedHost

URL_LENGTH_MAX: Final = 2048
"""Characters. Far above what receivers use for routing; the length that old browsers and proxies made a convention."""
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
_PRIVATE_CIDRS_SETTING: Final = "RINGBACK_CALLBACK_PRIVATE_CIDRS"


class BlockedAddress(OSError):
    """A callback would go to a special range. An OSError, because that is what a failed connection is to HTTP clients."""

    def __init__(self, special: SpecialRange) -> None:
        super().__init__(f"blocked address: {special}")
        self.special_range = special


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetPolicy:
    """What the operator allows beyond public https."""

    private_cidrs: tuple[Network, ...] = ()
    allows_private_http: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A callback URL, taken apart once."""

    url: str
    """Exactly as it was registered."""
    scheme: str
    host: str
    """Canonical: an IP literal without brackets, or a lower-case ASCII name (A-labels)."""
    port: int
    path: str
    """What is requested: path and query as registered, byte for byte; an empty query is left out."""
    origin: str
    """`scheme://host[:port]`, canonical, without the scheme's own port: what limits and breakers are keyed by."""

    @property
    def request_url(self) -> str:
        """The URL to hand to an HTTP client: it spells the host that was judged."""
        return self.origin + self.path


class TargetGuard:
    """Judges hosts by their addresses."""

    def __init__(self, policy: TargetPolicy, *, resolver: Resolver | None = None) -> None:
        self.policy = policy
        self._resolver = CachingResolver(resolver or CAresResolver())

    async def check_url(self, url: str, principal: Principal = NO_PRINCIPAL) -> Target:
        """The target of a URL that `principal` is registering; raises InvalidCallbackUrl when it may not be called back.

        A name that does not resolve at the moment is accepted: its server may come up later, and it is judged then.
        """
        target = parse_target(url, self.policy)
        try:
            await self.resolve_host(target.host, principal)
        except BlockedAddress as blocked:
            raise InvalidCallbackUrl(_blocked_address_detail(blocked.special_range)) from None
        except UnresolvedHost:
            pass
        return target

    async def resolve_host(
        self, host: str, principal: Principal = NO_PRINCIPAL, *, until: float | None = None
    ) -> Sequence[Address]:
        """Every address of `host`, all of them allowed; raises BlockedAddress if any is not, or UnresolvedHost.

        The look-up counts for `principal`, and ends at the loop time `until` at the latest. Addresses that were cached are
        judged like those that were just looked up.
        """
        literal = _parse_address_literal(host)
        addresses = (literal,) if literal else await self._resolver.resolve_host(host, principal, until=until)
        for address in addresses:
            self.require_allowed_address(address)
        return addresses

    def require_allowed_address(self, address: Address) -> None:
        """Raise BlockedAddress unless this very address may be connected to."""
        special = find_forbidden_range(address, allowed_networks=self.policy.private_cidrs)
        if special is not None:
            raise BlockedAddress(special)

    async def aclose(self) -> None:
        """Give up the look-ups in flight."""
        await self._resolver.aclose()


def parse_target(url: str, policy: TargetPolicy) -> Target:
    """Take a callback URL apart; raises InvalidCallbackUrl with a detail that says what to do.

    Pure: names are not looked up, addresses not judged. Stricter than RFC 3986 wherever two readers could disagree.
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
            f"inside a network that the operator opened with {_PRIVATE_CIDRS_SETTING}."
        )
    port = _parse_port(port_text, DEFAULT_PORTS[scheme])
    return Target(url=url, scheme=scheme, host=host, port=port, path=path, origin=_format_origin(scheme, host, port))


def _parse_request_path(path: str, query: str) -> str:
    target = path if query == "?" else path + query  # clients disagree on whether to send an empty query
    if not target.isascii():
        raise InvalidCallbackUrl("The callback URL has other than ASCII characters in its path. Percent-encode them.")
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
        raise InvalidCallbackUrl(
            "The callback URL's address has a zone. Only addresses without one can be called back."
        )
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
    """An internationalised name as DNS knows it (UTS 46). Full-width digits and dots become what they mean."""
    try:
        return idna.encode(text, uts46=True).decode("ascii").lower()
    except UnicodeError:
        raise InvalidCallbackUrl("The callback URL's host is not a valid internationalised name.") from None


def _parse_ipv4(host: str) -> str:
    """What ends in a number is an address and never a name, so only its one canonical spelling is taken.

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
    literal = _parse_address_literal(host)
    if literal is not None:
        return is_in_allowed_networks(literal, policy.private_cidrs)
    return host == _LOCALHOST and any(
        network.version == loopback.version and network.overlaps(loopback)
        for network in policy.private_cidrs
        for loopback in _LOOPBACK_NETWORKS
    )


def _parse_address_literal(host: str) -> Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _blocked_address_detail(special: SpecialRange) -> str:
    detail = f"The callback URL's host resolves to a blocked address: {special}. Use a host with public addresses only"
    if not special.can_be_opened:
        return f"{detail}; this one is never called back."
    return f"{detail}, or have the operator open the network: {_PRIVATE_CIDRS_SETTING}={special.network}"
