"""Clients that disconnect while they send a request cause no logged error."""

import asyncio
import logging
from typing import Final
from urllib.parse import urlsplit

import pytest
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope, Send

from ringback.api.middleware import UnhandledErrorMiddleware
from ringback.domain.principal import Scope as Right
from tests.interaction.gateway.conftest import GatewayHarness
from tests.interaction.gateway_hostile.conftest import asserting_no_errors
from tests.interaction.gateway_hostile.connections import wait_until_released
from tests.interaction.gateway_hostile.test_idle_streams import wait_until_settled
from tests.support.mcp_wire import ACCEPT, LEGACY, MODERN

UPSTREAMS: Final = ("paint", "tasks")

pytestmark = pytest.mark.requirement("R13")

LOOP_TURNS: Final = 30


async def abort_request(gate: GatewayHarness, path: str, headers: dict[str, str], *, sent: int, turns: int) -> None:
    """Announce 1,000 bytes, send fewer, and disconnect."""
    url = urlsplit(gate.url)
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    lines = {"host": url.netloc, **ACCEPT, "content-type": "application/json", "content-length": "1000", **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    writer.write(f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + b"{" * sent)
    for _ in range(turns):
        await asyncio.sleep(0)
    writer.transport.abort()
    await reader.read()


@pytest.mark.parametrize("rights", [frozenset({Right.CALLS, Right.READ}), frozenset(Right)], ids=["some", "all"])
@pytest.mark.parametrize("place", ["REST", "legacy", "session", "modern"])
async def test_a_client_that_disconnects_while_it_sends_its_body_logs_no_error(
    gate: GatewayHarness, place: str, rights: frozenset[Right], caplog: pytest.LogCaptureFixture
) -> None:
    tasks = await wait_until_settled(gate)
    async with gate.open_legacy_session("paint", principal="mallory") as session:
        _, key = await gate.ringback.app.services.api_keys.create_key(
            "mallory", name="test", scopes=rights, upstreams=None
        )
        headers = {
            "REST": {},
            "legacy": {"mcp-protocol-version": LEGACY},
            "session": session.headers,
            "modern": {"mcp-protocol-version": MODERN, "mcp-method": "tools/list"},
        }[place] | {"authorization": f"Bearer {key}"}
        path = "/v1/calls" if place == "REST" else "/mcp/paint"
        with asserting_no_errors():
            for turns in range(LOOP_TURNS):
                await abort_request(gate, path, headers, sent=turns * 10, turns=turns * 2)
        assert "tools" in await session.request("tools/list", {})
    await wait_until_released(gate, tasks)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize(
    "error",
    [
        ClientDisconnect(),
        ExceptionGroup("tasks", [ClientDisconnect()]),
        ExceptionGroup("tasks", [ClientDisconnect(), ExceptionGroup("more", [ClientDisconnect()])]),
    ],
)
@pytest.mark.parametrize("started", [True, False])
async def test_every_form_of_client_disconnect_ends_in_the_request(
    error: Exception, caplog: pytest.LogCaptureFixture, *, started: bool
) -> None:
    sent: list[Message] = []

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        if started:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        raise error

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    await UnhandledErrorMiddleware(app)({"type": "http", "method": "GET", "path": "/"}, receive, send)
    assert len(sent) == started
    assert caplog.records == []
