"""Fakes for the guard: a resolver with the test's answers, and sockets that are only counted."""

import socket
from collections.abc import Mapping, Sequence
from ipaddress import ip_address, ip_network
from typing import Final

from ringback.domain.client_address import Address
from ringback.notifier.http.resolver import Resolution
from ringback.notifier.http.target import Target, TargetPolicy, parse_target

PUBLIC_POLICY: Final = TargetPolicy()
"""The default: public https only."""
LOOPBACK_POLICY: Final = TargetPolicy(
    private_cidrs=(ip_network("127.0.0.0/8"), ip_network("::1/128")), allows_private_http=True
)
"""The policy of --dev, which allows a test's receivers."""


class FakeResolver:
    """Names with the addresses that a test gives them; all others do not exist."""

    def __init__(self, names: Mapping[str, Sequence[str]], *, seconds: float = 0.0) -> None:
        self.names = names
        self.ttl_seconds = seconds
        self.queried_hosts: list[str] = []

    async def __call__(self, host: str, /) -> Resolution:
        self.queried_hosts.append(host)
        return make_resolution(*self.names.get(host, ()), seconds=self.ttl_seconds)

    async def aclose(self) -> None: ...


def make_resolution(*addresses: str, seconds: float = 0.0) -> Resolution:
    """What a resolver answers; nothing of it is cached unless it says so."""
    return Resolution(addresses=tuple(ip_address(address) for address in addresses), ttl_seconds=seconds)


class SocketCounter:
    """Stands where sockets are opened, notes every address and opens none: nothing ever leaves the machine."""

    def __init__(self) -> None:
        self.addresses: list[Address] = []

    def __call__(self, address: Address) -> socket.socket:
        self.addresses.append(address)
        raise ConnectionRefusedError("this test opens no sockets")


def loopback_target(url: str) -> Target:
    return parse_target(url, LOOPBACK_POLICY)
