"""The JavaScript SDK's client gets the same through Ringback as directly."""

import asyncio
import json
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tests.interaction.interop.conftest import GatewayChain
from tests.support import npm
from tests.support.limits import WAIT_SECONDS

PACKAGE: Final = "@modelcontextprotocol/client"
VERSION: Final = "2.4.0"
SCRIPT: Final = Path(__file__).parents[2] / "support" / "npm_client.mjs"


async def run_npm_client(url: str, mode: str, *more: str) -> Process:
    folder = await npm.install_npm_package(PACKAGE, VERSION)
    return await asyncio.create_subprocess_exec(
        "node", str(SCRIPT), str(folder), url, mode, *more, stdin=PIPE, stdout=PIPE, stderr=PIPE
    )


async def parse_output(process: Process, said: bytes = b"") -> dict[str, Any]:
    (session,) = await parse_sessions(process, said)
    return session


async def parse_sessions(process: Process, said: bytes = b"") -> list[dict[str, Any]]:
    """What the client saw in each of its sessions."""
    async with asyncio.timeout(WAIT_SECONDS):
        out, errors = await process.communicate(said)
    assert process.returncode == 0, errors.decode()
    return [dict(json.loads(line)) for line in out.splitlines()]


@pytest.mark.requirement("R28")
async def test_a_session_of_either_era_gets_the_same_as_without_ringback(street: GatewayChain) -> None:
    client = await run_npm_client(f"{street.direct_url},{street.gateway_url}", "legacy,2026-07-28")
    sessions = await parse_sessions(client)

    assert len(sessions) == 4
    for direct, through in (sessions[:2], sessions[2:]):
        assert through == direct
        assert direct["count"]["structuredContent"] == {"count": 3}
        assert "raised" in direct["lie"]
        assert direct["ask"]["content"][0]["text"] == "painted blue"


async def give_up_call(street: GatewayChain, mode: str) -> None:
    process = await run_npm_client(street.gateway_url, mode, "wait")
    await asyncio.wait_for(street.upstream.wait_until_held(), WAIT_SECONDS)
    assert (await parse_output(process, b"inside\n"))["given"] == "given up"


async def test_esc_while_the_legacy_npm_client_waits_ends_the_call_upstream(street: GatewayChain) -> None:
    await give_up_call(street, "legacy")
    await asyncio.wait_for(street.upstream.let_go.wait(), WAIT_SECONDS)


@pytest.mark.requirement("R13")
async def test_a_call_that_the_modern_npm_client_gives_up_goes_on(street: GatewayChain) -> None:
    await give_up_call(street, "2026-07-28")
    assert not street.upstream.let_go.is_set()
    street.upstream.release.set()
    async with httpx.AsyncClient(base_url=street.gateway_url.removesuffix("/mcp/stage"), timeout=WAIT_SECONDS) as rest:
        (call, *_) = (await rest.get("/v1/calls")).json()["calls"]
        waited = await rest.post("/v1/calls/wait", json={"call_ids": [call["id"]], "wait_seconds": 60})
    assert waited.json()["calls"][0]["outcome"] == "result"
