"""`ringback mcp` without a service: it starts one, which outlives it, and is started again after a kill."""

import asyncio
import json
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from mcp import Client, MCPError
from mcp.client._transport import Transport

from ringback.cli.embedded_service.paths import ServicePaths, find_paths
from ringback.cli.embedded_service.runtime_file import RunningService, read_running_service
from ringback.cli.file_locks import is_locked
from ringback.client import RingbackClient
from tests.support.client_calls import wait_for_states
from tests.support.forked_bridge import forked_bridge
from tests.support.limits import WAIT_SECONDS
from tests.support.upstreams import ControlledUpstream, serving, wait_until_true


def make_command(tmp_path: Path) -> tuple[Callable[[], Transport], ServicePaths]:
    """What forks `ringback mcp`, which starts the service. test_connected_clients starts its Python, too."""
    folders = {f"XDG_{name}_HOME": str(tmp_path / name.lower()) for name in ("CONFIG", "STATE")}
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "RINGBACK_CONFIG": "/no/such/file", **folders}
    return partial(forked_bridge, "--wait", "0", folder=tmp_path, environment=environment), find_paths(folders)


def write_config(paths: ServicePaths, **servers: object) -> None:
    paths.config.parent.mkdir(parents=True, exist_ok=True)
    paths.config.write_text(f'// mine\n{{"mcpServers": {json.dumps(servers)},}}')


def read_service(paths: ServicePaths) -> RunningService:
    running = read_running_service(paths)
    assert running is not None
    return running


async def kill_service(paths: ServicePaths) -> None:
    os.kill(read_service(paths).pid, signal.SIGKILL)
    await wait_until_true(lambda: not is_locked(paths.lock))


async def test_a_running_service_follows_its_files_and_a_hung_one_is_named(tmp_path: Path) -> None:
    stage = ControlledUpstream()
    command, paths = make_command(tmp_path)
    async with serving(stage.app()) as upstream, asyncio.timeout(2 * WAIT_SECONDS):
        entry = {"url": upstream.url, "headers": {"X-Token": "${TOKEN}"}}
        write_config(paths, stage=entry)
        try:
            async with Client(command(), mode="legacy") as client:
                running = read_service(paths)
                async with RingbackClient(running.url, api_key=running.api_key) as rest:
                    (skipped,) = await rest.upstreams()
                    paths.environment.write_text("TOKEN=canary-of-the-file")
                    await wait_for_states(rest, stage="ready")
                    paths.config.write_text('{"mcpServers": ')
                    await wait_until_true(lambda: "not_reloaded" in paths.log.read_text())
                    served = await client.call_tool("stage__echo", {"text": "still here"})
                    write_config(paths, stage=entry, other={"url": "https://a.example/sse"})
                    await wait_for_states(rest, stage="ready", other="skipped")
                os.kill(running.pid, signal.SIGSTOP)
                with pytest.raises(MCPError) as hung:
                    await client.call_tool("stage__echo", {"text": "nobody is there"})
                os.kill(running.pid, signal.SIGCONT)
                after = await client.call_tool("stage__echo", {"text": "it is back"})
                paths.config.unlink()  # as the last `connect --undo` does
                async with RingbackClient(running.url, api_key=running.api_key) as rest:
                    await wait_for_states(rest)
        finally:
            await kill_service(paths)

    log = paths.log.read_text()
    assert skipped.advice is not None
    assert f"add it as NAME=VALUE to {paths.environment}" in skipped.advice
    assert not served.is_error
    assert f"process {running.pid}" in str(hung.value)
    assert f"Its log: {paths.log}" in str(hung.value)
    assert not after.is_error
    assert log.count("not_reloaded") == 1
    assert "environment.readable_by_others" in log
    assert "canary-of-the-file" not in log


async def test_a_call_outlives_its_client_and_the_client_outlives_the_service(tmp_path: Path) -> None:
    stage = ControlledUpstream()
    command, paths = make_command(tmp_path)
    async with serving(stage.app()) as upstream, asyncio.timeout(2 * WAIT_SECONDS):
        write_config(paths, Stage={"url": upstream.url}, broken={"url": "https://a.example/sse"})
        try:
            async with Client(command(), mode="legacy") as client:
                pending = await client.call_tool("stage__hold", {})
                await stage.wait_until_held(1)
            first = read_service(paths)
            async with Client(command(), mode="legacy") as client:
                assert read_service(paths) == first, "the second client uses the service of the first"
                stage.release.set()
                async with RingbackClient(first.url, api_key=first.api_key) as rest:
                    (call,) = [each async for each in rest.calls()]
                    ended = await rest.wait(call.id)
                    names = {each.name: each.state for each in await rest.upstreams()}
                await kill_service(paths)
                after = await client.call_tool("stage__echo", {"text": "again"})
            second = read_service(paths)
        finally:
            await kill_service(paths)

    assert not pending.is_error
    assert ended.outcome == "result"
    assert names == {"stage": "ready", "broken": "skipped"}
    assert not after.is_error
    assert (second.url, second.api_key) == (first.url, first.api_key), "clients and listeners find it where it was"
    assert second.pid != first.pid
