"""DNS lookups of hosts that the operator configures: upstreams, their authorization servers, the token issuer.

    PooledHttpTransport, ResolvingTransport ──LookUp──▶ ConfiguredHosts ──▶ CachingResolver ──▶ ConfiguredResolver (c-ares)

getaddrinfo blocks a thread while a name hangs, and uvloop has four threads for the whole process: four hanging names would
block the connections to all upstreams. c-ares uses sockets instead. Each owner (an upstream, the issuer) has at most
`LOOK_UPS_PER_OWNER_MAX` lookups in flight, so its hanging names do not block the others.

The operator chooses these hosts, so every address is allowed, and the search domains of resolv.conf apply, as users expect
of `http://tools:8000` in Kubernetes. Names such as `printer.local` belong to multicast DNS (RFC 6762), which c-ares does not
support: getaddrinfo resolves them, and such names can delay only each other.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from ipaddress import ip_address
from typing import Final

from ringback.domain.client_address import Address
from ringback.domain.principal import Principal
from ringback.notifier.http.addresses import parse_address_literal
from ringback.notifier.http.caching_resolver import CachingResolver, LookupLimiter
from ringback.notifier.http.resolver import CAresResolver, Resolution, Resolver

LOOK_UPS_PER_OWNER_MAX: Final = 4
"""Lookups in flight for one owner: an upstream has one host, a host for its tokens, and hosts that it redirects to."""
LABELS_OF_MULTICAST_NAME: Final = 2
"""`printer.local` has two labels; Kubernetes names such as `tools.apps.svc.cluster.local` have more."""
MULTICAST_SECONDS: Final = 60.0
"""The TTL of addresses from getaddrinfo, which reports none; RFC 6762 §10 proposes 120 s."""

LookUp = Callable[[str], Awaitable[Sequence[Address]]]
"""Returns the addresses of a host, at least one; raises `UnresolvedHost`, an OSError."""


class ConfiguredHosts:
    def __init__(self, resolver: Resolver | None = None) -> None:
        self._look_ups = CachingResolver(
            resolver or ConfiguredResolver(), limiter=LookupLimiter(per_principal_max=LOOK_UPS_PER_OWNER_MAX)
        )

    def look_up_for(self, owner: str) -> LookUp:
        """The lookup function of this owner (for example, the name of an upstream)."""
        return partial(self._look_up, Principal(owner))

    async def aclose(self) -> None:
        """Cancel the lookups in flight; later lookups fail."""
        await self._look_ups.aclose()

    async def _look_up(self, owner: Principal, host: str) -> Sequence[Address]:
        address = parse_address_literal(host)
        return await self._look_ups.resolve_host(host, owner) if address is None else (address,)


class ConfiguredResolver:
    """c-ares with the machine's search domains; getaddrinfo for multicast DNS names."""

    def __init__(self) -> None:
        self._ares = CAresResolver(searches=True)

    async def __call__(self, host: str, /) -> Resolution:
        return await (_call_getaddrinfo(host) if is_multicast_name(host) else self._ares(host))

    async def aclose(self) -> None:
        await self._ares.aclose()


def is_multicast_name(host: str) -> bool:
    labels = host.lower().removesuffix(".").split(".")
    return len(labels) == LABELS_OF_MULTICAST_NAME and labels[-1] == "local"


async def _call_getaddrinfo(host: str) -> Resolution:
    found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    addresses = dict.fromkeys(ip_address(str(sockaddr[0])) for *_, sockaddr in found)
    return Resolution(addresses=tuple(addresses), ttl_seconds=MULTICAST_SECONDS)
