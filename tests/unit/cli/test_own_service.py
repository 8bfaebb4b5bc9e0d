"""One service for all clients of a user: who starts it, who finds it, and what happens when it dies or cannot start.

The service is a small process that holds the lock and writes the runtime file, as the real one does.
"""

import asyncio
import errno
import fcntl
import json
import os
import pwd
import signal
import socket
import stat
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Final, NoReturn

import pytest
import typer
from typer.testing import Result

from ringback.cli.client_files.clients import get_places
from ringback.cli.client_options import URL_DEFAULT, choose_service, run_with_client, start_own_service
from ringback.cli.embedded_service.own_service import find_own_service
from ringback.cli.embedded_service.paths import ServicePaths, find_paths
from ringback.cli.embedded_service.runtime_file import (
    KeptSettings,
    RunningService,
    read_kept_settings,
    read_running_service,
    write_kept_settings,
    write_running_service,
)
from ringback.cli.embedded_service.service_process import stop_service
from ringback.cli.embedded_service.starter import ServiceNotStarted, ServiceStarter
from ringback.cli.file_locks import is_locked, open_lock_file, try_lock
from ringback.cli.output import TRY_AGAIN
from ringback.client import ConnectionFailed, RingbackClient
from ringback.domain.clock import SystemClock
from tests.support.limits import WAIT_SECONDS

SERVICE = """
import os, signal, sys
from ringback.cli import file_locks
from ringback.cli.embedded_service import paths, runtime_file
found = paths.find_paths(os.environ)
with file_locks.open_lock_file(found.lock) as lock:
    if not file_locks.try_lock(lock):
        sys.exit(75)
    with open(found.folder / "starts", "a") as starts:
        starts.write("x")
    service = runtime_file.RunningService(url="http://127.0.0.1:1", api_key="rbk_x", pid=os.getpid())
    runtime_file.write_running_service(found, service)
    signal.pause()
"""


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    for name in ("CONFIG", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    return dict(os.environ)


@pytest.fixture
def paths(environment: dict[str, str]) -> Generator[ServicePaths]:
    """The files of the service, whose process ends with the test."""
    found = find_paths(environment)
    yield found
    if (running := read_running_service(found)) is not None:
        os.kill(running.pid, signal.SIGKILL)


def make_starter(paths: ServicePaths, environment: dict[str, str], script: str = SERVICE) -> ServiceStarter:
    return ServiceStarter(paths, clock=SystemClock(), environment=environment, command=(sys.executable, "-c", script))


async def wait_until_free(paths: ServicePaths) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while is_locked(paths.lock):
            await asyncio.to_thread(lambda: None)


async def test_ten_clients_that_start_at_once_get_one_service(paths: ServicePaths, environment: dict[str, str]) -> None:
    starters = [make_starter(paths, environment) for _ in range(10)]

    async with asyncio.timeout(WAIT_SECONDS):
        found = await asyncio.gather(*(starter.ensure_running() for starter in starters))

    assert len({running.pid for running in found}) == 1
    assert (paths.folder / "starts").read_text() == "x"


async def test_a_service_that_was_killed_is_started_again(paths: ServicePaths, environment: dict[str, str]) -> None:
    starter, other = make_starter(paths, environment), make_starter(paths, environment)
    async with asyncio.timeout(WAIT_SECONDS):
        first = await starter.ensure_running()
        os.kill(first.pid, signal.SIGKILL)
        await wait_until_free(paths)

        assert starter.find_running() is None
        again = await other.ensure_running()
        joined = await starter.ensure_running()

    assert again.pid == joined.pid != first.pid


async def test_a_client_that_dies_while_it_starts_the_service_stops_no_other(
    paths: ServicePaths, environment: dict[str, str]
) -> None:
    paths.create_folder()
    dying = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c"),
        "import os, sys\nfrom pathlib import Path\nfrom ringback.cli import file_locks\n"
        "with file_locks.open_lock_file(Path(sys.argv[1])) as lock:\n"
        "    file_locks.try_lock(lock); print('held', flush=True); sys.stdin.read()",
        str(paths.start_lock),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert dying.stdout is not None
    await dying.stdout.readline()
    starting = asyncio.create_task(make_starter(paths, environment).ensure_running())
    dying.kill()
    await dying.wait()

    async with asyncio.timeout(WAIT_SECONDS):
        assert (await starting).url == "http://127.0.0.1:1"


async def test_a_service_that_cannot_start_says_why(paths: ServicePaths, environment: dict[str, str]) -> None:
    script = "import sys; print('Traceback'); print('Error: mcp.json: not valid JSON.', flush=True); sys.exit(2)"
    with pytest.raises(
        ServiceNotStarted, match=r"Error: mcp\.json: not valid JSON\. Its log: .*service\.log"
    ) as failed:
        await make_starter(paths, environment, script).ensure_running()

    assert not failed.value.is_passing


async def test_a_folder_on_a_file_system_without_locks_is_named(
    paths: ServicePaths, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on NFS without its lock manager."""

    def refuse(_descriptor: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)

    with pytest.raises(ServiceNotStarted, match=f"^{paths.folder}: No locks available"):
        await make_starter(paths, environment).ensure_running()


async def test_an_error_of_an_earlier_start_is_not_repeated(paths: ServicePaths, environment: dict[str, str]) -> None:
    with pytest.raises(ServiceNotStarted):
        await make_starter(paths, environment, "import sys; print('Error: the old one.'); sys.exit(2)").ensure_running()
    with pytest.raises(ServiceNotStarted) as failed:
        await make_starter(paths, environment, "import sys; print('Error: the new one.'); sys.exit(2)").ensure_running()

    assert "the old one" not in str(failed.value)


def test_the_file_of_a_dead_service_is_not_believed(paths: ServicePaths) -> None:
    paths.create_folder()
    write_running_service(paths, RunningService(url="http://127.0.0.1:9", api_key="rbk_x", pid=1))

    assert read_running_service(paths) is None
    with open_lock_file(paths.lock) as lock:
        assert try_lock(lock)
        assert read_running_service(paths) is not None


@pytest.mark.parametrize("damaged", ["", "[", "[]", '{"url": 1}', '{"url": "http://x", "api_key": null, "pid": 1}'])
def test_a_damaged_file_counts_as_none(paths: ServicePaths, damaged: str) -> None:
    paths.create_folder()
    paths.runtime.write_text(damaged)
    paths.kept.write_text(damaged)

    with open_lock_file(paths.lock) as lock:
        assert try_lock(lock)
        assert read_running_service(paths) is None
    assert read_kept_settings(paths) == KeptSettings()


def test_the_files_and_their_folder_are_private(paths: ServicePaths) -> None:
    paths.create_folder()
    kept = KeptSettings(api_key="rbk_secret", port=4711)
    write_kept_settings(paths, kept)
    write_running_service(paths, RunningService(url="http://127.0.0.1:1", api_key="rbk_secret", pid=1))

    assert read_kept_settings(paths) == kept
    assert [stat.S_IMODE(each.stat().st_mode) for each in (paths.kept, paths.runtime)] == [0o600, 0o600]
    assert stat.S_IMODE(paths.folder.stat().st_mode) == 0o700
    assert "rbk_secret" not in repr(read_kept_settings(paths))
    assert json.loads(paths.runtime.read_text())["api_key"] == "rbk_secret"


async def test_client_commands_use_the_users_own_service_unless_something_else_is_chosen(
    paths: ServicePaths, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    await make_starter(paths, environment).ensure_running()
    with socket.create_server(("127.0.0.1", 0)) as server:
        default = f"http://127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setattr("ringback.cli.client_options.URL_DEFAULT", default)

        assert find_own_service(default) is None, "a service runs at the default URL"
        paths.config.parent.mkdir(parents=True)
        paths.config.write_text("{}")
        assert choose_service(default, None) == ("http://127.0.0.1:1", "rbk_x"), "that one may be another user's"
        paths.config.unlink()
    assert choose_service(default, None) == ("http://127.0.0.1:1", "rbk_x")
    assert choose_service(default, "rbk_mine") == (default, "rbk_mine")
    assert choose_service("http://elsewhere:8090", None) == ("http://elsewhere:8090", None)


@pytest.mark.parametrize(
    ("url", "api_key", "has_config", "starts"),
    [
        (URL_DEFAULT, None, True, True),
        (URL_DEFAULT, None, False, False),
        (URL_DEFAULT, "rbk_mine", True, False),
        ("http://elsewhere:8090", None, True, False),
    ],
)
def test_a_command_that_waits_starts_the_service_of_the_user_s_configuration(
    paths: ServicePaths,
    monkeypatch: pytest.MonkeyPatch,
    url: str,
    api_key: str | None,
    *,
    has_config: bool,
    starts: bool,
) -> None:
    if has_config:
        paths.config.parent.mkdir(parents=True)
        paths.config.write_text("{}")
    started: list[ServiceStarter] = []

    async def ensure_running(starter: ServiceStarter) -> None:
        started.append(starter)

    monkeypatch.setattr(ServiceStarter, "ensure_running", ensure_running)

    start_own_service(url, api_key)

    assert bool(started) is starts


@pytest.mark.parametrize(
    ("url", "has_config", "advice"),
    [
        (URL_DEFAULT, True, "`ringback listen` starts it now"),
        (URL_DEFAULT, False, "No server responds"),
        ("http://elsewhere:8090", True, "No server responds"),
    ],
)
def test_a_command_without_the_users_own_service_says_how_it_starts_again(
    paths: ServicePaths, url: str, advice: str, *, has_config: bool
) -> None:
    if has_config:
        paths.config.parent.mkdir(parents=True)
        paths.config.write_text("{}")

    async def fail(_: RingbackClient) -> None:
        raise ConnectionFailed("No server responds")

    with pytest.raises(ConnectionFailed, match=advice):
        run_with_client(url, None, fail)


STOPPED: Final = (
    "Stopped. Clients that are still open start it again with their next request: close them, and it stays stopped.\n"
)


async def test_the_service_can_be_stopped(
    paths: ServicePaths, environment: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    await make_starter(paths, environment).ensure_running()

    async with asyncio.timeout(WAIT_SECONDS):
        await stop_service(paths, clock=SystemClock())
        await stop_service(paths, clock=SystemClock())

    assert not is_locked(paths.lock)
    assert capsys.readouterr().err == f"{STOPPED}Your service does not run.\n"


async def test_a_service_that_is_still_starting_is_not_said_to_have_stopped(
    paths: ServicePaths, capsys: pytest.CaptureFixture[str]
) -> None:
    paths.create_folder()

    with open_lock_file(paths.lock) as lock:
        assert try_lock(lock)
        with pytest.raises(typer.Exit) as ended:
            await stop_service(paths, clock=SystemClock())

    assert ended.value.exit_code == TRY_AGAIN
    assert "Your service is starting or ending." in capsys.readouterr().err


async def test_a_service_in_another_container_is_not_stopped_by_its_process_id(
    paths: ServicePaths, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Here, another process of the user may have this id."""
    killed: list[int] = []

    def note_kill(pid: int, _number: int) -> None:
        killed.append(pid)

    monkeypatch.setattr(os, "kill", note_kill)
    running = RunningService(url="http://127.0.0.1:9", api_key="rbk_x", pid=os.getpid(), pid_namespace="pid:[1]")
    paths.create_folder()
    write_running_service(paths, running)

    with open_lock_file(paths.lock) as lock:
        assert try_lock(lock)
        with pytest.raises(typer.Exit):
            await stop_service(paths, clock=SystemClock())

    assert killed == []
    assert "runs in another container" in capsys.readouterr().err


async def test_a_service_that_ends_at_the_moment_of_its_stop_has_stopped(
    paths: ServicePaths,
    environment: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    running, kill = await make_starter(paths, environment).ensure_running(), os.kill

    def end_before_kill(pid: int, _number: int) -> None:
        kill(pid, signal.SIGKILL)
        raise ProcessLookupError

    monkeypatch.setattr(os, "kill", end_before_kill)
    async with asyncio.timeout(WAIT_SECONDS):
        await stop_service(paths, clock=SystemClock())

    assert running.pid > 0
    assert capsys.readouterr().err == STOPPED


def test_a_relative_base_folder_is_ignored_because_each_command_would_have_another_service() -> None:
    assert find_paths({"XDG_CONFIG_HOME": "configuration", "XDG_STATE_HOME": "state"}) == find_paths({})


def test_a_user_without_a_home_folder_has_no_service_and_its_commands_say_what_they_miss(
    run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    def find_no_account(_: int) -> NoReturn:
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", find_no_account)
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)

    assert find_own_service("http://127.0.0.1:1") is None
    assert get_places("linux").home == Path("/")
    listening = run("listen", "--url", "http://127.0.0.1:1", "--session", "s", "--state", "/proc/none.db")
    assert (listening.exit_code, "Choose another --state" in listening.stderr) == (2, True)
