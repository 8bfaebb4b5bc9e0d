"""Which URLs and addresses Ringback sends OAuth requests to, when a server names them.

https is required, and public addresses. The operator's configuration opens exceptions: the host of the upstream (or of a
configured issuer) may have a private address, and plain http at its own origin. If the operator wrote that address, or
`localhost`, other servers of the same network may be named too. A name does not open its network: who answers for the name in
DNS is not the operator. Cloud metadata services stay forbidden.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final
from urllib.parse import SplitResult, urlsplit

from ringback.domain.client_address import Address, Network
from ringback.domain.errors import InvalidCallbackUrl
from ringback.domain.upstream_logins import LoginFailed, LoginFailure
from ringback.domain.validation import is_loopback
from ringback.notifier.configured_hosts import LookUp
from ringback.notifier.http.addresses import SpecialRange, find_forbidden_range
from ringback.notifier.http.guard import BlockedAddress
from ringback.notifier.http.target import TargetPolicy, parse_target
from ringback.upstreams.config import UpstreamConfig

_DEFAULT_PORTS: Final = {"https": 443, "http": 80}
_LOCALHOST: Final = (ip_address("127.0.0.1"), ip_address("::1"))


class UnsafeUrl(LoginFailed):
    def __init__(self) -> None:
        super().__init__(
            LoginFailure.UNSAFE,
            "The upstream or its authorization server names a URL that is not https, or not valid. Ringback does not use it.",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointRules:
    """The rules for the servers of one upstream."""

    upstream_url: str
    issuer: str | None = None
    """The issuer that the operator configured."""
    allowed_networks: Sequence[Network] = ()
    """Special networks that the operator allows (RINGBACK_CALLBACK_PRIVATE_CIDRS)."""

    @classmethod
    def from_config(cls, config: UpstreamConfig, allowed_networks: Sequence[Network]) -> "EndpointRules":
        return cls(upstream_url=config.url, issuer=config.login.issuer, allowed_networks=allowed_networks)

    def require_safe_url(self, url: object) -> str:
        """Return the URL; raises `UnsafeUrl`. Its address is judged when a connection is made."""
        parts = _split_url(url) if isinstance(url, str) else None
        if parts is None or not isinstance(url, str) or not (parts.scheme == "https" or self._may_be_plain(parts)):
            raise UnsafeUrl
        return url

    def _may_be_plain(self, parts: SplitResult) -> bool:
        trusted = [urlsplit(each) for each in (self.upstream_url, self.issuer) if each is not None]
        if parts.scheme != "http":
            return False
        if any(_get_origin(parts) == _get_origin(each) for each in trusted):
            return True
        return is_loopback(parts.hostname or "") and any(is_loopback(each.hostname or "") for each in trusted)

    @property
    def trusted_hosts(self) -> frozenset[str]:
        """The hosts that the operator configured."""
        hosts = (urlsplit(each).hostname for each in (self.upstream_url, self.issuer) if each is not None)
        return frozenset(host for host in hosts if host is not None)


class GuardedLookUp:
    """A `LookUp` whose addresses are all allowed. The connection goes to these addresses: a second lookup changes nothing."""

    def __init__(self, rules: EndpointRules, look_up: LookUp) -> None:
        self._rules = rules
        self._look_up = look_up

    async def __call__(self, host: str, /) -> Sequence[Address]:
        """Raises `BlockedAddress` if any address of the host is forbidden, or `UnresolvedHost`."""
        addresses = await self._look_up(host)
        forbidden = [special for each in addresses if (special := self._find_forbidden(each)) is not None]
        is_configured, open_ranges = host in self._rules.trusted_hosts, self._find_open_ranges()
        for special in forbidden:
            if not (special.can_be_opened and (is_configured or special in open_ranges)):
                raise BlockedAddress(special)
        return addresses

    def _find_open_ranges(self) -> set[SpecialRange]:
        """The special networks of the addresses that the operator wrote."""
        addresses = [each for host in self._rules.trusted_hosts for each in _read_addresses(host)]
        return {special for each in addresses if (special := self._find_forbidden(each)) is not None}

    def _find_forbidden(self, address: Address) -> SpecialRange | None:
        return find_forbidden_range(address, allowed_networks=self._rules.allowed_networks)


def _read_addresses(host: str) -> Sequence[Address]:
    """The addresses that a host of the configuration is without DNS; none for a name other than `localhost`."""
    if host == "localhost":
        return _LOCALHOST
    try:
        return [ip_address(host)]
    except ValueError:
        return []


def _split_url(url: str) -> SplitResult | None:
    """None for a URL that two parsers could read in two ways, by the rules for callback URLs."""
    if not url.isascii() or not url.isprintable() or any(each in url for each in '<>"'):
        return None
    scheme, _, rest = url.partition("://")
    try:
        parse_target(f"https://{rest}", TargetPolicy())
    except InvalidCallbackUrl:
        return None
    return urlsplit(f"{scheme}://{rest}")


def _get_origin(parts: SplitResult) -> tuple[str, str, int | None]:
    return parts.scheme, parts.hostname or "", parts.port or _DEFAULT_PORTS.get(parts.scheme)


def get_origin(url: str) -> str:
    """Scheme, host and port as in the URL, without user and path."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def get_resource(url: str) -> str:
    """The URL of an upstream as a resource (RFC 8707 §2): without user, query and fragment."""
    return f"{get_origin(url)}{urlsplit(url).path}"
