"""Connections to the database that are cut in the middle of units: requests get 503, and the workers repeat what they can."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import pytest

from ringback.domain.principal import ALL_SCOPES
from tests.support.application import PUBLIC_URL, SECRET, serving_callbacks
from tests.support.legacy_upstream import LegacyUpstream
from tests.support.limits import WAIT_SECONDS
from tests.support.nodes import Node, running_cluster
from tests.support.postgres import shared_postgres
from tests.support.tcp_proxy import running_tcp_proxy
from tests.support.upstreams import make_http_config, serving

pytestmark = pytest.mark.requirement("R34")

CALLS: Final = 2
PIECES_BETWEEN_CUTS: Final = (23, 29)
"""Of what a node sends to its database. A unit sends three or more, so each number cuts other units and other statements."""
PIECES_BETWEEN_CUTS_DEEP: Final = (13, 17)
"""So few that a unit is repeated many times until it gets through, which takes three times the CPU."""
DECLINED: Final = {"action": "decline"}
FINAL: Final = {"completed", "failed", "cancelled"}


class InsistentClient:
    """Repeats what is answered with 503, the only refusal that it expects."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self.refused = 0

    async def send(self, method: str, path: str, body: Any = None, *, key: str = "") -> dict[str, Any]:
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                headers = {"idempotency-key": key} if key else {}
                response = await self._http.request(method, path, json=body, headers=headers)
                if response.status_code != 503:
                    assert response.is_success, response.text
                    return response.json()
                self.refused += 1

    async def read_call_until(self, call_id: str, status: set[str]) -> dict[str, Any]:
        async with asyncio.timeout(WAIT_SECONDS):
            while (call := await self.send("GET", f"/v1/calls/{call_id}?wait_seconds=1"))[
                "status"
            ] not in status | FINAL:
                pass
        return call


@asynccontextmanager
async def open_client(node: Node, key: str) -> AsyncGenerator[InsistentClient]:
    """Errors that the service does not answer are raised in the test."""
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app=node.ringback.app.api),
        base_url=PUBLIC_URL,
        headers={"authorization": f"Bearer {key}"},
    ) as http:
        yield InsistentClient(http)


async def run_asking_call(alice: InsistentClient, phone_url: str, name: str) -> dict[str, Any]:
    """Start a call, answer its question, and return its end."""
    body = {
        "upstream": "stage",
        "tool": "ask",
        "arguments": {},
        "correlation_id": name,
        "accepts_input": True,
        "callback": {"url": phone_url, "secret": SECRET},
    }
    call_id: str = (await alice.send("POST", "/v1/calls", body, key=name))["call"]["id"]
    asking = await alice.read_call_until(call_id, {"input_required"})
    if asking["status"] == "input_required":
        responses = dict.fromkeys(asking["input_requests"], DECLINED)
        await alice.send("POST", f"/v1/calls/{call_id}/input", {"responses": responses})
    return await alice.read_call_until(call_id, FINAL)


async def test_connections_that_are_cut_in_any_unit_lose_no_call_and_run_no_tool_twice(
    tmp_path: Path, *, deep: bool
) -> None:
    intervals = PIECES_BETWEEN_CUTS_DEEP if deep else PIECES_BETWEEN_CUTS
    upstream = LegacyUpstream()
    upstream.release.set()
    async with (
        serving(upstream.app()) as server,
        serving_callbacks() as phone,
        running_cluster(tmp_path, make_http_config(server.url)) as cluster,
    ):
        address = shared_postgres()
        name = urlsplit(cluster.database_url).path.removeprefix("/")
        async with running_tcp_proxy(urlsplit(address.network_url).port or 5432) as proxy:
            node = await cluster.start_node(database_url=address.tcp_url(name, port=proxy.port))
            _, key = await node.ringback.app.services.api_keys.create_key(
                "alice", name="test", scopes=ALL_SCOPES, upstreams=None
            )
            ended: list[dict[str, Any]] = []
            async with open_client(node, key) as alice:
                for pieces in intervals:
                    proxy.cut_each(pieces)
                    ended += await asyncio.gather(
                        *(run_asking_call(alice, phone.url, f"{pieces}-{number}") for number in range(CALLS))
                    )
                proxy.cut_each(None)
                for call in ended:
                    await phone.wait_for_callback(call["correlation_id"])
            await node.stop()

    assert alice.refused > 0
    assert len(ended) == CALLS * len(intervals)
    assert {call["outcome"] for call in ended} <= {"result", "unknown"}, ended
    assert len(upstream.effects) <= len(ended)
