"""npm's mcp-remote without a key shows its user what to do; with one it connects."""

import asyncio
import os
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from ringback.domain.principal import DEFAULT_SCOPES
from tests.support import npm
from tests.support.api_server import serving_api
from tests.support.application import running_application
from tests.support.limits import WAIT_SECONDS

PACKAGE: Final = "mcp-remote"
VERSION: Final = "0.15.1"

pytestmark = pytest.mark.requirement("R28")


@dataclass(frozen=True, slots=True)
class KeyedService:
    url: str
    key: str


@pytest.fixture(scope="module")
async def keyed(module_path_factory: pytest.TempPathFactory) -> AsyncGenerator[KeyedService]:
    async with (
        running_application(module_path_factory.mktemp("keyed"), allowed_hosts=("127.0.0.1",)) as service,
        serving_api(service.app.api) as url,
    ):
        _, key = await service.app.services.api_keys.create_key(
            "alice", name="test", scopes=DEFAULT_SCOPES, upstreams=None
        )
        yield KeyedService(url, key)


async def run_mcp_remote(url: str, folder: Path, *options: str) -> Process:
    package = await npm.install_npm_package(PACKAGE, VERSION)
    script = package / "node_modules" / PACKAGE / "dist" / "proxy.js"
    environment = {**os.environ, "MCP_REMOTE_CONFIG_DIR": str(folder)}
    return await asyncio.create_subprocess_exec(
        "node", str(script), f"{url}/mcp", *options, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=environment
    )


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ((), "Send your API key: 'Authorization: Bearer rbk_...'. Create one: ringback keys create PRINCIPAL"),
        (("--header", "Authorization:Bearer rbk_wrong"), "This API key is unknown or revoked"),
    ],
    ids=["no key", "a wrong key"],
)
async def test_without_a_valid_key_its_user_reads_the_text_of_the_401(
    keyed: KeyedService, tmp_path: Path, options: tuple[str, ...], shown: str
) -> None:
    process = await run_mcp_remote(keyed.url, tmp_path, *options)
    async with asyncio.timeout(WAIT_SECONDS):
        _, errors = await process.communicate()

    assert process.returncode == 1
    assert shown in errors.decode()


async def test_with_a_key_it_connects(keyed: KeyedService, tmp_path: Path) -> None:
    process = await run_mcp_remote(keyed.url, tmp_path, "--header", f"Authorization:Bearer {keyed.key}")
    assert process.stderr is not None
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            lines = [line.decode() async for line in _lines_until(process.stderr, b"Proxy established")]
    finally:
        process.kill()
        await process.communicate()

    assert "Proxy established successfully" in lines[-1]


async def _lines_until(stream: asyncio.StreamReader, text: bytes) -> AsyncGenerator[bytes]:
    while line := await stream.readline():
        yield line
        if text in line:
            return
