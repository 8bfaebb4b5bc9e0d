"""Look-ups of the hosts that an operator configures: upstreams, their authorization servers, the issuer of access tokens.

    HttpTransport, ResolvingTransport ──LookUp──▶ ConfiguredHosts ──▶ LookUps (shared, cached, bounded) ──▶ AresResolver

getaddrinfo blocks a thread for as long as a name hangs, and uvloop has four threads for the whole process: four names that hang
kept every other upstream from being connected to. c-ares holds a socket open instead. One owner (an upstream, the issuer) has a
few look-ups in flight at most, so its names do not use up the others' share.

Unlike the hosts of callbacks, these are the operator's own words. So the search domains of resolv.conf count, as people expect
of `http://tools:8000` in Kubernetes, and every address is allowed. A name such as `printer.local` belongs to multicast DNS (RFC
6762), which c-ares does not speak: the machine looks it up, and such names can only hold up each other.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from ipaddress import ip_address
from typing import Final

from ringback.domain.principal import Principal
from ringback.notifier.http.addresses import Address
from ringback.notifier.http.caching_resolver import CachingResolver, LookupLimiter
from ringback.notifier.http.resolver import CAresResolver, Resolution, Resolver

LOOK_UPS_PER_OWNER_MAX: Final = 4
"""In flight for one owner. An upstream has one host, one more where its tokens come from, and what it redirects to."""
LABELS_OF_MULTICAST_NAME: Final = 2
"""`printer.local` has two, and `tools.apps.svc.cluster.local`, which is a name of Kubernetes, has more."""
MULTICAST_SECONDS: Final = 60.0
"""How long an address that the machine found is kept: getaddrinfo tells no TTL, and RFC 6762 §10 proposes 120 s."""

LookUp = Callable[[str], Awaitable[Sequence[Address]]]
"""The addresses of a host, at least one; raises `UnresolvedHost`, which is an OSError."""


class ConfiguredHosts:
    def __init__(self, resolver: Resolver | None = None) -> None:
        self._look_ups = CachingResolver(
            resolver or ConfiguredResolver(), limiter=LookupLimiter(per_principal_max=LOOK_UPS_PER_OWNER_MAX)
        )

    def look_up_for(self, owner: str) -> LookUp:
        """Look-ups that count for this owner: the name of an upstream, say."""
        return partial(self._look_up, Principal(owner))

    async def aclose(self) -> None:
        """Later look-ups fail."""
        await self._look_ups.aclose()

    async def _look_up(self, owner: Principal, host: str) -> Sequence[Address]:
        address = _literal(host)
        return await self._look_ups.resolve_host(host, owner) if address is None else (address,)


class ConfiguredResolver:
    """c-ares with the machine's search domains, and the machine itself for names of multicast DNS."""

    def __init__(self) -> None:
        self._ares = CAresResolver(searches=True)

    async def __call__(self, host: str, /) -> Resolution:
        return await (_ask_machine(host) if is_multicast_name(host) else self._ares(host))

    async def aclose(self) -> None:
        await self._ares.aclose()


def is_multicast_name(host: str) -> bool:
    labels = host.lower().removesuffix(".").split(".")
    return len(labels) == LABELS_OF_MULTICAST_NAME and labels[-1] == "local"


async def _ask_machine(host: str) -> Resolution:
    found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    addresses = dict.fromkeys(ip_address(str(sockaddr[0])) for *_, sockaddr in found)
    return Resolution(addresses=tuple(addresses), ttl_seconds=MULTICAST_SECONDS)


def _literal(host: str) -> Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None
