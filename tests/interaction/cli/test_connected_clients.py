"""Clients whose files `ringback connect` has written: each starts the command of its file and finds the tools that it had."""

import asyncio
import json
import os
import signal
from pathlib import Path

from mcp import Client, StdioServerParameters
from typer.testing import CliRunner

from ringback.cli.app import app
from ringback.cli.embedded_service.locks import is_locked
from ringback.cli.embedded_service.paths import ServicePaths, find_paths
from ringback.cli.embedded_service.runtime_file import read_running_service
from tests.support.limits import WAIT_SECONDS
from tests.support.upstreams import ControlledUpstream, serving, wait_until_true


class Home:
    """A user of Cursor and Windsurf."""

    def __init__(self, folder: Path) -> None:
        self.files = {
            "cursor": folder / ".cursor" / "mcp.json",
            "windsurf": folder / ".codeium" / "windsurf" / "mcp_config.json",
        }
        folders = {f"XDG_{name}_HOME": str(folder / name.lower()) for name in ("CONFIG", "STATE")}
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "STAGE_TOKEN": "t", **folders}
        self.paths = find_paths(folders)

    def write(self, client: str, entries: dict[str, object]) -> None:
        self.files[client].parent.mkdir(parents=True)
        self.files[client].write_text(f'{{"mcpServers": {json.dumps(entries)} }}')

    async def connect(self, client: str, option: str) -> None:
        """Run the command in this process: another one would import for a second."""
        arguments = ["connect", client, option]
        ended = await asyncio.to_thread(CliRunner().invoke, app, arguments, env=self.environment)
        assert ended.exit_code == 0, ended.output

    def read_command(self, client: str, name: str) -> StdioServerParameters:
        entry = json.loads(self.files[client].read_text())["mcpServers"][name]
        return StdioServerParameters(command=entry["command"], args=entry["args"], env=self.environment)


async def kill_service(paths: ServicePaths) -> None:
    if (running := read_running_service(paths)) is not None:
        os.kill(running.pid, signal.SIGKILL)
        await wait_until_true(lambda: not is_locked(paths.lock))


async def test_connected_clients_find_their_tools_and_a_running_service_learns_of_later_ones(tmp_path: Path) -> None:
    home, stage = Home(tmp_path), ControlledUpstream()
    async with serving(stage.app()) as upstream, asyncio.timeout(2 * WAIT_SECONDS):
        home.write("cursor", {"My Stage": {"url": upstream.url, "headers": {"X-Token": "${env:STAGE_TOKEN}"}}})
        home.write("windsurf", {"other": {"serverUrl": upstream.url}})
        before = {client: file.read_bytes() for client, file in home.files.items()}
        try:
            await home.connect("cursor", "--write")
            async with Client(home.read_command("cursor", "My Stage"), mode="legacy") as client:
                first = await client.call_tool("echo", {"text": "first"})
                await home.connect("windsurf", "--write")
                async with Client(home.read_command("windsurf", "other"), mode="legacy") as later:
                    second = await later.call_tool("echo", {"text": "second"})
            for name in home.files:
                await home.connect(name, "--undo")
        finally:
            await kill_service(home.paths)

    assert [first.is_error, second.is_error] == [False, False]
    assert {client: file.read_bytes() for client, file in home.files.items()} == before
