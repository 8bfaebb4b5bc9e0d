"""The addresses that callbacks may not be sent to: the IANA special-purpose registries as tables, and one pure check.

Python's `ipaddress.is_global` is not used: CPython 3.11 calls ten addresses of these tables global (NAT64 to the metadata
service, multicast, site-local, 5f00::/16, 3fff::/20 and more). These tables copy the registries:

    https://www.iana.org/assignments/iana-ipv4-special-registry
    https://www.iana.org/assignments/iana-ipv6-special-registry
    https://www.iana.org/assignments/ipv6-address-space              (only 2000::/3 is global unicast)

Packets to an IPv6 address that embeds an IPv4 address may reach either, so both addresses must be allowed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from ringback.domain.client_address import Address, Network


@dataclass(frozen=True, slots=True)
class SpecialRange:
    """A network that holds no public servers, and its purpose."""

    network: Network
    name: str
    can_be_opened: bool = True
    """Whether an operator may allow it. Cloud metadata services hand out credentials, so they stay forbidden."""

    def __str__(self) -> str:
        return f"{self.name} ({self.network})"


def _special_ranges(rows: dict[str, str], *, openable: bool = True) -> tuple[SpecialRange, ...]:
    return tuple(SpecialRange(ip_network(network), name, openable) for network, name in rows.items())


METADATA_RANGES: Final = _special_ranges(
    {
        "169.254.169.254/32": "cloud metadata service",
        "169.254.170.2/32": "container credentials service (AWS ECS)",
        "169.254.170.23/32": "pod credentials service (AWS EKS)",
        "169.254.0.23/32": "cloud metadata service (Tencent)",
        "100.100.100.200/32": "cloud metadata service (Alibaba)",
        "192.0.0.192/32": "cloud metadata service (Oracle)",
        "168.63.129.16/32": "platform service (Azure), although its address is a public one",
        "fd00:ec2::254/128": "cloud metadata service (AWS)",
        "fd00:ec2::23/128": "pod credentials service (AWS EKS)",
        "fd20:ce::254/128": "cloud metadata service (Google)",
        "fe80::a9fe:a9fe/128": "cloud metadata service (OpenStack)",
    },
    openable=False,
)
"""From the providers' documentation. Some lie inside networks that operators do allow (100.64.0.0/10, fd00::/8)."""

SPECIAL_RANGES: Final = _special_ranges(
    {
        "0.0.0.0/8": "this network",
        "10.0.0.0/8": "private use",
        "100.64.0.0/10": "shared address space",
        "127.0.0.0/8": "loopback",
        "169.254.0.0/16": "link-local",
        "172.16.0.0/12": "private use",
        "192.0.0.0/24": "IETF protocol assignments",
        "192.0.2.0/24": "documentation",
        "192.88.99.0/24": "6to4 relay anycast",
        "192.168.0.0/16": "private use",
        "198.18.0.0/15": "benchmarking",
        "198.51.100.0/24": "documentation",
        "203.0.113.0/24": "documentation",
        "224.0.0.0/4": "multicast",
        "255.255.255.255/32": "limited broadcast",
        "240.0.0.0/4": "reserved",
        "::/128": "unspecified",
        "::1/128": "loopback",
        "::/96": "IPv4-compatible, deprecated",
        "::ffff:0:0/96": "IPv4-mapped",
        "64:ff9b:1::/48": "local-use IPv4/IPv6 translation",
        "100::/64": "discard-only",
        "100:0:0:1::/64": "dummy prefix",
        "2001::/32": "Teredo tunnel",
        "2001::/23": "IETF protocol assignments",
        "2001:db8::/32": "documentation",
        "2002::/16": "6to4 tunnel",
        "3fff::/20": "documentation",
        "5f00::/16": "segment routing",
        "fc00::/7": "unique local",
        "fe80::/10": "link-local",
        "fec0::/10": "site-local, deprecated",
        "ff00::/8": "multicast",
        "::/3": "not global unicast",
        "4000::/2": "not global unicast",
        "8000::/1": "not global unicast",
    }
)
"""Narrower ranges precede the wider ranges that contain them. The last three rows are everything outside 2000::/3."""

NAT64_NETWORK: Final = IPv6Network("64:ff9b::/96")
"""RFC 6052: how a host without IPv4 reaches an IPv4 server. An address is global if its embedded IPv4 address is."""
_NAT64_LOCAL_NETWORK: Final = IPv6Network("64:ff9b:1::/48")
_IPV4_COMPATIBLE_NETWORK: Final = IPv6Network("::/96")
_LOOPBACK_V6: Final = IPv6Address("::1")


@lru_cache(maxsize=1024)
def parse_address_literal(host: str) -> Address | None:
    """The address that `host` spells; None for a name."""
    try:
        return ip_address(host)
    except ValueError:
        return None


def find_forbidden_range(address: Address, *, allowed_networks: Sequence[Network]) -> SpecialRange | None:
    """The special range that forbids a connection to `address`, or None if it is allowed.

    `allowed_networks` are special networks that the operator allows (RINGBACK_CALLBACK_PRIVATE_CIDRS).
    """
    ranges = (_forbidden_range(each, allowed_networks) for each in effective_addresses(address))
    return next((special for special in ranges if special is not None), None)


def effective_addresses(address: Address) -> tuple[Address, ...]:
    """The addresses that packets to `address` may reach: the address itself and the IPv4 addresses embedded in it."""
    if isinstance(address, IPv4Address):
        return (address,)
    if address.ipv4_mapped is not None:
        return (address.ipv4_mapped,)  # the kernel uses IPv4 only
    return (*_embedded_ipv4_addresses(address), address)


def is_in_allowed_networks(address: Address, allowed_networks: Iterable[Network]) -> bool:
    """Whether the address, and every address embedded in it, lies in an allowed network."""
    networks = tuple(allowed_networks)
    return all(any(each in network for network in networks) for each in effective_addresses(address))


def _embedded_ipv4_addresses(address: IPv6Address) -> tuple[IPv4Address, ...]:
    if address.sixtofour is not None:
        return (address.sixtofour,)
    if address.teredo is not None:
        return address.teredo
    if (
        address in NAT64_NETWORK
        or address in _NAT64_LOCAL_NETWORK
        or (address in _IPV4_COMPATIBLE_NETWORK and address > _LOOPBACK_V6)
    ):
        return (IPv4Address(int(address) & 0xFFFF_FFFF),)
    return ()


def _forbidden_range(address: Address, allowed_networks: Sequence[Network]) -> SpecialRange | None:
    metadata_range = _first_containing(METADATA_RANGES, address)
    if metadata_range is not None:
        return metadata_range
    if address in NAT64_NETWORK or any(address in network for network in allowed_networks):
        return None
    return _first_containing(SPECIAL_RANGES, address)


def _first_containing(table: tuple[SpecialRange, ...], address: Address) -> SpecialRange | None:
    return next((special for special in table if address in special.network), None)
