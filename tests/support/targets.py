"""What the guard is made of in tests: answers of name servers that a test writes down, and sockets that are only counted."""

import socket
from collections.abc import Mapping, Sequence
from ipaddress import ip_address, ip_network
from typing import Final

from ringback.notifier.addresses import Address
from ringback.notifier.resolver import Resolution
from ringback.notifier.target_guard import Target, TargetPolicy, parse_target

PUBLIC: Final = TargetPolicy()
"""As shipped: public https only."""
LOOPBACK: Final = TargetPolicy(
    private_cidrs=(ip_network("127.0.0.0/8"), ip_network("::1/128")), allows_private_http=True
)
"""What --dev sets, and what a receiver of a test needs."""


class FakeResolver:
    """Names with the addresses that a test gives them; all others do not exist."""

    def __init__(self, names: Mapping[str, Sequence[str]], *, seconds: float = 0.0) -> None:
        self.names = names
        self.seconds = seconds
        self.asked: list[str] = []

    async def __call__(self, host: str, /) -> Resolution:
        self.asked.append(host)
        return resolved(*self.names.get(host, ()), seconds=self.seconds)

    async def aclose(self) -> None: ...


def resolved(*addresses: str, seconds: float = 0.0) -> Resolution:
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
    return parse_target(url, LOOPBACK)
