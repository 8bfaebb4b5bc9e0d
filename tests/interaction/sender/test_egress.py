"""Egress that the operator configures: a real CONNECT proxy, and certificates for receivers that demand one."""

import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from ipaddress import ip_network
from pathlib import Path

import pytest

from ringback.domain.attempt_category import AttemptCategory
from ringback.domain.delivery import AttemptResult
from ringback.notifier.configured_hosts import ConfiguredHosts
from ringback.notifier.http.client import Http1Sender
from ringback.notifier.http.client_certificates import InvalidClientCertificate, load_client_contexts
from ringback.notifier.http.dialer import Egress
from ringback.notifier.http.egress_proxy import EgressProxy, ProxyConnector, parse_proxy_url
from ringback.notifier.http.guard import TargetGuard
from ringback.notifier.http.target import Target, TargetPolicy
from tests.support.clock import FakeClock
from tests.support.connect_proxy import ESTABLISHED, serving_connect_proxy
from tests.support.event_loops import both_event_loops
from tests.support.limits import WAIT_SECONDS
from tests.support.receivers import NO_CONTENT, CertificateAuthority, respond_with, serving_receiver
from tests.support.resolvers import LOOPBACK_POLICY, PUBLIC_POLICY, FakeResolver, loopback_target

anyio_backend = both_event_loops

NAMES = {"receiver.test": ["127.0.0.1"], "inner.test": ["10.1.2.3"], "proxy.test": ["127.0.0.1"]}


@asynccontextmanager
async def make_sender(
    tls: ssl.SSLContext,
    proxy: EgressProxy | None = None,
    *,
    policy: TargetPolicy = LOOPBACK_POLICY,
    client_contexts: Mapping[str, ssl.SSLContext] | None = None,
) -> AsyncGenerator[Http1Sender]:
    resolver = FakeResolver(NAMES)
    connector = proxy and ProxyConnector(proxy, look_up=ConfiguredHosts(resolver).look_up_for("egress proxy"))
    egress = Egress(
        find_connector=lambda address: None if proxy is None or proxy.bypasses(address) else connector,
        client_contexts=client_contexts or {},
    )
    guard = TargetGuard(policy, resolver=resolver)
    sender = Http1Sender(guard, clock=FakeClock(), ssl_context=tls, egress=egress)
    try:
        yield sender
    finally:
        await sender.aclose()
        await guard.aclose()


def make_target(port: int, host: str = "receiver.test") -> Target:
    origin = f"https://{host}:{port}"
    return Target(url=f"{origin}/hook", scheme="https", host=host, port=port, path="/hook", origin=origin)


async def test_a_callback_goes_through_the_proxy_to_the_judged_address_and_tls_names_the_receiver(
    client_tls: ssl.SSLContext, certificates: CertificateAuthority
) -> None:
    async with (
        serving_receiver(respond_with(NO_CONTENT), tls=certificates.server("receiver.test")) as receiver,
        serving_connect_proxy() as proxy,
        make_sender(client_tls, parse_proxy_url(f"http://agent:p%40ss@proxy.test:{proxy.port}")) as sender,
    ):
        answers = [await sender.post(make_target(receiver.port), {}, b"{}") for _ in range(2)]

        assert [answer.category for answer in answers] == [AttemptCategory.DELIVERED] * 2
        assert proxy.authorities == [f"127.0.0.1:{receiver.port}"]  # one tunnel for both, to an address
        assert "proxy-authorization: Basic YWdlbnQ6cEBzcw==\r\n" in proxy.requests[0]
        assert {request.headers["host"] for request in receiver.requests} == {f"receiver.test:{receiver.port}"}
        assert not any("proxy" in name for request in receiver.requests for name in request.headers)


async def test_the_receivers_certificate_is_verified_behind_the_proxy(
    client_tls: ssl.SSLContext, certificates: CertificateAuthority
) -> None:
    async with (
        serving_receiver(respond_with(NO_CONTENT), tls=certificates.server("other.test")) as receiver,
        serving_connect_proxy() as proxy,
        make_sender(client_tls, EgressProxy(host="127.0.0.1", port=proxy.port)) as sender,
    ):
        answer = await sender.post(make_target(receiver.port), {}, b"{}")

    assert answer.category is AttemptCategory.CERTIFICATE_NAME_MISMATCH


async def test_a_blocked_address_never_reaches_the_proxy(client_tls: ssl.SSLContext) -> None:
    async with (
        serving_connect_proxy() as proxy,
        make_sender(client_tls, EgressProxy(host="127.0.0.1", port=proxy.port), policy=PUBLIC_POLICY) as sender,
    ):
        answer = await sender.post(make_target(443, "inner.test"), {}, b"{}")

    assert (answer.category, proxy.requests) == (AttemptCategory.BLOCKED_ADDRESS, [])


@pytest.mark.parametrize(
    ("response", "category", "detail"),
    [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", AttemptCategory.PROXY_FAILED, "status 407"),
        (b"HTTP/1.1 403 Forbidden\r\n\r\nno", AttemptCategory.PROXY_FAILED, "status 403"),
        (b"HTTP/1.1 503 Service Unavailable\r\n\r\n", AttemptCategory.HOST_UNREACHABLE, "status 503"),
        (b"HTTP/1.0 504 Gateway Timeout\r\n\r\n", AttemptCategory.CONNECT_TIMEOUT, "status 504"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", AttemptCategory.PROXY_FAILED, "does not speak HTTP"),
        (ESTABLISHED + NO_CONTENT, AttemptCategory.PROXY_FAILED, "sent bytes after its response"),
        (b"", AttemptCategory.PROXY_FAILED, "no complete response"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"a" * 20_000 + b"\r\n\r\n", AttemptCategory.PROXY_FAILED, "no complete response"),
    ],
    ids=lambda value: str(value)[:12],
)
async def test_a_proxy_that_does_not_connect_says_whose_failure_it_is(
    client_tls: ssl.SSLContext, response: bytes, category: AttemptCategory, detail: str
) -> None:
    async with (
        serving_connect_proxy(response) as proxy,
        make_sender(client_tls, EgressProxy(host="127.0.0.1", port=proxy.port)) as sender,
    ):
        answer = await sender.post(make_target(443), {}, b"{}", deadline_seconds=WAIT_SECONDS)

    assert answer.category is category
    assert detail in (answer.detail or "")


async def test_a_proxy_that_is_down_or_has_no_address_is_no_failure_of_the_receiver(client_tls: ssl.SSLContext) -> None:
    async with serving_connect_proxy() as proxy:
        port = proxy.port

    async def post_through(host: str) -> AttemptResult:
        async with make_sender(client_tls, EgressProxy(host=host, port=port)) as sender:
            return await sender.post(make_target(443), {}, b"{}")

    down, unknown = await post_through("127.0.0.1"), await post_through("nowhere.test")

    assert (down.category, down.detail) == (
        AttemptCategory.PROXY_FAILED,
        "the egress proxy is unreachable: connection refused",
    )
    assert unknown.category is AttemptCategory.PROXY_FAILED


async def test_receivers_in_excepted_networks_are_reached_directly(client_tls: ssl.SSLContext) -> None:
    async with serving_receiver(respond_with(NO_CONTENT)) as receiver, serving_connect_proxy() as proxy:
        excepting = EgressProxy(host="127.0.0.1", port=proxy.port, bypassed_networks=(ip_network("127.0.0.0/8"),))
        async with make_sender(client_tls, excepting) as sender:
            answer = await sender.post(loopback_target(receiver.url()), {}, b"{}")

    assert (answer.category, proxy.requests) == (AttemptCategory.DELIVERED, [])


@pytest.mark.parametrize(
    "url", ["proxy:3128", "https://proxy:3128", "socks5://proxy", "http://", "http://proxy:x", "http://proxy/path"]
)
def test_an_unusable_proxy_url_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(ValueError, match="http://HOST:PORT") as refused:
        parse_proxy_url(url)

    assert url not in str(refused.value).replace("http://HOST", "").replace("http://USER", "")


async def test_a_client_certificate_is_shown_to_its_origin_and_to_no_other(
    certificates: CertificateAuthority, client_tls: ssl.SSLContext, tmp_path: Path
) -> None:
    path = certificates.write_client_certificate(tmp_path / "client.pem")
    demanding = certificates.demanding_server("receiver.test", "127.0.0.1")
    async with serving_receiver(respond_with(NO_CONTENT), tls=demanding) as receiver:
        contexts = load_client_contexts(
            [f"https://receiver.test:{receiver.port}={path}"], policy=PUBLIC_POLICY, make_context=certificates.client
        )
        async with make_sender(client_tls, client_contexts=contexts) as sender:
            named = await sender.post(make_target(receiver.port), {}, b"{}")
            other = await sender.post(loopback_target(receiver.url()), {}, b"{}")

    assert named.category is AttemptCategory.DELIVERED
    assert other.category in {AttemptCategory.CLIENT_CERTIFICATE_REFUSED, AttemptCategory.CONNECTION_BROKEN}


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("https://a.example=missing.pem", "cannot be read"),
        ("https://a.example=empty.pem", "must contain a certificate"),
        ("https://a.example/path=empty.pem", "without a path"),
        ("https://a.example", "Write each entry"),
        ("http://a.example=empty.pem", "plain http"),
    ],
)
def test_an_unusable_client_certificate_is_refused_with_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str, reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty.pem").touch()

    with pytest.raises(InvalidClientCertificate, match=reason):
        load_client_contexts([entry], policy=PUBLIC_POLICY, make_context=ssl.create_default_context)
