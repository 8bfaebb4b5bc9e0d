"""The tables of special ranges, and what tunnels hide inside IPv6 addresses."""

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import pytest

from ringback.notifier.http.addresses import (
    METADATA_RANGES,
    SPECIAL_RANGES,
    effective_addresses,
    find_forbidden_range,
    is_in_allowed_networks,
)
from tests.support.ssrf import BLOCKED_IPV4, BLOCKED_IPV6

GOOD = (
    "1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "93.184.216.34", "100.63.255.255", "100.128.0.0", "126.255.255.255",
    "128.0.0.0", "169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0", "191.255.255.255", "192.0.1.0",
    "192.0.3.0", "192.31.196.1", "192.52.193.1", "192.167.255.255", "192.169.0.0", "192.175.48.1", "198.17.255.255",
    "198.20.0.0", "223.255.255.255", "2001:200::1", "2001:4860:4860::8888", "2003::1", "2400:cb00::1", "2606:4700::1111",
    "2620:4f:8000::1", "2a00:1450::1", "3ffe::1", "::ffff:8.8.8.8", "64:ff9b::808:808",
)  # fmt: skip


def is_forbidden(address: str | IPv4Address | IPv6Address) -> bool:
    return find_forbidden_range(ip_address(address), allowed_networks=()) is not None


@pytest.mark.requirement("R26")
def test_a_special_address_is_forbidden() -> None:
    assert [address for address in (*BLOCKED_IPV4, *BLOCKED_IPV6) if not is_forbidden(address)] == []


def test_a_public_address_is_allowed() -> None:
    assert [address for address in GOOD if is_forbidden(address)] == []


def test_a_range_is_forbidden_from_its_first_address_to_its_last() -> None:
    ends = [address for special in SPECIAL_RANGES for address in (special.network[0], special.network[-1])]

    assert [address for address in ends if not is_forbidden(address)] == []


@pytest.mark.parametrize(
    ("address", "inside"),
    [
        ("::ffff:10.0.0.1", ["10.0.0.1"]),
        ("::10.0.0.1", ["10.0.0.1", "::a00:1"]),
        ("2002:a00:1::1", ["10.0.0.1", "2002:a00:1::1"]),
        ("64:ff9b::10.0.0.1", ["10.0.0.1", "64:ff9b::a00:1"]),
        ("64:ff9b:1::10.0.0.1", ["10.0.0.1", "64:ff9b:1::a00:1"]),
        ("2001:0:a00:1:0:0:f5ff:fffe", ["10.0.0.1", "10.0.0.1", "2001:0:a00:1::f5ff:fffe"]),
        ("::1", ["::1"]),
        ("::", ["::"]),
        ("2606:4700::1111", ["2606:4700::1111"]),
        ("10.0.0.1", ["10.0.0.1"]),
    ],
)
def test_an_address_means_the_ipv4_addresses_inside_it(address: str, inside: list[str]) -> None:
    assert effective_addresses(ip_address(address)) == tuple(ip_address(text) for text in inside)


def test_an_opened_network_is_allowed_in_every_spelling_the_kernel_takes_for_it() -> None:
    opened = (ip_network("10.1.0.0/16"),)
    assert find_forbidden_range(IPv4Address("10.1.2.3"), allowed_networks=opened) is None
    assert find_forbidden_range(IPv6Address("::ffff:10.1.2.3"), allowed_networks=opened) is None
    assert find_forbidden_range(IPv4Address("10.2.0.1"), allowed_networks=opened) is not None


@pytest.mark.parametrize(
    "tunnel", ["2002:a01:203::1", "64:ff9b:1::10.1.2.3", "::10.1.2.3", "2001:0:a01:203::f5fe:fdfc"]
)
def test_an_opened_network_does_not_open_the_tunnels_to_it(tunnel: str) -> None:
    assert find_forbidden_range(ip_address(tunnel), allowed_networks=(ip_network("10.1.0.0/16"),)) is not None


def test_an_opened_tunnel_does_not_open_what_is_behind_it() -> None:
    assert find_forbidden_range(ip_address("2002:7f00:1::1"), allowed_networks=(ip_network("2002::/16"),)) is not None


@pytest.mark.parametrize("metadata", METADATA_RANGES, ids=str)
def test_metadata_services_stay_shut_whatever_is_opened(metadata: object) -> None:
    address = next(row.network[0] for row in METADATA_RANGES if row is metadata)
    everything = (ip_network("0.0.0.0/0"), ip_network("::/0"))
    forbidding = find_forbidden_range(address, allowed_networks=everything)
    assert forbidding is not None
    assert not forbidding.can_be_opened


def test_opened_means_every_meaning_of_the_address() -> None:
    opened = (ip_network("127.0.0.0/8"),)
    assert is_in_allowed_networks(ip_address("127.0.0.1"), opened)
    assert is_in_allowed_networks(ip_address("::ffff:127.0.0.1"), opened)
    assert not is_in_allowed_networks(ip_address("::1"), opened)
    assert not is_in_allowed_networks(ip_address("8.8.8.8"), opened)


def test_the_reason_names_the_range() -> None:
    assert str(find_forbidden_range(ip_address("192.168.7.7"), allowed_networks=())) == "private use (192.168.0.0/16)"
    assert str(find_forbidden_range(ip_address("64:ff9b::127.0.0.1"), allowed_networks=())) == "loopback (127.0.0.0/8)"
