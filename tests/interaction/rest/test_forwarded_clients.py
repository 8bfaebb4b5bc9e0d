"""Behind a trusted proxy, each client has its own limit of open requests, by the address that the proxy reports."""

import asyncio
import logging
from collections.abc import Mapping
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from ringback.api.forwarded_clients import ForwardedClientMiddleware
from tests.support.limits import WAIT_SECONDS
from tests.support.service import PUBLIC_URL, running_service
from tests.support.upstreams import send_response

PROXY = "10.0.0.1"
LIMIT = 2


class HoldingApp:
    """Holds every request until `release`, and keeps the clients' addresses."""

    def __init__(self) -> None:
        self.clients: list[str] = []
        self.release = asyncio.Event()
        self.arrived = asyncio.Condition()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI
        async with self.arrived:
            self.clients.append(scope["client"][0])
            self.arrived.notify_all()
        await self.release.wait()
        await send_response(send, 200, "text/plain", b"done")

    async def wait_for_requests(self, count: int) -> None:
        async with asyncio.timeout(WAIT_SECONDS), self.arrived:
            await self.arrived.wait_for(lambda: len(self.clients) == count)


def make_client(app: HoldingApp, *, peer: str = PROXY) -> httpx.AsyncClient:
    limited = ForwardedClientMiddleware(app, trusted_proxies=[ip_network("10.0.0.0/8")], requests_max=LIMIT)
    transport = httpx.ASGITransport(app=limited, client=(peer, 4711))
    return httpx.AsyncClient(transport=transport, base_url="https://ringback.example")


def forwarded(address: str) -> Mapping[str, Any]:
    return {"headers": {"X-Forwarded-For": address}}


async def test_a_client_behind_the_proxy_cannot_take_the_requests_of_another() -> None:
    app = HoldingApp()
    async with make_client(app) as http, asyncio.TaskGroup() as group:
        held = [group.create_task(http.get("/", **forwarded("192.0.2.1"))) for _ in range(LIMIT)]
        await app.wait_for_requests(LIMIT)
        refused = await http.get("/", **forwarded("spoofed, 192.0.2.1"))
        other = group.create_task(http.get("/", **forwarded("192.0.2.2")))
        await app.wait_for_requests(LIMIT + 1)
        app.release.set()
        answers = [(await each).status_code for each in (*held, other)]
        again = await http.get("/", **forwarded("192.0.2.1"))

    assert (refused.status_code, refused.json()["type"]) == (503, "/problems/too-many-connections")
    assert answers == [200] * (LIMIT + 1)
    assert again.status_code == 200
    assert app.clients == ["192.0.2.1", "192.0.2.1", "192.0.2.2", "192.0.2.1"]


@pytest.mark.parametrize("peer", ["203.0.113.9", PROXY], ids=["no trusted proxy", "a proxy that reports no client"])
async def test_without_a_reported_client_nothing_is_limited(peer: str) -> None:
    app = HoldingApp()
    options: Mapping[str, Any] = forwarded("192.0.2.1") if peer != PROXY else {}
    async with make_client(app, peer=peer) as http, asyncio.TaskGroup() as group:
        for _ in range(LIMIT + 1):
            group.create_task(http.get("/", **options))
        await app.wait_for_requests(LIMIT + 1)
        app.release.set()

    assert set(app.clients) == {peer}


async def test_a_refused_client_behind_the_proxy_gets_a_request_id_and_a_request_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="ringback.api")
    async with running_service(tmp_path, trusted_proxies=[ip_network("10.0.0.0/8")], client_requests_max=0) as service:
        transport = httpx.ASGITransport(app=service.app, client=(PROXY, 4711))
        async with httpx.AsyncClient(transport=transport, base_url=PUBLIC_URL) as http:
            refused = await http.get("/healthz", headers={"X-Forwarded-For": "192.0.2.1", "X-Request-Id": "proxy-17"})
            served = await http.get("/healthz")

    lines = [
        (each.__dict__["route"], each.__dict__["status"]) for each in caplog.records if each.msg == "request.finished"
    ]
    assert (refused.status_code, refused.headers["x-request-id"]) == (503, "proxy-17")
    assert served.status_code == 200
    assert lines == [("-", 503), ("/healthz", 200)]


async def test_the_request_line_of_a_client_behind_the_proxy_names_the_route(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="ringback.api")
    async with running_service(tmp_path, trusted_proxies=[ip_network("10.0.0.0/8")]) as service:
        transport = httpx.ASGITransport(app=service.app, client=(PROXY, 4711))
        async with httpx.AsyncClient(transport=transport, base_url=PUBLIC_URL) as http:
            await http.get("/healthz", **forwarded("192.0.2.1"))

    (line,) = [each.__dict__ for each in caplog.records if each.msg == "request.finished"]
    assert line["route"] == "/healthz"
