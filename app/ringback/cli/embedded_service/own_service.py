"""The service that `ringback mcp` has started, for commands that are given neither --url nor --api-key."""

import asyncio
import importlib.util
import os
import socket
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from ringback.cli.output import exit_with_error

if TYPE_CHECKING:
    from ringback.cli.embedded_service.runtime_file import RunningService

CONNECT_SECONDS: Final = 1.0
"""On this machine: without a server, the connection is refused at once."""


def find_own_service(default_url: str) -> "RunningService | None":
    """The user's own service, if it runs. Without a configuration of its own, a server at the default URL comes first."""
    if importlib.util.find_spec("fcntl") is None:
        return None  # Windows, where the commands that only send requests work, and the service and `listen` do not
    from ringback.cli.embedded_service.paths import find_paths  # noqa: PLC0415 - needs fcntl
    from ringback.cli.embedded_service.runtime_file import read_running_service  # noqa: PLC0415 - needs fcntl

    paths = find_paths(os.environ)
    if (running := read_running_service(paths)) is None or paths.config.exists():
        return running
    return None if _is_listened_at(default_url) else running


def has_stopped_service() -> bool:
    """Whether the user's own service has a configuration and does not run."""
    if importlib.util.find_spec("fcntl") is None:
        return False  # Windows
    from ringback.cli.embedded_service.paths import find_paths  # noqa: PLC0415 - needs fcntl
    from ringback.cli.embedded_service.runtime_file import read_running_service  # noqa: PLC0415 - needs fcntl

    paths = find_paths(os.environ)
    return paths.config.exists() and read_running_service(paths) is None


def start_configured_service() -> None:
    """Start the user's own service if it has a configuration and does not run. A failure ends the command."""
    if importlib.util.find_spec("fcntl") is None or importlib.util.find_spec("fastapi") is None:
        return  # Windows, or an installation without the extra `server`
    from ringback.cli.embedded_service.paths import find_paths  # noqa: PLC0415 - needs fcntl
    from ringback.cli.embedded_service.starter import ServiceNotStarted, ServiceStarter  # noqa: PLC0415 - needs fcntl
    from ringback.domain.clock import SystemClock  # noqa: PLC0415 - of the service

    if not (paths := find_paths(os.environ)).config.exists():
        return
    try:
        asyncio.run(ServiceStarter(paths, clock=SystemClock(), environment=os.environ).ensure_running())
    except ServiceNotStarted as problem:
        exit_with_error(str(problem))


def _is_listened_at(url: str) -> bool:
    parts = urlsplit(url)
    try:
        with socket.create_connection((parts.hostname or "", parts.port or 80), timeout=CONNECT_SECONDS):
            return True
    except OSError:
        return False
