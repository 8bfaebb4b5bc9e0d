"""What the deploy files document, as real processes: the service starts in a clean folder, and a key opens it."""

import asyncio
import json
import os
import re
import shlex
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from scripts.ports import free_port
from tests.support.forked_commands import running_forked_command
from tests.support.limits import WAIT_SECONDS

DEPLOY = Path(__file__).parents[3] / "scripts" / "deploy"


@dataclass(frozen=True, slots=True)
class Documented:
    """The commands of a deploy file, with its folders below a folder of the test."""

    serve: Sequence[str]
    keys: Sequence[str]
    environment: Mapping[str, str]
    keys_environment: Mapping[str, str]
    working_folder: Path


def read_dockerfile(folder: Path) -> Documented:
    """`docker run` and `docker exec`: both have the image's variables; only `run` gives further ones, which `exec` shares."""
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").replace("/data", str(folder / "data"))
    image = text.rpartition("\nFROM ")[2].replace("\\\n", " ")
    variables = dict(re.findall(r"(RINGBACK_\w+)=(\S+)", re.findall(r"^ENV (.*)$", image, re.MULTILINE)[0]))
    given = dict(re.findall(r"-e (RINGBACK_\w+)=(\S+)", re.findall(r"docker run (.*)", text)[0]))
    (keys,) = re.findall(r"docker exec ringback ringback (.*)", text)
    (command,) = re.findall(r"^CMD (\[.*\])$", image, re.MULTILINE)
    environment = {**variables, **given}
    return Documented(json.loads(command), shlex.split(keys), environment, environment, folder / "data")


def read_unit(folder: Path) -> Documented:
    """The unit's own start, and the command that an operator types in any folder."""
    text = (DEPLOY / "ringback.service").read_text(encoding="utf-8")
    text = text.replace("/var/lib/ringback", str(folder / "state")).replace("/etc/ringback", str(folder / "etc"))
    (serve,) = re.findall(r"^ExecStart=/opt/ringback/bin/ringback (.*)$", text, re.MULTILINE)
    environment = dict(re.findall(r"^Environment=(\w+)=(\S+)$", text, re.MULTILINE))
    ((typed, keys),) = re.findall(
        r"^#\s+((?:RINGBACK_\w+=\S+ )*)/opt/ringback/bin/ringback (keys .*)$", text, re.MULTILINE
    )
    typed_environment = dict(pair.split("=", 1) for pair in typed.split())
    return Documented(shlex.split(serve), shlex.split(keys), environment, typed_environment, folder / "state")


@asynccontextmanager
async def serving(documented: Documented) -> AsyncGenerator[str]:
    """The URL at which the documented command serves, with a free port instead of 8090."""
    port = str(free_port())
    environment = {**clean_environment(), **documented.environment, "RINGBACK_PORT": port}
    folder = documented.working_folder
    async with running_forked_command(*documented.serve, folder=folder, environment=environment) as process:
        async with asyncio.timeout(WAIT_SECONDS):
            await wait_until_listening(process.stderr)
        yield f"http://127.0.0.1:{port}"


async def wait_until_listening(lines: asyncio.StreamReader) -> None:
    said: list[bytes] = []
    async for line in lines:
        said.append(line)
        if b"service.listening" in line:
            return
    raise AssertionError(b"".join(said).decode())


async def create_key(documented: Documented, folder: Path) -> str:
    environment = {**clean_environment(), **documented.keys_environment}
    async with running_forked_command(*documented.keys, folder=folder, environment=environment) as process:
        async with asyncio.timeout(WAIT_SECONDS):
            out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode().strip()


def clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("RINGBACK_")}


@pytest.mark.parametrize("read_file", [read_dockerfile, read_unit])
async def test_the_documented_service_starts_and_accepts_the_documented_key(
    tmp_path: Path, read_file: Callable[[Path], Documented]
) -> None:
    documented = read_file(tmp_path)
    for name in ("etc", "data", "state", "somewhere"):
        (tmp_path / name).mkdir()
    (tmp_path / "etc" / "mcp.json").write_text('{"mcpServers": {}}')

    async with serving(documented) as url:
        key = await create_key(documented, tmp_path / "somewhere")
        async with httpx.AsyncClient(base_url=url) as http:
            health = await http.get("/healthz")
            calls = await http.get("/v1/calls", headers={"Authorization": f"Bearer {key}"})

    assert (health.status_code, calls.status_code) == (200, 200)
    assert list((tmp_path / "somewhere").iterdir()) == []
