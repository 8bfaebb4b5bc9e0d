"""The AI SDK's client of MCP Events, and its webhook handler, against the gateway: the scenarios of `scripts/interop`."""

import asyncio
import os
import shutil
import signal
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from mcp.server import MCPServer

from scripts.interop_runs.driver_process import DriverProcess
from scripts.interop_runs.environments import DRIVERS, Environment
from scripts.interop_runs.event_clients import EVENT_CLIENTS
from scripts.interop_runs.event_scenarios import EventsRun
from scripts.interop_runs.judge import Judgement, Verdict, outcome_of
from scripts.interop_runs.pins import Ecosystem, read_pins
from tests.support import npm
from tests.support.application import running_application
from tests.support.limits import WAIT_SECONDS
from tests.support.upstreams import make_http_config, serving

CLIENT: Final = EVENT_CLIENTS[0]
PACKAGE: Final = "@ai-sdk/mcp"
ZOD: Final = "zod@4.6.7"
"""A peer dependency of the client."""
SCENARIOS: Final = (
    *("list", "subscribe", "event", "filter", "twice", "refused", "replay", "refresh", "unsubscribe", "legacy"),
)
"""All that need no restart of the service, which `scripts/interop` does with processes."""

EXAMPLE: Final = Path(__file__).parents[3] / "scripts/examples/javascript/event_subscriber.mjs"
STORE: Final = """
const rows = new Map();
export const store = {
  get: async (key) => rows.get(key),
  getById: async (id) => [...rows.values()].find((row) => row.id === id),
  set: async (row) => void rows.set(row.key, row),
  update: async (key, patch) => void rows.set(key, { ...rows.get(key), ...patch }),
  delete: async (key) => void rows.delete(key),
};
"""
PROGRAM: Final = """
import { createServer } from "node:http";
const server = createServer(async (incoming, outgoing) => {
  const chunks = [];
  for await (const chunk of incoming) chunks.push(chunk);
  const url = `http://127.0.0.1:${server.address().port}${incoming.url}`;
  const answer = await POST(new Request(url, { method: "POST", headers: incoming.headers, body: Buffer.concat(chunks) }));
  outgoing.writeHead(answer.status, Object.fromEntries(answer.headers)).end(Buffer.from(await answer.arrayBuffer()));
});
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
process.env.CALLBACK_URL = `http://127.0.0.1:${server.address().port}/mcp-events`;
const { POST, subscribe } = await import("./snippet.mjs");
const client = await subscribe("session-7");
const tools = await client.tools();
await tools.stage__fast.execute({ key: "k" }, { toolCallId: "1", messages: [] });
"""
"""Serves the snippet's handler, subscribes, and calls a tool. The handler prints the event."""

server = MCPServer("stage", log_level="WARNING")


@server.tool(structured_output=False)
async def fast(key: str) -> str:
    """Returns at once."""
    return outcome_of(key)


class InstalledNode(Environment):
    """The driver runs with the Node of this machine, beside the packages of the tests."""

    def command(self, driver: str) -> Sequence[str]:
        copied = shutil.copytree(DRIVERS, self.folder / "drivers", ignore=shutil.ignore_patterns("*.py", "__pycache__"))
        return ["node", str(copied / driver)]


@dataclass(frozen=True, slots=True)
class RunningStage:
    url: str

    async def restart(self, number: signal.Signals) -> None:
        raise NotImplementedError(f"no scenario of this test restarts the service ({number})")


@asynccontextmanager
async def running_service(folder: Path) -> AsyncGenerator[str]:
    """A service with the upstream `stage`, without authentication; its MCP endpoint for all upstreams."""
    async with (
        serving(server.streamable_http_app()) as upstream,
        running_application(
            folder, make_http_config(upstream.url), auth="off", allowed_hosts=("127.0.0.1",)
        ) as ringback,
        serving(ringback.app.api) as service,
    ):
        yield service.url


async def make_environment(folder: Path) -> Environment:
    version = read_pins(Ecosystem.NPM)[CLIENT.environment_name][PACKAGE].version
    installed = await npm.install_npm_package(PACKAGE, version, ZOD)
    (folder / "node_modules").symlink_to(installed / "node_modules")
    return InstalledNode(Ecosystem.NPM, folder)


@pytest.mark.requirement("R31")
@pytest.mark.requirement("R16")
async def test_the_ai_sdk_subscribes_receives_each_end_refreshes_and_unsubscribes_in_both_eras(tmp_path: Path) -> None:
    driver = DriverProcess(await make_environment(tmp_path), CLIENT.driver, tmp_path / "driver.log")
    async with running_service(tmp_path) as mcp_url:
        stage = RunningStage(f"{mcp_url}/stage")
        judged = await EventsRun(client=CLIENT, driver=driver, stage=stage, only=SCENARIOS).run()

    assert list(judged) == list(SCENARIOS)
    assert failures(judged) == {}


def failures(judged: dict[str, Judgement]) -> dict[str, str]:
    return {name: each.detail for name, each in judged.items() if each.verdict is not Verdict.PASSED}


@pytest.mark.requirement("R31")
async def test_the_example_of_a_subscriber_prints_the_end_of_a_call(tmp_path: Path) -> None:
    await make_environment(tmp_path)
    for name, code in {
        "snippet.mjs": EXAMPLE.read_text(encoding="utf-8"),
        "store.mjs": STORE,
        "program.mjs": PROGRAM,
    }.items():
        (tmp_path / name).write_text(code, encoding="utf-8")
    async with running_service(tmp_path) as mcp_url:
        environment = os.environ | {"RINGBACK_URL": mcp_url.removesuffix("/mcp")}
        program = str(tmp_path / "program.mjs")
        process = await asyncio.create_subprocess_exec("node", program, env=environment, stdout=PIPE, stderr=PIPE)
        assert process.stdout is not None
        try:
            line = await asyncio.wait_for(process.stdout.readline(), WAIT_SECONDS)
        finally:
            process.kill()
            _, errors = await process.communicate()

    assert line.decode() == "call.finished fast completed\n", errors.decode()
