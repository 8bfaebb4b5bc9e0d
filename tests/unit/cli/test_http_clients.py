"""A proxy of the environment is no way to a service on this machine: the doctor reaches it directly."""

import asyncio

import pytest

from ringback.cli.http_clients import bypass_proxy_here
from ringback.cli.installation_checks import network
from ringback.cli.installation_checks.public_url import open_public_http
from ringback.settings import load_settings
from tests.support.raw_http_server import RawServer, serving_raw

BODY = b'{"status": "ok"}'


@pytest.fixture(autouse=True)
def unusable_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "NO_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")


async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b" % (len(BODY), BODY))
    await writer.drain()


async def test_the_doctor_finds_a_service_on_this_machine() -> None:
    server = RawServer()
    async with serving_raw(respond, server):
        url = server.url.removesuffix("/mcp")
        assert await network.is_running(url)
        async with open_public_http(load_settings(), url) as http:
            assert (await http.get(f"{url}/healthz")).content == BODY


def test_only_urls_of_this_machine_have_no_proxy() -> None:
    here = bypass_proxy_here(
        "http://127.0.0.1:8090", "http://localhost/mcp", "http://[::1]:8090", "http://10.1.2.3:8090"
    )

    assert here == dict.fromkeys(("all://127.0.0.1:8090", "all://localhost", "all://[::1]:8090"))
