"""The AI SDK's client of MCP Events, and its webhook handler, against the gateway: the scenarios of `scripts/interop`."""

import shutil
import signal
from collections.abc import Sequence
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
from tests.support.upstreams import make_http_config, serving

CLIENT: Final = EVENT_CLIENTS[0]
PACKAGE: Final = "@ai-sdk/mcp"
ZOD: Final = "zod@4.6.7"
"""A peer dependency of the client."""
SCENARIOS: Final = (
    *("list", "subscribe", "event", "filter", "twice", "refused", "replay", "refresh", "unsubscribe", "legacy"),
)
"""All that need no restart of the service, which `scripts/interop` does with processes."""

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


async def make_environment(folder: Path) -> Environment:
    version = read_pins(Ecosystem.NPM)[CLIENT.environment_name][PACKAGE].version
    installed = await npm.install_npm_package(PACKAGE, version, ZOD)
    (folder / "node_modules").symlink_to(installed / "node_modules")
    return InstalledNode(Ecosystem.NPM, folder)


@pytest.mark.requirement("R31")
@pytest.mark.requirement("R16")
async def test_the_ai_sdk_subscribes_receives_each_end_refreshes_and_unsubscribes_in_both_eras(tmp_path: Path) -> None:
    driver = DriverProcess(await make_environment(tmp_path), CLIENT.driver, tmp_path / "driver.log")
    async with (
        serving(server.streamable_http_app()) as upstream,
        running_application(
            tmp_path, make_http_config(upstream.url), auth="off", allowed_hosts=("127.0.0.1",)
        ) as ringback,
        serving(ringback.app.api) as service,
    ):
        stage = RunningStage(f"{service.url}/stage")
        judged = await EventsRun(client=CLIENT, driver=driver, stage=stage, only=SCENARIOS).run()

    assert list(judged) == list(SCENARIOS)
    assert failures(judged) == {}


def failures(judged: dict[str, Judgement]) -> dict[str, str]:
    return {name: each.detail for name, each in judged.items() if each.verdict is not Verdict.PASSED}
