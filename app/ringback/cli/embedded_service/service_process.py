"""`ringback mcp-service`: the service of one user, which `ringback mcp` starts."""

import asyncio
import logging
import os
import signal
from contextlib import suppress
from functools import partial
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

import typer

from ringback import server
from ringback.cli.embedded_service.file_watch import FileWatch
from ringback.cli.embedded_service.paths import ServicePaths, find_paths
from ringback.cli.embedded_service.runtime_file import (
    KeptSettings,
    RunningService,
    read_kept_settings,
    read_pid_namespace,
    read_running_service,
    remove_runtime_file,
    write_kept_settings,
    write_running_service,
)
from ringback.cli.embedded_service.service_environment import ServiceEnvironment
from ringback.cli.file_locks import LOOK_AGAIN_SECONDS, is_locked, open_lock_file, wait_for_lock, write_process_id
from ringback.cli.output import TRY_AGAIN, exit_with_error, print_message
from ringback.cli.server_options import exit_on_service_errors
from ringback.domain.clock import Clock, SystemClock
from ringback.domain.errors import RingbackError
from ringback.domain.principal import ALL_SCOPES
from ringback.service_database import open_api_keys
from ringback.settings import Settings, load_settings

HOST: Final = "127.0.0.1"
PRINCIPAL: Final = "local"
"""The owner of the key that all clients of the user have."""
IDLE_STOP_SECONDS: Final = 1800.0
"""Without RINGBACK_IDLE_STOP_SECONDS. Longer than a break, shorter than a night; the next client starts it again."""
STOP_SECONDS: Final = 75.0
"""For a service that drains its calls: as long as the unit of systemd allows, and some."""
LOCK_SECONDS: Final = 2.0
"""For the lock, which a starter's look may hold for a moment, and a service that is ending for longer."""
LOG_BYTES_MAX: Final = 4 * 1024 * 1024
"""About 30,000 lines, and as many in the file before it. A log is read only if something is wrong, so it must not grow."""


@exit_on_service_errors()
def mcp_service(
    *,
    stop: Annotated[
        bool, typer.Option("--stop", help="Stop it instead. A client that is open starts it again: close them first.")
    ] = False,
) -> None:
    """Run the service of this user until it is idle. `ringback mcp` starts it; one runs at a time."""
    paths = find_paths(os.environ)
    if stop:
        asyncio.run(stop_service(paths, clock=SystemClock()))
        return
    environment = ServiceEnvironment(paths)
    environment.apply()
    paths.create_folder()
    os.chdir(paths.folder)
    with open_lock_file(paths.lock) as lock:
        if not asyncio.run(wait_for_lock(lock, clock=SystemClock(), timeout_seconds=LOCK_SECONDS)):
            raise typer.Exit(TRY_AGAIN)
        write_process_id(lock)
        remove_runtime_file(paths)
        try:
            _serve(paths, environment)
        finally:
            remove_runtime_file(paths)


async def stop_service(paths: ServicePaths, *, clock: Clock) -> None:
    """Let the running service end in order. Ends with an error if it does not."""
    if (running := read_running_service(paths)) is None:
        if is_locked(paths.lock):
            exit_with_error("Your service is starting or ending. Repeat the command in a moment.", exit_code=TRY_AGAIN)
        print_message("Your service does not run.")
        return
    if running.is_in_other_container:
        exit_with_error(
            f"Your service runs in another container, where it is process {running.pid}. Stop it there: "
            "ringback mcp-service --stop"
        )
    with suppress(ProcessLookupError):  # it may end by itself at this moment
        os.kill(running.pid, signal.SIGTERM)
    ends_at = clock.monotonic() + STOP_SECONDS
    while is_locked(paths.lock):
        if clock.monotonic() >= ends_at:
            exit_with_error(f"Process {running.pid} has not stopped. If it stays so, end it: kill -9 {running.pid}")
        await clock.sleep(LOOK_AGAIN_SECONDS)
    print_message(
        "Stopped. Clients that are still open start it again with their next request: close them, and it stays stopped."
    )


def _serve(paths: ServicePaths, environment: ServiceEnvironment) -> None:
    """Serve at the port of the last time, or at a free one if that is taken."""
    kept = read_kept_settings(paths)
    settings = load_service_settings(paths, port=kept.port)
    api_key = asyncio.run(_prepare_key(settings, kept.api_key))
    try:
        _serve_at_port(paths, environment, settings, api_key)
    except server.AddressTaken:
        _serve_at_port(paths, environment, load_service_settings(paths, port=0), api_key)


def _serve_at_port(paths: ServicePaths, environment: ServiceEnvironment, settings: Settings, api_key: str) -> None:
    async def publish(url: str) -> None:
        write_kept_settings(paths, KeptSettings(api_key=api_key, port=urlsplit(url).port or 0))
        rotate_log_file(paths.log)
        environment.begin_to_log_faults()
        own = RunningService(url=url, api_key=api_key, pid=os.getpid(), pid_namespace=read_pid_namespace())
        write_running_service(paths, own)

    read_configs = partial(environment.read_entries, is_strict=settings.strict_config)
    watch = FileWatch((paths.config, paths.environment), clock=SystemClock())  # before they are read
    server.serve(
        settings, read_configs(), read_configs=read_configs, on_listening=publish, wait_for_change=watch.wait_for_change
    )


def load_service_settings(paths: ServicePaths, *, port: int) -> Settings:
    """The usual settings, but for those that say where the service is."""
    settings = load_settings(
        host=HOST, port=port, auth="keys", database_url=f"sqlite:///{paths.database}", config=paths.config
    )
    if settings.idle_stop_seconds is not None:
        return settings
    return settings.model_copy(update={"idle_stop_seconds": IDLE_STOP_SECONDS})


async def _prepare_key(settings: Settings, kept: str | None) -> str:
    """The key that clients have already, or a new one."""
    async with open_api_keys(settings) as keys:
        with suppress(RingbackError):
            if kept is not None:
                await keys.authenticate_key(kept)
                return kept
        _, text = await keys.create_key(PRINCIPAL, name="ringback mcp", scopes=ALL_SCOPES, upstreams=None)
        return text


def rotate_log_file(path: Path) -> None:
    """Let the root logger write to a bounded file, in the format that it has. The file before it has the suffix `.1`."""
    root = logging.getLogger()
    rotating = RotatingFileHandler(path, maxBytes=LOG_BYTES_MAX, backupCount=1, encoding="utf-8")
    for handler in root.handlers:
        rotating.setFormatter(handler.formatter)
        for each in handler.filters:
            rotating.addFilter(each)
    root.handlers[:] = [rotating]
