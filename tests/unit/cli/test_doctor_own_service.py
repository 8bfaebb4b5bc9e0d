"""`ringback doctor` of a user whose MCP clients share a service of their own, and who has never run `ringback serve`."""

import json
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx
import pytest
import respx
from typer.testing import Result

from ringback.cli.embedded_service.paths import ServicePaths, find_paths
from ringback.cli.embedded_service.runtime_file import RunningService, write_running_service
from ringback.cli.file_locks import open_lock_file, try_lock
from tests.support.upstreams import STDIO_SERVER

Run = Callable[..., Result]

URL: Final = "http://127.0.0.1:4711"


@pytest.fixture
def paths(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ServicePaths:
    """The files after `ringback connect`, with one server."""
    environment = {f"XDG_{name}_HOME": str(tmp_path / "user" / name.lower()) for name in ("CONFIG", "STATE")}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    found = find_paths(environment)
    found.config.parent.mkdir(parents=True)
    servers = {"odd": {"command": sys.executable, "args": [str(STDIO_SERVER)]}}
    found.config.write_text(json.dumps({"mcpServers": servers}))
    found.create_folder()
    return found


@contextmanager
def running_service(paths: ServicePaths) -> Generator[list[httpx.Request]]:
    """What the running service leaves on the disk, and a server at its port. Yields its requests below /v1."""
    asked: list[httpx.Request] = []

    def refuse(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(403, json={"detail": "This is enough."})

    with open_lock_file(paths.lock) as lock, respx.mock(assert_all_called=False) as router:
        assert try_lock(lock)
        write_running_service(paths, RunningService(url=URL, api_key="rbk_own", pid=1))
        router.get(f"{URL}/readyz").respond(json={"status": "ready", "degraded": []})
        router.get(url__startswith=f"{URL}/v1/").mock(side_effect=refuse)
        router.get(url__startswith=f"{URL}/").respond(404)
        yield asked


def find(run: Run, *arguments: str) -> dict[str, tuple[bool, str]]:
    ran = run("doctor", "--json", *arguments)
    return {found["about"]: (found["ok"], found["detail"]) for found in json.loads(ran.stdout)}


def test_the_own_service_is_checked_at_its_port_with_its_key_and_its_upstreams(run: Run, paths: ServicePaths) -> None:
    with running_service(paths) as asked:
        found = find(run)

    assert found["upstream odd"][0], found
    assert found["service"] == (True, f"{URL} responds and accepts work")
    assert str(paths.config) in found["own service"][1]
    assert {each.headers["authorization"] for each in asked} == {"Bearer rbk_own"}
    assert "rbk_own" not in str(found)


def test_an_own_service_that_rests_is_no_fault(run: Run, paths: ServicePaths) -> None:
    found = find(run)

    assert found["upstream odd"][0]
    assert found["service"][0]
    assert "your MCP client starts it" in found["service"][1]
    assert "ringback serve" not in found["service"][1]


@pytest.mark.parametrize("arguments", [("--url", "http://127.0.0.1:9"), ("--database", "sqlite:///other.db")])
def test_another_service_is_checked_if_one_is_named(run: Run, paths: ServicePaths, arguments: tuple[str, ...]) -> None:
    found = find(run, *arguments)

    assert "own service" not in found
    assert "service" in found  # at the usual port, where whoever runs the tests may have one


def test_settings_of_another_service_choose_that_one(
    run: Run, paths: ServicePaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RINGBACK_PORT", "9")

    assert "own service" not in find(run)
