"""`ringback doctor --callbacks` reaches for every receiver, and judges its certificate."""

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, NoReturn

import httpx
import pytest

from ringback.cli.installation_checks import network as checks
from ringback.cli.installation_checks.database import Finding
from ringback.cli.installation_checks.network import CallbackCheck
from ringback.client import RingbackClient
from ringback.domain.client_address import Address
from ringback.domain.clock import SystemClock
from ringback.notifier.configured_hosts import ConfiguredHosts
from ringback.notifier.http.dialer import DIRECT_EGRESS, Egress
from ringback.notifier.http.egress_proxy import EgressProxy, ProxyConnector
from ringback.notifier.http.guard import TargetGuard
from ringback.schemas import examples
from tests.support.connect_proxy import serving_connect_proxy
from tests.support.receivers import NO_CONTENT, CertificateAuthority, respond_with, serving_receiver
from tests.support.resolvers import LOOPBACK_POLICY, FakeResolver

NAMES = {
    "here.example": ["127.0.0.1"],
    "inside.example": ["10.0.0.1"],
    "proxy.example": ["127.0.0.1"],
    "two.example": ["::1", "127.0.0.1"],
}


@asynccontextmanager
async def proxied_egress(port: int) -> AsyncGenerator[Egress]:
    async with aclosing(ConfiguredHosts(FakeResolver(NAMES))) as hosts:
        proxy = EgressProxy(host="proxy.example", port=port)
        connector = ProxyConnector(proxy, look_up=hosts.look_up_for("egress proxy"))
        yield Egress(find_connector=lambda _: connector)


def make_client(*urls: str, **health: str) -> RingbackClient:
    webhooks = [{**examples.WEBHOOK, "id": f"wh_{number}", "url": url, **health} for number, url in enumerate(urls)]
    answer = {"webhooks": webhooks, "next_cursor": None}
    return RingbackClient(
        "http://ringback.example", transport=httpx.MockTransport(lambda _: httpx.Response(200, json=answer))
    )


async def callbacks(
    *urls: str, certificates: CertificateAuthority | None = None, egress: Egress = DIRECT_EGRESS, **health: str
) -> list[Finding]:
    """The findings about webhooks with these URLs and `health`. Trusts these certificates, or the default ones."""
    tls = ssl.create_default_context() if certificates is None else certificates.client()
    guard = TargetGuard(LOOPBACK_POLICY, resolver=FakeResolver(NAMES))
    check = CallbackCheck(guard, clock=SystemClock(), tls=tls, egress=egress)
    async with make_client(*urls, **health) as client:
        return await check.run_checks(client)


async def test_a_receiver_with_a_valid_certificate_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "CERTIFICATE_DAYS_MIN", 0)
    certificates = CertificateAuthority()
    async with serving_receiver(respond_with(NO_CONTENT), tls=certificates.server("here.example")) as receiver:
        url = receiver.url(host="here.example")
        found = await callbacks(url, f"{url}/other", certificates=certificates)

    assert [(finding.ok, finding.about) for finding in found] == [(True, f"callback {url.removesuffix('/hook')}")]
    assert receiver.requests == []


async def test_a_certificate_that_expires_soon_is_reported() -> None:
    certificates = CertificateAuthority()
    async with serving_receiver(respond_with(NO_CONTENT), tls=certificates.server("here.example")) as receiver:
        (found,) = await callbacks(receiver.url(host="here.example"), certificates=certificates)

    assert (found.ok, "Renew it" in found.detail) == (False, True)


async def test_an_untrusted_certificate_is_reported() -> None:
    async with serving_receiver(
        respond_with(NO_CONTENT), tls=CertificateAuthority().server("here.example")
    ) as receiver:
        (found,) = await callbacks(receiver.url(host="here.example"))

    assert (found.ok, "TLS fails" in found.detail) == (False, True)


async def test_a_receiver_without_tls_is_only_reached_for() -> None:
    async with serving_receiver(respond_with(NO_CONTENT)) as receiver:
        (found,) = await callbacks(receiver.url())

    assert found.ok


async def test_a_receiver_is_reached_at_its_second_address_as_by_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "CERTIFICATE_DAYS_MIN", 0)
    certificates = CertificateAuthority()
    async with serving_receiver(respond_with(NO_CONTENT), tls=certificates.server("two.example")) as receiver:
        (found,) = await callbacks(receiver.url(host="two.example"), certificates=certificates)

    assert found.ok, found.detail


async def test_unreachable_receivers_are_reported() -> None:
    found = await callbacks(
        "https://127.0.0.1:1/", "https://inside.example/", "https://nowhere.example/", "http://agent.example/"
    )

    words = ["No server accepts", "open the network with RINGBACK_CALLBACK_PRIVATE_CIDRS", "no address", "plain http"]
    assert [finding.ok for finding in found] == [False] * 4
    assert all(word in finding.detail for word, finding in zip(words, found, strict=True))


async def test_receivers_that_get_callbacks_are_not_called_wrong_by_settings_that_are_not_the_service_s() -> None:
    urls = "http://agent.example/", "https://inside.example/"

    served = await callbacks(*urls, last_delivery_at="2026-11-20T17:00:00.000Z")
    failing = await callbacks(*urls, last_delivery_at="2026-11-20T17:00:00.000Z", last_error="url_not_allowed")

    assert [(each.about, each.ok, each.is_skipped) for each in served] == [
        ("callback wh_0", True, True),
        ("callback https://inside.example", True, True),
    ]
    assert all("the service delivers there" in each.detail for each in served)
    assert [each.ok for each in failing] == [False, False]
    assert all("other settings than this environment" in each.detail for each in failing)


async def test_receivers_are_reached_through_the_egress_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "CERTIFICATE_DAYS_MIN", 0)
    certificates = CertificateAuthority()
    async with (
        serving_connect_proxy() as proxy,
        serving_receiver(respond_with(NO_CONTENT), tls=certificates.server("here.example")) as receiver,
        proxied_egress(proxy.port) as egress,
    ):
        (found,) = await callbacks(receiver.url(host="here.example"), certificates=certificates, egress=egress)

    assert (found.ok, proxy.authorities) == (True, [f"127.0.0.1:{receiver.port}"])


async def test_a_refusing_egress_proxy_is_reported_and_not_the_receiver() -> None:
    async with (
        serving_connect_proxy(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n") as proxy,
        proxied_egress(proxy.port) as egress,
    ):
        (found,) = await callbacks("https://here.example/", egress=egress)

    assert (found.ok, "RINGBACK_CALLBACK_PROXY" in found.detail, "407" in found.detail) == (False, True, True)


async def test_a_receiver_that_demands_a_client_certificate_gets_the_configured_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(checks, "CERTIFICATE_DAYS_MIN", 0)
    certificates = CertificateAuthority()
    demanding = certificates.demanding_server("here.example")
    demanding.maximum_version = ssl.TLSVersion.TLSv1_2  # in TLS 1.3 the server refuses after the client's handshake
    async with serving_receiver(respond_with(NO_CONTENT), tls=demanding) as receiver:
        url = receiver.url(host="here.example")
        own = certificates.client()
        own.load_cert_chain(certificates.write_client_certificate(tmp_path / "client.pem"))
        (without,) = await callbacks(url, certificates=certificates)
        egress = Egress(client_contexts={url.removesuffix("/hook"): own})
        (with_certificate,) = await callbacks(url, certificates=certificates, egress=egress)

    assert (without.ok, with_certificate.ok) == (False, True)


async def test_a_receiver_that_accepts_and_stays_silent_does_not_block_the_doctor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checks, "CHECK_TIMEOUT_SECONDS", 0.1)

    async def silent(connection: Any) -> None:
        await asyncio.Event().wait()

    async with serving_receiver(silent) as receiver:
        (found,) = await callbacks(receiver.url().replace("http:", "https:"))

    assert not found.ok


async def test_receivers_are_reached_for_a_few_at_a_time() -> None:
    class CountingConnector:
        running = most = 0

        async def connect(self, address: Address, port: int) -> NoReturn:
            del address, port
            self.running += 1
            self.most = max(self.most, self.running)
            await asyncio.sleep(0)  # the others reach this point, too, if nothing holds them back
            self.running -= 1
            raise ConnectionRefusedError

    connector = CountingConnector()
    count = checks.CONNECTIONS_MAX + 1
    egress = Egress(find_connector=lambda _: connector)

    found = await callbacks(*(f"https://127.0.0.1:{port}/" for port in range(1, count + 1)), egress=egress)

    assert (len(found), connector.most) == (count, checks.CONNECTIONS_MAX)
