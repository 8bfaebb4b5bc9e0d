"""The client's address behind proxies: only what trusted proxies report is believed."""

from ipaddress import ip_network

import pytest

from ringback.domain.client_address import FORWARDED_ADDRESSES_MAX, find_client_address, identify_peer, parse_address

TRUSTED = (ip_network("10.0.0.0/8"), ip_network("fd00::/8"))
PROXY = "10.0.0.1"


def find(*forwarded_for: str, peer: str = PROXY) -> str | None:
    address = find_client_address(peer, forwarded_for, TRUSTED)
    return None if address is None else str(address)


def test_the_header_of_a_peer_that_is_no_trusted_proxy_is_not_read() -> None:
    assert find("192.0.2.1", peer="203.0.113.9") is None
    assert find("192.0.2.1", peer="testclient") is None


def test_the_rightmost_address_that_is_not_a_trusted_proxy_is_the_client() -> None:
    assert find("192.0.2.1") == "192.0.2.1"
    assert find("192.0.2.1, 10.0.0.7") == "192.0.2.1"
    assert find("192.0.2.1", "198.51.100.4, fd00::7") == "198.51.100.4"


def test_addresses_that_a_client_invents_are_to_the_left_of_its_own() -> None:
    assert find("127.0.0.1, 192.0.2.66, 198.51.100.4") == "198.51.100.4"


def test_without_another_reported_address_there_is_no_client() -> None:
    assert find() is None
    assert find("10.0.0.7, 10.0.0.8") is None


@pytest.mark.parametrize("entry", ["unknown", "", "_hidden", "192.0.2.256", "http://192.0.2.1/"])
def test_a_text_that_is_not_an_address_ends_the_search(entry: str) -> None:
    assert find(f"192.0.2.1, {entry}, 10.0.0.7") is None


@pytest.mark.parametrize(
    ("entry", "address"),
    [
        ("192.0.2.1:4711", "192.0.2.1"),
        ("[2001:db8::1]:4711", "2001:db8::1"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("2001:db8::1", "2001:db8::1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("fe80::1%eth0", "fe80::1"),
    ],
)
def test_the_spellings_of_common_proxies_are_read(entry: str, address: str) -> None:
    assert find(entry) == address


def test_a_proxy_is_trusted_in_its_ipv6_form_too() -> None:
    assert find("192.0.2.1", peer="::ffff:10.0.0.1") == "192.0.2.1"


def test_a_long_header_is_read_up_to_a_bound() -> None:
    assert find(", ".join(["192.0.2.1", *[PROXY] * FORWARDED_ADDRESSES_MAX])) is None


def test_the_addresses_of_one_ipv6_site_count_together() -> None:
    keys = [identify_peer(address) for text in ("2001:db8::1", "2001:db8::ffff") if (address := parse_address(text))]
    assert keys == ["2001:db8::/64"] * 2
