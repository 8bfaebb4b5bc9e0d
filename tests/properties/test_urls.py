"""Callback URLs of every shape: whatever is accepted, everybody behind it reads the same way."""

from ipaddress import IPv4Address, IPv6Address

import httpx
from hypothesis import example, given
from hypothesis import strategies as st
from yarl import URL

from ringback.domain.errors import InvalidCallbackUrl
from ringback.notifier.http.addresses import NAT64_NETWORK, find_forbidden_range
from ringback.notifier.http.target import Target, parse_target
from tests.support.resolvers import LOOPBACK_POLICY, PUBLIC_POLICY
from tests.support.ssrf import ALLOWED_URLS, BLOCKED_URLS

DELIMITERS = st.sampled_from([*":/?#[]@%\\.-_ \t\n\0", "://", "//", "%25", "%2e", "\uff11", "\u3002", "\u200d"])
WORDS = st.sampled_from(
    [
        "https",
        "HTTPS",
        "http",
        "127.0.0.1",
        "localhost",
        "0x7f",
        "2130706433",
        "::1",
        "::ffff:10.0.0.1",
        "a",
        "ü",
        "xn--",
    ]
)
MORE_WORDS = st.sampled_from(["xn--mnchen-3ya", "example.com", "0", "443", "65535", "65536"])
PIECES = DELIMITERS | WORDS | MORE_WORDS
TEXTS = st.one_of(
    st.text(),
    st.lists(PIECES, max_size=9).map("".join),
    st.lists(PIECES, max_size=6).map(lambda pieces: "https://" + "".join(pieces)),
    st.text(max_size=12).map(lambda text: f"https://a{text}b.example/"),
    st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E)).map(lambda text: f"https://a.example/{text}"),
    st.sampled_from([*BLOCKED_URLS, *ALLOWED_URLS]),
)


def parsed(text: str) -> Target | None:
    try:
        return parse_target(text, LOOPBACK_POLICY)
    except InvalidCallbackUrl:
        return None


@given(TEXTS)
@example("https://a.example/{id}|'\"<>^`[]")
@example("https://xn--a.com/")
def test_any_text_is_refused_or_read_alike_by_every_client(text: str) -> None:
    target = parsed(text)
    if target is None:
        return
    by_aiohttp = URL(target.request_url, encoded=True)
    assert (by_aiohttp.raw_host, by_aiohttp.port, by_aiohttp.raw_path_qs) == (target.host, target.port, target.path)
    by_httpx = httpx.URL(target.request_url)
    assert by_httpx.raw_host.decode() == target.host
    assert (by_httpx.port or {"https": 443, "http": 80}[by_httpx.scheme]) == target.port
    assert (by_aiohttp.scheme, by_httpx.scheme) == (target.scheme, target.scheme)


@given(TEXTS)
def test_a_parsed_url_is_parsed_again_to_the_same_value(text: str) -> None:
    target = parsed(text)
    if target is None:
        return
    again = parse_target(target.request_url, LOOPBACK_POLICY)
    assert (again.scheme, again.host, again.port, again.path, again.origin) == (
        target.scheme,
        target.host,
        target.port,
        target.path,
        target.origin,
    )


@given(TEXTS)
def test_a_host_is_plain_ascii_that_no_resolver_takes_for_a_number(text: str) -> None:
    target = parsed(text)
    if target is None or ":" in target.host:
        return
    assert target.host.isascii()
    assert target.host == target.host.lower()
    if target.host.rpartition(".")[2].isdigit():
        assert str(IPv4Address(target.host)) == target.host


@given(st.integers(0, 2**32 - 1).map(IPv4Address))
def test_odd_spellings_of_an_address_are_never_names(address: IPv4Address) -> None:
    number, octets = int(address), address.packed
    spellings = [
        str(number),
        hex(number),
        f"0{number:o}",
        ".".join(hex(octet) for octet in octets),
        ".".join(f"0{octet:o}" for octet in octets),
        f"{octets[0]}.{number & 0xFFFFFF}",
        f"{octets[0]}.{octets[1]}.{number & 0xFFFF}",
        f"{address}.",
    ]
    canonical = str(address)
    for spelling in spellings:
        target = parsed(f"https://{spelling}/")
        assert target is None or (spelling == canonical and target.host == canonical)
    full_width = canonical.translate({ord("0") + digit: 0xFF10 + digit for digit in range(10)})
    assert parse_target(f"https://{full_width}/", PUBLIC_POLICY).host == canonical


@given(st.integers(0, 2**32 - 1).map(IPv4Address))
def test_an_ipv6_address_is_at_most_as_good_as_the_ipv4_address_inside_it(address: IPv4Address) -> None:
    number = int(address)
    carriers = [
        IPv6Address(0xFFFF << 32 | number),
        IPv6Address(number),
        IPv6Address(0x2002 << 112 | number << 80 | 1),
        IPv6Address(0x20010000 << 96 | number << 64 | 0xFFFFFFFF ^ number),
        IPv6Address(0x0064FF9B << 96 | number),
        IPv6Address(0x0064FF9B0001 << 80 | number),
    ]
    if find_forbidden_range(address, allowed_networks=()) is not None:
        assert all(find_forbidden_range(carrier, allowed_networks=()) is not None for carrier in carriers)


@given(st.integers(0, 2**128 - 1).map(IPv6Address))
def test_nothing_outside_global_unicast_is_allowed_but_translated_public_ipv4(address: IPv6Address) -> None:
    if find_forbidden_range(address, allowed_networks=()) is None:
        translated = address.ipv4_mapped is not None or address in NAT64_NETWORK
        assert translated or int(address) >> 125 == 1


@given(st.integers(0, 2**32 - 1).map(IPv4Address))
def test_python_and_we_agree_on_ipv4_but_for_the_named_exceptions(address: IPv4Address) -> None:
    """`is_global` is right about IPv4 in the end; ours is stricter for multicast, relays, protocol and platform addresses."""
    if not address.is_global:
        assert find_forbidden_range(address, allowed_networks=()) is not None
