"""What lies between the client and the service: proxies of the environment, TLS, redirects."""

import asyncio
import ssl

import httpx
import pytest
import trustme

from ringback.client import ConnectionFailed, RingbackClient, UnexpectedAnswer
from ringback.client.arguments import is_on_this_machine
from ringback.schemas import examples
from tests.support.clock import FakeClock
from tests.support.limits import WAIT_SECONDS
from tests.support.receivers import AcceptedConnection, serving_receiver


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for scheme in ("http", "https", "all", "no"):
        monkeypatch.delenv(f"{scheme}_proxy", raising=False)
        monkeypatch.delenv(f"{scheme}_proxy".upper(), raising=False)


async def respond_with_call(connection: AcceptedConnection) -> None:
    await connection.request()
    body = httpx.Response(200, json=examples.FINISHED_CALL).content
    await connection.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))


async def refuse(connection: AcceptedConnection) -> None:
    await connection.send(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n")


@pytest.mark.parametrize("proxy", ["http://127.0.0.1:1", "socks5://127.0.0.1:1"])
async def test_a_service_on_this_machine_is_not_looked_for_on_that_of_a_proxy(
    monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    monkeypatch.setenv("ALL_PROXY", proxy)

    async with asyncio.timeout(WAIT_SECONDS), serving_receiver(respond_with_call) as server:
        for host in ("127.0.0.1", "localhost"):
            async with RingbackClient(f"http://{host}:{server.port}", api_key="rbk_x") as client:
                assert (await client.call("call_1")).final


@pytest.mark.parametrize(
    ("url", "is_here"),
    [
        ("http://127.0.0.1:8090", True),
        ("http://127.9.9.9", True),
        ("http://[::1]:8090/path", True),
        ("http://localhost", True),
        ("http://ringback.localhost", True),
        ("http://10.0.0.1", False),
        ("https://ringback.example", False),
        ("https://localhost.example", False),
    ],
)
def test_this_machine_is_known_by_its_names_and_addresses(url: str, *, is_here: bool) -> None:
    assert is_on_this_machine(url) is is_here


async def test_a_proxy_that_does_not_reach_the_service_is_named_as_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with asyncio.timeout(WAIT_SECONDS), serving_receiver(refuse) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url(""))
        async with RingbackClient("https://ringback.example", clock=FakeClock()) as client:
            with pytest.raises(ConnectionFailed, match=r"The proxy that HTTP_PROXY.*https://ringback\.example.*407"):
                await client.call("call_1")


async def test_a_port_without_tls_is_not_said_to_be_without_a_server() -> None:
    async with asyncio.timeout(WAIT_SECONDS), serving_receiver(refuse) as server:
        url = f"https://127.0.0.1:{server.port}"
        async with RingbackClient(url, clock=FakeClock()) as client:
            with pytest.raises(ConnectionFailed, match=f"{url} does not speak TLS as expected .*http:// instead"):
                await client.call("call_1")


async def test_a_certificate_that_is_not_accepted_is_named_as_what_is_wrong() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)  # pyright: ignore[reportUnknownMemberType]

    async with (
        asyncio.timeout(WAIT_SECONDS),
        serving_receiver(refuse, tls=context) as server,
        RingbackClient(server.url(""), clock=FakeClock()) as client,
    ):
        with pytest.raises(ConnectionFailed, match=r"The certificate of .* is not accepted: .*SSL_CERT_FILE"):
            await client.call("call_1")


async def test_a_redirect_is_not_followed_and_its_url_is_named() -> None:
    def redirect(request: httpx.Request) -> httpx.Response:
        location = str(request.url.copy_with(scheme="https"))
        return httpx.Response(308, headers={"location": location})

    async with RingbackClient("http://ringback.example/rb", transport=httpx.MockTransport(redirect)) as client:
        with pytest.raises(UnexpectedAnswer) as caught:
            await client.call("call_1")

    assert str(caught.value).startswith("http://ringback.example/rb redirects to https://ringback.example/rb, and ")
