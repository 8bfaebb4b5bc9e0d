"""The address of a client behind proxies, from the addresses that each proxy reports in `X-Forwarded-For`.

Every proxy appends the address of its own peer: `client, proxy 1` arrives from proxy 2. A client may send the header too, so
everything to the left of the first untrusted address, read from the right, may be invented.
"""

import ipaddress
from collections.abc import Collection, Iterable
from typing import Final

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

FORWARDED_ADDRESSES_MAX: Final = 32
"""Addresses of the header that are read, from the right: no request passes more proxies."""
_IPV6_SITE_BITS: Final = 64
"""An IPv6 host has a whole network of addresses (RFC 6177), so the first 64 bits identify the peer."""


def parse_address(text: str) -> Address | None:
    """The address, without a zone, and an IPv4 address without its IPv6 form; None if the text is not an address."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def is_trusted(address: Address, trusted_proxies: Collection[Network]) -> bool:
    return any(address in network for network in trusted_proxies)


def find_client_address(
    peer: str, forwarded_for: Iterable[str], trusted_proxies: Collection[Network]
) -> Address | None:
    """The rightmost address that is not a trusted proxy's; None if the peer is not a trusted proxy, or no other is reported.

    `forwarded_for` has the values of the headers in their order. A text that is not an address ends the search, because no
    trusted proxy reports one.
    """
    nearest = parse_address(peer)
    if nearest is None or not is_trusted(nearest, trusted_proxies):
        return None
    reported = [entry for value in forwarded_for for entry in value.split(",")]
    for entry in reversed(reported[-FORWARDED_ADDRESSES_MAX:]):
        address = parse_address(_strip_port(entry.strip()))
        if address is None or not is_trusted(address, trusted_proxies):
            return address
    return None


def identify_peer(address: Address) -> str:
    """The key by which an address is counted: the address, or the /64 of an IPv6 host."""
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.IPv6Network((address, _IPV6_SITE_BITS), strict=False))
    return str(address)


def _strip_port(entry: str) -> str:
    """Some proxies write `192.0.2.1:4711` or `[2001:db8::1]:4711`."""
    if entry.startswith("["):
        return entry[1:].partition("]")[0]
    return entry.partition(":")[0] if entry.count(":") == 1 else entry
