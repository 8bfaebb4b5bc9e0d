"""curl alone: a legacy session, and a modern request without a session."""

import asyncio
import json
from asyncio.subprocess import PIPE
from typing import Any, Final

import pytest

from tests.interaction.interop.conftest import GatewayChain
from tests.support.limits import WAIT_SECONDS

CURL_SECONDS: Final = str(WAIT_SECONDS)
ACCEPT: Final = "accept: application/json, text/event-stream"
INITIALIZE: Final = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "curl", "version": "8"},
}
ENVELOPE: Final[dict[str, Any]] = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


async def curl(url: str, body: dict[str, Any], *headers: str) -> tuple[int, dict[str, str], dict[str, Any]]:
    """Status, headers and the JSON-RPC response, which is plain or the last event of a stream."""
    sent = [word for header in ("content-type: application/json", ACCEPT, *headers) for word in ("-H", header)]
    process = await asyncio.create_subprocess_exec(
        "curl", "-sS", "-i", "--max-time", CURL_SECONDS, *sent, "-d", json.dumps(body), url, stdout=PIPE
    )
    out, _ = await process.communicate()
    head, _, content = out.decode().partition("\r\n\r\n")
    status, *lines = head.split("\r\n")
    returned = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return int(status.split()[1]), returned, _answer(content)


def _answer(content: str) -> dict[str, Any]:
    events = [line.removeprefix("data: ") for line in content.splitlines() if line.startswith("data: {")]
    text = events[-1] if events else content
    return dict(json.loads(text)) if text.strip() else {}


def request(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


@pytest.mark.requirement("R28")
async def test_a_session_by_hand(street: GatewayChain) -> None:
    opened, headers, greeting = await curl(street.gateway_url, request("initialize", INITIALIZE))
    session = (f"mcp-session-id: {headers['mcp-session-id']}", "mcp-protocol-version: 2025-11-25")
    accepted, _, _ = await curl(street.gateway_url, {"jsonrpc": "2.0", "method": "notifications/initialized"}, *session)
    _, _, called = await curl(street.gateway_url, request("tools/call", {"name": "count", "arguments": {}}), *session)

    assert (opened, accepted) == (200, 202)
    assert greeting["result"]["instructions"].startswith("Paint it blue.")
    assert called["result"]["structuredContent"] == {"count": 3}


@pytest.mark.requirement("R28")
async def test_one_request_without_a_session(street: GatewayChain) -> None:
    headers = ("mcp-protocol-version: 2026-07-28", "mcp-method: tools/call", "mcp-name: count")

    status, _, called = await curl(
        street.gateway_url, request("tools/call", {"name": "count", "arguments": {}, "_meta": ENVELOPE}), *headers
    )

    assert status == 200
    assert called["result"]["resultType"] == "complete"
    assert called["result"]["structuredContent"] == {"count": 3}
