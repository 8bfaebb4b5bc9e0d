"""Reading callback URLs, and judging their hosts."""

from contextlib import suppress
from ipaddress import ip_address, ip_network

import pytest

from ringback.domain.errors import InvalidCallbackUrl
from ringback.notifier.http.guard import BlockedAddress, TargetGuard, find_target_error
from ringback.notifier.http.target import URL_LENGTH_MAX, TargetPolicy, parse_target
from tests.support.resolvers import LOOPBACK_POLICY, PUBLIC_POLICY, FakeResolver
from tests.support.ssrf import ALLOWED_URLS, BLOCKED_IPV4, BLOCKED_IPV6, BLOCKED_NAMES, BLOCKED_URLS


@pytest.mark.parametrize(
    ("url", "host", "origin"), [(url, *expected) for url, expected in ALLOWED_URLS.items()], ids=ascii
)
async def test_a_good_url_is_taken_apart_once(url: str, host: str, origin: str) -> None:
    target = await TargetGuard(PUBLIC_POLICY, resolver=FakeResolver({})).check_url(url)

    assert (target.url, target.host, target.origin) == (url, host, origin)


@pytest.mark.requirement("R26")
async def test_a_blocked_url_cannot_be_registered() -> None:
    accepted: list[str] = []
    for url in BLOCKED_URLS:
        guard = TargetGuard(PUBLIC_POLICY, resolver=FakeResolver({**BLOCKED_NAMES, "no-address.test": ["0.0.0.0"]}))
        with suppress(InvalidCallbackUrl):
            accepted.append((await guard.check_url(url)).url)

    assert accepted == []


def test_a_blocked_address_in_a_url_is_found_without_a_lookup_unless_the_operator_opened_its_network() -> None:
    for host in (*BLOCKED_IPV4, *(f"[{address}]" for address in BLOCKED_IPV6)):
        assert find_target_error(PUBLIC_POLICY, f"https://{host}/hook"), host
    assert find_target_error(LOOPBACK_POLICY, "https://127.0.0.1/hook") is None
    assert [url for url in ALLOWED_URLS if find_target_error(PUBLIC_POLICY, url)] == []


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("https://a.example", "/"),
        ("https://a.example?", "/"),
        ("https://a.example/?", "/"),
        ("https://a.example?x=1", "/?x=1"),
        ("https://a.example/A%2fb/../c;d?e=f?g&h=%zz", "/A%2fb/../c;d?e=f?g&h=%zz"),
        ("https://a.example//x//", "//x//"),
        ("https://a.example/@user:pass", "/@user:pass"),
    ],
)
def test_path_and_query_are_kept_byte_for_byte(url: str, path: str) -> None:
    target = parse_target(url, PUBLIC_POLICY)

    assert target.path == path
    assert target.request_url == f"https://a.example{path}"


def test_a_url_may_be_as_long_as_the_limit_and_no_longer() -> None:
    longest = "https://a.example/".ljust(URL_LENGTH_MAX, "x")

    assert parse_target(longest, PUBLIC_POLICY).url == longest
    with pytest.raises(InvalidCallbackUrl, match="longer than 2048"):
        parse_target(longest + "x", PUBLIC_POLICY)


@pytest.mark.parametrize(
    ("url", "advice"),
    [
        ("http://a.example/", "Use https"),
        ("ftp://a.example/", "Write https://host/path"),
        ("https://user:hunter2@a.example/", "user name or password"),
        ("https://a.example/#part", "fragment"),
        ("https://a.example/a b", "Percent-encode"),
        ("https://a.example/ü", "Percent-encode"),
        ("https://127.1/", "four decimal numbers"),
        ("https://a.example./", "no dot at the end"),
        ("https://a.example:70000/", "between 1 and 65535"),
        ("https://[1::2::3]/", "IPv6"),
        ("https://[::1%eth0]/", "zone"),
    ],
)
def test_the_error_says_what_to_do_and_repeats_nothing(url: str, advice: str) -> None:
    with pytest.raises(InvalidCallbackUrl) as refused:
        parse_target(url, PUBLIC_POLICY)

    assert advice in refused.value.detail
    assert "hunter2" not in refused.value.detail


# -- plain http -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9:8000", "[::1]:9000", "localhost:9000", "[::ffff:127.0.0.1]"])
def test_plain_http_is_read_inside_an_opened_network(host: str) -> None:
    assert parse_target(f"http://{host}/hook", LOOPBACK_POLICY).scheme == "http"


@pytest.mark.parametrize(
    "host", ["10.0.0.1", "8.8.8.8", "a.example", "sub.localhost", "127.0.0.1.example", "[2002:7f00:1::1]"]
)
def test_plain_http_is_refused_everywhere_else(host: str) -> None:
    with pytest.raises(
        InvalidCallbackUrl, match=r"plain http.*RINGBACK_CALLBACK_PRIVATE_CIDRS and RINGBACK_CALLBACK_HTTP=true"
    ):
        parse_target(f"http://{host}/hook", LOOPBACK_POLICY)


@pytest.mark.parametrize(
    "policy",
    [
        TargetPolicy(private_cidrs=LOOPBACK_POLICY.private_cidrs),
        TargetPolicy(allows_private_http=True),
        TargetPolicy(private_cidrs=(ip_network("10.0.0.0/8"),), allows_private_http=True),
    ],
    ids=["http not allowed", "nothing opened", "another network opened"],
)
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_plain_http_needs_both_the_permission_and_the_network(policy: TargetPolicy, host: str) -> None:
    with pytest.raises(InvalidCallbackUrl, match="plain http"):
        parse_target(f"http://{host}/hook", policy)


# -- judging ----------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R26")
async def test_a_registration_error_names_the_range_and_how_to_allow_it() -> None:
    guard = TargetGuard(PUBLIC_POLICY, resolver=FakeResolver({"vault.corp.example": ["10.20.30.40"]}))
    with pytest.raises(InvalidCallbackUrl) as refused:
        await guard.check_url("https://vault.corp.example/hook")

    assert "private use (10.0.0.0/8)" in refused.value.detail
    assert "RINGBACK_CALLBACK_PRIVATE_CIDRS=10.0.0.0/8" in refused.value.detail
    assert "10.20.30.40" not in refused.value.detail


async def test_registration_offers_no_way_to_a_metadata_service() -> None:
    with pytest.raises(InvalidCallbackUrl) as refused:
        await TargetGuard(PUBLIC_POLICY, resolver=FakeResolver({})).check_url(
            "https://169.254.169.254/latest/meta-data"
        )

    assert "cannot open this one" in refused.value.detail
    assert "RINGBACK_" not in refused.value.detail


async def test_a_name_that_does_not_resolve_now_is_accepted() -> None:
    target = await TargetGuard(PUBLIC_POLICY, resolver=FakeResolver({})).check_url("https://not-yet.example/hook")

    assert target.host == "not-yet.example"


async def test_an_opened_network_can_be_registered() -> None:
    policy = TargetPolicy(private_cidrs=(ip_network("10.20.0.0/16"),))
    guard = TargetGuard(policy, resolver=FakeResolver({"vault.corp.example": ["10.20.30.40"]}))

    assert (await guard.check_url("https://vault.corp.example/hook")).host == "vault.corp.example"


@pytest.mark.parametrize(
    "answers", [["8.8.8.8", "10.0.0.1"], ["10.0.0.1", "8.8.8.8"], ["2606:4700::1111", "::1", "8.8.8.8"]]
)
@pytest.mark.requirement("R26")
async def test_one_bad_address_refuses_all(answers: list[str]) -> None:
    with pytest.raises(BlockedAddress):
        await TargetGuard(PUBLIC_POLICY, resolver=FakeResolver({"mixed.test": answers})).resolve_host("mixed.test")


async def test_a_literal_address_is_checked_without_a_lookup() -> None:
    resolver = FakeResolver({})
    guard = TargetGuard(PUBLIC_POLICY, resolver=resolver)

    assert await guard.resolve_host("8.8.8.8") == (ip_address("8.8.8.8"),)
    with pytest.raises(BlockedAddress):
        await guard.resolve_host("::1")
    assert resolver.queried_hosts == []


async def test_addresses_that_were_cached_are_judged_again() -> None:
    """What the guard remembers is where a name leads, and never that this was allowed."""
    resolver = FakeResolver({"kept.test": ["10.0.0.1"]}, seconds=60.0)
    guard = TargetGuard(TargetPolicy(private_cidrs=(ip_network("10.0.0.0/8"),)), resolver=resolver)
    await guard.resolve_host("kept.test")
    guard.policy = PUBLIC_POLICY

    with pytest.raises(BlockedAddress):
        await guard.resolve_host("kept.test")
    assert resolver.queried_hosts == ["kept.test"]
