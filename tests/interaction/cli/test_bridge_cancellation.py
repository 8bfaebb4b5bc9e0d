"""Through `ringback mcp`, `notifications/cancelled` cancels the call in both eras; a client that vanishes cancels nothing."""

import asyncio
import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ringback.client import RingbackClient
from ringback.domain.ids import CallId
from ringback.domain.principal import DEFAULT_SCOPES
from tests.support.api_server import serving_api
from tests.support.application import RunningApplication, running_application
from tests.support.engine import wait_until
from tests.support.forked_commands import ForkedCommand, running_forked_command
from tests.support.interop_upstream import InteropUpstream
from tests.support.limits import WAIT_SECONDS
from tests.support.upstreams import make_http_config, serving

pytestmark = pytest.mark.requirement("R13")

LEGACY: list[dict[str, Any]] = [
    {
        "id": "hello",
        "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}},
    },
    {"method": "notifications/initialized"},
    {"id": "call", "method": "tools/call", "params": {"name": "wait", "arguments": {}}},
]
MODERN_META: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
MODERN: list[dict[str, Any]] = [
    {"id": "call", "method": "tools/call", "params": {"name": "wait", "arguments": {}, "_meta": MODERN_META}}
]
CANCEL = {"method": "notifications/cancelled", "params": {"requestId": "call", "reason": "Esc"}}


@dataclass(frozen=True, slots=True)
class BridgedService:
    service: RunningApplication
    upstream: InteropUpstream
    client: RingbackClient
    url: str
    key: str

    @asynccontextmanager
    async def waiting_client(self, messages: list[dict[str, Any]], folder: Path) -> AsyncGenerator[ForkedCommand]:
        """A bridge whose client waits for a call of `wait`, which runs."""
        async with running_forked_command(
            *("mcp", "--url", self.url, "--upstream", "paint"),
            # A session of its own: a client that disconnected during a wait waits shorter for the rest of its session.
            *("--client-session-id", folder.name),
            folder=folder,
            environment={**os.environ, "RINGBACK_API_KEY": self.key},
        ) as process:
            for message in messages:
                write_message(process, message)
                if message.get("id") == "hello":
                    await read_message(process)
            await self.upstream.wait_until_held()
            yield process

    async def read_call_id(self) -> CallId:
        """The id of the newest call."""
        async for call in self.client.calls():
            return CallId(call.id)
        raise AssertionError("There is no call.")

    async def wait_until_disconnect_noticed(self, call_id: CallId) -> None:
        async def is_unattended() -> bool:
            stored = await self.service.app.store.read(lambda tx: tx.calls.get(call_id))
            return stored is not None and stored.attended_until is None

        await wait_until(is_unattended)


def write_message(process: ForkedCommand, message: dict[str, Any]) -> None:
    process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


async def read_message(process: ForkedCommand) -> Any:
    return json.loads(await asyncio.wait_for(process.stdout.readline(), WAIT_SECONDS))


@pytest.fixture(scope="module")
async def shared_service(module_path_factory: pytest.TempPathFactory) -> AsyncGenerator[BridgedService]:
    upstream = InteropUpstream()
    async with (
        serving(upstream.app()) as paint,
        running_application(
            module_path_factory.mktemp("service"), make_http_config(paint.url, name="paint"), inline_wait_seconds=45
        ) as service,
        serving_api(service.app.api) as url,
    ):
        _, key = await service.app.services.api_keys.create_key(
            "alice", name="test", scopes=DEFAULT_SCOPES, upstreams=None
        )
        yield BridgedService(service, upstream, await service.client(api_key=key), url, key)


@pytest.fixture
def bridged(shared_service: BridgedService) -> BridgedService:
    shared_service.upstream.reset()
    return shared_service


@pytest.mark.parametrize("messages", [LEGACY, MODERN], ids=["legacy", "modern"])
async def test_a_cancellation_cancels_the_call(
    bridged: BridgedService, tmp_path: Path, messages: list[dict[str, Any]]
) -> None:
    async with bridged.waiting_client(messages, tmp_path) as process:
        write_message(process, CANCEL)
        await asyncio.wait_for(bridged.upstream.let_go.wait(), WAIT_SECONDS)
        call = await bridged.client.wait(await bridged.read_call_id())

    assert call.status == "cancelled"


@pytest.mark.parametrize("messages", [LEGACY, MODERN], ids=["legacy", "modern"])
@pytest.mark.parametrize("ending", ["killed", "end of input"])
async def test_a_client_that_vanishes_leaves_its_call(
    bridged: BridgedService, tmp_path: Path, messages: list[dict[str, Any]], ending: str
) -> None:
    async with bridged.waiting_client(messages, tmp_path) as process:
        if ending == "killed":
            process.process.kill()
        else:
            process.stdin.close()
        await asyncio.wait_for(process.wait(), WAIT_SECONDS)
    call_id = await bridged.read_call_id()
    await bridged.wait_until_disconnect_noticed(call_id)
    bridged.upstream.release.set()

    assert (await bridged.client.wait(call_id)).outcome == "result"


async def test_a_cancellation_of_an_unknown_request_cancels_nothing(bridged: BridgedService, tmp_path: Path) -> None:
    async with bridged.waiting_client(MODERN, tmp_path) as process:
        write_message(process, {**CANCEL, "params": {"requestId": "another"}})
        write_message(process, {**CANCEL, "params": {"reason": "no id"}})
        bridged.upstream.release.set()
        answer = await read_message(process)

    assert answer["result"]["content"][0]["text"] == "held"
