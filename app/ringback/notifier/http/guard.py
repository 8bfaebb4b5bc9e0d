"""The guard: checks the addresses of a callback's host at registration, and again at every connection.

    TargetGuard.check_url      URL  ──▶ Target, or InvalidCallbackUrl     at registration
    find_target_error          URL  ──▶ what is wrong with it, or None    of a subscription, before its callback is called
    TargetGuard.resolve_host   host ──▶ addresses, or BlockedAddress      before each new connection
    require_allowed_address    the one address that a socket connects to  right before it connects

All addresses of a name must be allowed. The dialer checks the one address that it connects to again, because a name may
resolve differently a moment later (DNS rebinding).
"""

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Final

from ringback.domain.client_address import Address
from ringback.domain.errors import InvalidCallbackUrl
from ringback.domain.principal import Principal
from ringback.notifier.http.addresses import SpecialRange, find_forbidden_range, parse_address_literal
from ringback.notifier.http.caching_resolver import NO_PRINCIPAL, CachingResolver
from ringback.notifier.http.resolver import CAresResolver, Resolver, UnresolvedHost
from ringback.notifier.http.target import PRIVATE_CIDRS_SETTING, Target, TargetPolicy, parse_target

PARSED_URLS_KEPT: Final = 1024
"""Accepted URLs, some 3 KB each at most. Most calls of a client have the same callback URL."""


class BlockedAddress(OSError):
    """The address is in a forbidden range. An OSError, because HTTP clients treat it as a failed connection."""

    def __init__(self, special: SpecialRange) -> None:
        super().__init__(f"blocked address: {special}")
        self.special_range = special


class TargetGuard:
    def __init__(self, policy: TargetPolicy, *, resolver: Resolver | None = None) -> None:
        self.policy = policy
        self._parse_target = lru_cache(maxsize=PARSED_URLS_KEPT)(partial(parse_target, policy=policy))
        self._resolver = CachingResolver(resolver or CAresResolver())

    async def check_url(self, url: str, principal: Principal = NO_PRINCIPAL) -> Target:
        """The target of a URL that `principal` registers; raises InvalidCallbackUrl if callbacks to it are not allowed.

        A name that does not resolve now is accepted: its server may come up later, and each connection is checked.
        """
        target = self._parse_target(url)
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
        """All addresses of `host`; raises BlockedAddress if any is forbidden, or UnresolvedHost.

        The lookup counts against the limit of `principal` and ends at the loop time `until` at the latest. Cached addresses
        are checked, too.
        """
        literal = parse_address_literal(host)
        addresses = (literal,) if literal else await self._resolver.resolve_host(host, principal, until=until)
        for address in addresses:
            self.require_allowed_address(address)
        return addresses

    def require_allowed_address(self, address: Address) -> None:
        """Raise BlockedAddress if the address is forbidden."""
        special = find_forbidden_range(address, allowed_networks=self.policy.private_cidrs)
        if special is not None:
            raise BlockedAddress(special)

    async def aclose(self) -> None:
        """Cancel the lookups in flight."""
        await self._resolver.aclose()


def find_target_error(policy: TargetPolicy, url: str) -> str | None:
    """What is wrong with a callback URL, and what to do; None if the policy allows it. Names are not resolved."""
    try:
        literal = parse_address_literal(parse_target(url, policy).host)
    except InvalidCallbackUrl as problem:
        return problem.detail
    special = None if literal is None else find_forbidden_range(literal, allowed_networks=policy.private_cidrs)
    return None if special is None else _blocked_address_detail(special)


def _blocked_address_detail(special: SpecialRange) -> str:
    detail = f"The callback URL's host resolves to a blocked address: {special}. Use a host with public addresses only"
    if not special.can_be_opened:
        return f"{detail}; the operator cannot open this one."
    return f"{detail}, or have the operator open the network: {PRIVATE_CIDRS_SETTING}={special.network}"
