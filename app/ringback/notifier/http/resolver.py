"""Names to addresses: what an answer of the name servers is, and the resolver of production, which is c-ares.

    Resolution   addresses, or that the name has none, or that nobody could say; each for a number of seconds
    AresResolver the machine's name servers and /etc/hosts, asked over sockets that wait for all names at once

Two failures have to be told apart. A name that does not exist (NXDOMAIN, or no address record) is an answer, and the
receiver's own affair: `NameNotFound`. A time-out, SERVFAIL, REFUSED, an unreadable reply, name servers that are down, or a
limit of ours says nothing about the receiver: `LookUpFailed`. `domain.breaker` and `domain.health` say what each counts for.

The host of a callback is always absolute: the `search` list of resolv.conf and the HOSTALIASES variable are for people at a
terminal, and could turn it into another one. So `receiver` is looked up as `receiver`, and never as `receiver.corp.example`.
The hosts that an operator configures are searched for (`notifier.configured_hosts`).
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

from ringback.notifier.http.addresses import Address

TTL_SECONDS_MIN: Final = 1.0
"""A TTL of 0, which /etc/hosts has too, would cost a look-up for each POST to a receiver that keeps no connection open."""
TTL_SECONDS_MAX: Final = 300.0
"""After that a name is looked up again whatever its TTL says: the pool's connections live for seconds, and receivers move."""
NOT_FOUND_TTL_SECONDS: Final = 5.0
"""c-ares does not hand out the SOA record that bounds this (RFC 2308 §5; commonly minutes), so we stay far below it."""
FAILURE_TTL_SECONDS: Final = 5.0
"""A look-up that failed is not repeated for so long (RFC 9520 §3.2 asks for at least 1 s, and proposes 5 s)."""

QUERY_TIMEOUT_SECONDS: Final = 1.0
"""Until the first retransmission. Once c-ares has measured a server, it takes five times the average, at least 0.25 s."""
QUERY_TRIES: Final = 4
"""For each name server: 0.25 + 0.5 + 1 + 2 s outlast `RESOLVE_SECONDS` also when c-ares has got used to quick answers."""
RECORDS_PER_CHANNEL: Final = 20_000
"""c-ares caches replies itself, for their TTL and without a bound on their number; a new channel begins with an empty cache.
20,000 records are some megabytes, and a channel takes about a millisecond to make."""

_ares: Final = cast("Any", pycares)  # its constants come from C, and have no types
_FLAGS: Final[int] = (
    _ares.ARES_FLAG_NOALIASES
    | _ares.ARES_FLAG_EDNS
    # What does not fit into a datagram (some 75 addresses) is left out, not fetched over TCP: 64 KiB of a stranger's records
    # would be sorted and cached for a name of which `ADDRESSES_MAX` addresses are tried.
    | _ares.ARES_FLAG_IGNTC
)
_NOT_FOUND_CODES: Final = frozenset[int](
    {_ares.errno.ARES_ENOTFOUND, _ares.errno.ARES_ENODATA, _ares.errno.ARES_EBADNAME}
)


class UnresolvedHost(OSError):
    """A host has no address that we know of."""


class NameNotFound(UnresolvedHost):
    """The name servers say that the name does not exist, or has no address."""


class LookupFailed(UnresolvedHost):
    """The name servers say nothing, or a limit of ours was reached: this tells nothing about the host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """What came of one look-up."""

    addresses: tuple[Address, ...] = ()
    """Empty if the name has none, and if the look-up failed."""
    ttl_seconds: float = 0.0
    """How long it may be served again; 0 is not at all."""
    failure: str | None = None
    """Why the look-up failed."""


class Resolver(Protocol):
    async def __call__(self, host: str, /) -> Resolution:
        """All addresses of a name. An OSError or UnicodeError means that the look-up failed."""
        ...

    async def aclose(self) -> None:
        """Give up what is being looked up, and close the sockets."""
        ...


@dataclass(slots=True)
class _Channel:
    resolver: aiodns.DNSResolver
    records: int = 0
    queries_in_flight: int = 0
    is_retired: bool = False


class CAresResolver:
    """One channel of c-ares at a time: a few sockets and one thread, however many names hang.

    A look-up that is cancelled is forgotten at once. Its query stays in the channel until its retransmissions are over, some
    12 s for each dead name server: a kilobyte, and no thread. resolv.conf and /etc/hosts are read again when they change.
    """

    def __init__(
        self, name_servers: Sequence[str] = (), *, searches: bool = False, search_domains: Sequence[str] = ()
    ) -> None:
        """`name_servers` as `address:port`; those of resolv.conf if there are none.

        `searches`: also look for a host in the search domains, which are those of resolv.conf if none are given.
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
        """Made when it is first needed: a channel belongs to an event loop, and reads resolv.conf."""
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
