"""DNS resolution: the result of a lookup, and the production resolver (c-ares).

    Resolution      addresses, or "the name has none", or a failure; each with a TTL in seconds
    CAresResolver   queries the machine's name servers and /etc/hosts without a thread for each lookup

Two failures are distinct. NXDOMAIN, or a name without an address record, is an answer about the receiver: `NameNotFound`.
A timeout, SERVFAIL, REFUSED, an unreadable reply, unreachable name servers and the service's own limits say nothing about
the receiver: `LookupFailed`. `domain.circuit_breaker` and `domain.webhook_health` define what each counts for.

The host of a callback is absolute: the `search` list of resolv.conf and the HOSTALIASES variable could turn it into another
host, so they are ignored. `receiver` is never looked up as `receiver.corp.example`. Hosts that the operator configures do
use the search list (`notifier.configured_hosts`).
"""

import asyncio
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Final, Protocol, cast

import aiodns
import pycares
from aiodns.error import DNSError

from ringback.domain.client_address import Address

TTL_SECONDS_MIN: Final = 1.0
"""A TTL of 0 (/etc/hosts has it, too) would cost one lookup for each POST to a receiver that closes its connections."""
TTL_SECONDS_MAX: Final = 300.0
"""A longer TTL is cut to this, because receivers move."""
NOT_FOUND_TTL_SECONDS: Final = 5.0
"""c-ares does not return the SOA record that limits this (RFC 2308 §5; commonly minutes), so the value is far below it."""
FAILURE_TTL_SECONDS: Final = 5.0
"""A failed lookup is not repeated for this long (RFC 9520 §3.2 requires at least 1 s and proposes 5 s)."""

QUERY_TIMEOUT_SECONDS: Final = 1.0
"""Until the first retransmission. Once c-ares has measured a server, it waits five times the average, at least 0.25 s."""
QUERY_TRIES: Final = 4
"""For each name server: 0.25 + 0.5 + 1 + 2 s exceed `RESOLVE_SECONDS` even after c-ares has measured a fast server."""
RECORDS_PER_CHANNEL: Final = 20_000
"""c-ares caches replies for their TTL and does not limit their number; a new channel begins with an empty cache.
20,000 records take some megabytes, and creating a channel takes about a millisecond."""

_ares: Final = cast("Any", pycares)  # its constants come from C and have no types
_FLAGS: Final[int] = (
    _ares.ARES_FLAG_NOALIASES
    | _ares.ARES_FLAG_EDNS
    # Records beyond one datagram (some 75 addresses) are left out, not fetched over TCP: c-ares would sort and cache 64 KiB
    # of records for a name of which the dialer tries `ADDRESSES_TRIED_MAX` addresses. Some name servers then leave out all
    # records: such a name reads as one without an address.
    | _ares.ARES_FLAG_IGNTC
)
_NOT_FOUND_CODES: Final = frozenset[int](
    {_ares.errno.ARES_ENOTFOUND, _ares.errno.ARES_ENODATA, _ares.errno.ARES_EBADNAME}
)


class UnresolvedHost(OSError):
    """No address of the host is known."""


class NameNotFound(UnresolvedHost):
    """The name servers answer that the name does not exist or has no address."""


class LookupFailed(UnresolvedHost):
    """The name servers did not answer, or a limit of the service was reached: this says nothing about the host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """The result of one lookup."""

    addresses: tuple[Address, ...] = ()
    """Empty if the name has no address or the lookup failed."""
    ttl_seconds: float = 0.0
    """How long the result may be cached; 0: not at all."""
    failure: str | None = None
    """Why the lookup failed."""


class Resolver(Protocol):
    async def __call__(self, host: str, /) -> Resolution:
        """All addresses of a name. An OSError or UnicodeError means that the lookup failed."""
        ...

    async def aclose(self) -> None:
        """Cancel the lookups in flight and close the sockets."""
        ...


@dataclass(slots=True)
class _Channel:
    resolver: aiodns.DNSResolver
    records: int = 0
    queries_in_flight: int = 0
    is_retired: bool = False


class CAresResolver:
    """Uses one c-ares channel at a time: a few sockets and one thread, however many names hang.

    The query of a cancelled lookup stays in the channel until its retransmissions end, some 12 s for each dead name server:
    it costs a kilobyte and no thread. c-ares reads resolv.conf and /etc/hosts again when they change.
    """

    def __init__(
        self, name_servers: Sequence[str] = (), *, searches: bool = False, search_domains: Sequence[str] = ()
    ) -> None:
        """`name_servers` are written `address:port`; without any, those of resolv.conf are used.

        `searches`: also look up a host in `search_domains`, or in those of resolv.conf if none are given.
        """
        self._name_servers = list(name_servers)
        self._flags = _FLAGS if searches else _FLAGS | _ares.ARES_FLAG_NOSEARCH
        self._options: dict[str, Any] = {"domains": list(search_domains)} if search_domains else {}
        self._channel: _Channel | None = None

    async def __call__(self, host: str, /) -> Resolution:
        try:
            channel = await self._current_channel()
        except pycares.AresError as error:
            raise OSError(f"c-ares does not start: {error}") from None
        channel.queries_in_flight += 1
        try:
            found = await channel.resolver.getaddrinfo(host, family=socket.AF_UNSPEC, type=socket.SOCK_STREAM)
        except DNSError as error:
            channel.records += 1
            return _resolution_from_error(error)
        finally:
            channel.queries_in_flight -= 1
            if channel.is_retired and not channel.queries_in_flight:
                await channel.resolver.close()
        channel.records += 1 + len(found.nodes) + len(found.cnames)
        return _resolution_from_result(found)

    async def aclose(self) -> None:
        if self._channel is not None:
            await self._channel.resolver.close()
            self._channel = None

    async def _current_channel(self) -> _Channel:
        """Created at the first lookup: a channel belongs to an event loop and reads resolv.conf."""
        if self._channel is not None and self._channel.records >= RECORDS_PER_CHANNEL:
            full, self._channel = self._channel, None
            full.is_retired = True
            if not full.queries_in_flight:
                await full.resolver.close()
        if self._channel is None:
            self._channel = _Channel(
                aiodns.DNSResolver(
                    self._name_servers,
                    loop=asyncio.get_running_loop(),
                    timeout=QUERY_TIMEOUT_SECONDS,
                    tries=QUERY_TRIES,
                    flags=self._flags,
                    **self._options,
                )
            )
        return self._channel


def _resolution_from_error(error: DNSError) -> Resolution:
    code, text = error.args[:2]
    if code in _NOT_FOUND_CODES:
        return Resolution(ttl_seconds=NOT_FOUND_TTL_SECONDS)
    return Resolution(ttl_seconds=FAILURE_TTL_SECONDS, failure=str(text))


def _resolution_from_result(found: pycares.AddrInfoResult) -> Resolution:
    if not found.nodes:
        return Resolution(ttl_seconds=NOT_FOUND_TTL_SECONDS)
    ttl_seconds = min(record.ttl for record in [*found.nodes, *found.cnames])
    return Resolution(
        addresses=tuple(ip_address(cast("Any", node).addr[0].decode("ascii")) for node in found.nodes),
        ttl_seconds=min(max(ttl_seconds, TTL_SECONDS_MIN), TTL_SECONDS_MAX),
    )
