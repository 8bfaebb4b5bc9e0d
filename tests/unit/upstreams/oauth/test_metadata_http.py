"""Requests to servers that an upstream names: https, public addresses, bounded; the operator opens exceptions."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from ipaddress import ip_address, ip_network

import httpx2
import pytest

from ringback.domain.client_address import Address
from ringback.domain.upstream_logins import LoginFailed, LoginFailure
from ringback.notifier.http.guard import BlockedAddress
from ringback.upstreams.config import LoginSettings
from ringback.upstreams.oauth.endpoints import EndpointRules, GuardedLookUp
from ringback.upstreams.oauth.metadata_http import MetadataHttp
from ringback.upstreams.transports.http_pool import PooledHttpTransport, ssl_context
from tests.support.scripted_authorization import CONFIG, SERVER_METADATA, ScriptedServers

PUBLIC, PRIVATE, LOOPBACK, METADATA = "93.184.216.34", "10.0.0.5", "127.0.0.1", "169.254.169.254"


class Names:
    """Implements `LookUp`: each host resolves to one address after the other, the last one for ever."""

    def __init__(self, **addresses: Sequence[str]) -> None:
        self._addresses = {name: list(each) for name, each in addresses.items()}

    async def __call__(self, host: str, /) -> Sequence[Address]:
        remaining = self._addresses[host.partition(".")[0]]
        return [ip_address(remaining.pop(0) if len(remaining) > 1 else remaining[0])]


async def look_up(rules: EndpointRules, names: Names, host: str = "login.example") -> str:
    return str((await GuardedLookUp(rules, names)(host))[0])


@pytest.mark.parametrize("forbidden", [PRIVATE, LOOPBACK, METADATA, "::1", "64:ff9b::7f00:1", "::ffff:10.0.0.1"])
async def test_a_public_upstream_cannot_name_a_server_with_a_private_address(forbidden: str) -> None:
    rules = EndpointRules(upstream_url="https://mcp.example/mcp")
    with pytest.raises(BlockedAddress):
        await look_up(rules, Names(mcp=[PUBLIC], login=[forbidden]))


@pytest.mark.parametrize(
    ("upstream", "address"),
    [
        ("http://10.1.1.1/mcp", PRIVATE),
        ("http://127.0.0.1:8000/mcp", "127.0.0.2"),
        ("http://[::1]:8000/mcp", "::1"),
        ("http://localhost:8000/mcp", LOOPBACK),
        ("http://localhost:8000/mcp", "::1"),
    ],
)
async def test_an_upstream_with_a_private_address_may_have_its_authorization_server_in_its_network(
    upstream: str, address: str
) -> None:
    rules = EndpointRules(upstream_url=upstream)

    assert await look_up(rules, Names(login=[address])) == address
    with pytest.raises(BlockedAddress):
        await look_up(rules, Names(login=["192.168.0.1"]))


async def test_a_name_of_the_configuration_opens_its_own_address_and_not_its_network() -> None:
    """The owner of the upstream's name decides what it resolves to, and the names of its metadata."""
    names = Names(mcp=[PRIVATE], login=["10.9.9.9"])
    rules = EndpointRules(upstream_url="https://mcp.example/mcp")

    assert await look_up(rules, names, "mcp.example") == PRIVATE
    with pytest.raises(BlockedAddress):
        await look_up(rules, names, "login.example")


async def test_a_metadata_service_stays_forbidden_for_an_upstream_there() -> None:
    for url in ("https://mcp.example/mcp", f"http://{METADATA}/mcp"):
        rules = EndpointRules(upstream_url=url, allowed_networks=[ip_network("169.254.0.0/16")])
        for host in ("mcp.example", "login.example"):
            with pytest.raises(BlockedAddress):
                await look_up(rules, Names(mcp=[METADATA], login=[METADATA]), host)


async def test_a_configured_issuer_and_the_operators_networks_are_allowed() -> None:
    upstream = EndpointRules(upstream_url="https://mcp.example/mcp")
    names = Names(mcp=[PUBLIC], login=[PRIVATE])

    assert await look_up(replace(upstream, issuer="https://login.example"), names) == PRIVATE
    assert await look_up(replace(upstream, allowed_networks=[ip_network("10.0.0.0/8")]), names) == PRIVATE


async def test_a_name_that_changes_its_address_cannot_reach_a_private_one() -> None:
    """The connection goes to the addresses that were judged. A transport that resolved again would get the second one."""
    names = Names(mcp=[PUBLIC], login=[PUBLIC, LOOPBACK])
    guarded = GuardedLookUp(EndpointRules(upstream_url="https://mcp.example/mcp"), names)

    assert str((await guarded("login.example"))[0]) == PUBLIC
    with pytest.raises(BlockedAddress):
        await guarded("login.example")


async def test_a_private_address_is_unsafe_and_no_connection_is_made() -> None:
    http = MetadataHttp(
        CONFIG,
        EndpointRules.from_config(CONFIG, ()),
        look_up=Names(mcp=[PUBLIC], login=[LOOPBACK]),
        open_transport=lambda _, guarded: PooledHttpTransport(ssl_context("http:"), look_up=guarded),
    )
    with pytest.raises(LoginFailed, match="private address") as raised:
        await http.get_json(SERVER_METADATA)

    assert raised.value.failure is LoginFailure.UNSAFE


@pytest.mark.parametrize(
    ("upstream", "issuer", "url", "is_safe"),
    [
        ("https://mcp.example/mcp", None, "https://login.example/token", True),
        ("https://mcp.example/mcp", None, "http://login.example/token", False),
        ("https://mcp.example/mcp", None, "http://127.0.0.1:80/token", False),
        ("https://mcp.example/mcp", None, "http://mcp.example/token", False),
        ("http://tools:8000/mcp", None, "http://tools:8000/token", True),
        ("http://tools:8000/mcp", None, "http://tools:9000/token", False),
        ("http://localhost:8000/mcp", None, "http://127.0.0.1:9000/token", True),
        ("https://mcp.example/mcp", "http://127.0.0.1:9000", "http://127.0.0.1:9000/token", True),
        ("https://mcp.example/mcp", None, "https://login.example\\@evil.example/", False),
        ("https://mcp.example/mcp", None, "https:///token", False),
        ("https://mcp.example/mcp", None, "https://login.example:0/", False),
        ("https://mcp.example/mcp", None, "https://login.example:99999/", False),
        ("https://mcp.example/mcp", None, "https://löwe.example/", False),
        ("https://mcp.example/mcp", None, "https://0x7f.1/", False),
        ("https://mcp.example/mcp", None, "https://[fe80::1%25eth0]/", False),
        ("https://mcp.example/mcp", None, "https://user@login.example/", False),
        ("https://mcp.example/mcp", None, "https://[2606:2800:220:1::1]:8443/token", True),
        ("https://mcp.example/mcp", None, "file:///etc/passwd", False),
        ("https://mcp.example/mcp", None, "https://login.example/" + "a" * 2048, False),
        ("https://mcp.example/mcp", None, 7, False),
    ],
)
def test_a_url_is_https_or_at_a_place_that_the_operator_chose(
    upstream: str, issuer: str | None, url: object, *, is_safe: bool
) -> None:
    rules = EndpointRules(upstream_url=upstream, issuer=issuer)
    if is_safe:
        assert rules.require_safe_url(url) == url
    else:
        with pytest.raises(LoginFailed):
            rules.require_safe_url(url)


class EndlessBody(httpx2.AsyncByteStream):
    def __init__(self) -> None:
        self.chunks = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            self.chunks += 1
            yield b" " * 4096


async def test_an_endless_body_is_left_after_64_kilobytes() -> None:
    servers, body = ScriptedServers(), EndlessBody()
    servers.answers[SERVER_METADATA] = lambda _: httpx2.Response(200, stream=body)
    with pytest.raises(LoginFailed) as raised:
        await servers.make_http(CONFIG).get_json(SERVER_METADATA)

    assert raised.value.failure is LoginFailure.INVALID_RESPONSE
    assert body.chunks == 17


async def test_a_compressed_body_is_not_inflated() -> None:
    servers = ScriptedServers()
    servers.answers[SERVER_METADATA] = lambda _: httpx2.Response(
        200, headers={"content-encoding": "gzip"}, stream=httpx2.ByteStream(b"\x1f\x8b\x08 bomb")
    )

    assert (await servers.make_http(CONFIG).get_json(SERVER_METADATA)).document == {}


async def test_the_probe_sends_the_configured_headers_only_to_the_upstream() -> None:
    servers = ScriptedServers()
    http = servers.make_http(replace(CONFIG, headers={"X-Tenant": "acme"}, login=LoginSettings()))
    await http.probe_upstream()
    await http.get_json(SERVER_METADATA)

    assert [request.headers.get("x-tenant") for request in servers.requests] == ["acme", None]
