"""The process: one application, one HTTP server, and an orderly end.

On SIGTERM or SIGINT nothing new is started (503, and readiness turns red) while what runs is drained and recorded; readers are
answered until the very end. A second signal ends it at once, and so does a deadline after the first, when something does not
stop: nothing acknowledged is lost by that either. On SIGHUP the
configuration of the upstreams is read again; what cannot be used changes nothing, and the log says why.
"""

import asyncio
import errno
import logging
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, cast

import uvicorn
import uvloop
from fastapi import FastAPI

from ringback import __version__
from ringback.bootstrap import Application, Environment, ReadConfigs, open_application
from ringback.domain.errors import RingbackError
from ringback.http_server import BoundedHttpProtocol, ConnectionLimiter, HttpLimits, compute_connections_max
from ringback.settings import Settings, SettingsError
from ringback.telemetry import configure_logging
from ringback.upstreams.registry import UpstreamConfig

# The last resort of a process that was told to stop: it ends at its deadline, whatever still holds it.
#
# Each worker bounds its own end. What cannot be bounded from inside (a disk that answers no write, a child process that cannot be
# killed, an event loop that a bug blocks, a log that nobody reads) is bounded here, from a thread of its own. Nothing
# acknowledged is lost by that, as nothing is by a `kill -9`: what was acknowledged is on disk, and leases are voided at the next
# start.


LAST_LOG_SECONDS: Final = 1.0
"""For the one last line: whatever holds the process may hold its log, too."""
EXIT_CODE: Final = 1


class ExitDeadline:
    """Ends the process `seconds` after `start`, unless the deadline was left before."""

    def __init__(self, *, seconds: float, exit_process: Callable[[int], object] = os._exit) -> None:
        self._exit_process = exit_process
        self._seconds = seconds
        self._running_workers: Callable[[], Collection[str]] = frozenset[str]
        self._timer = threading.Timer(seconds, self._expire)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._timer.cancel()

    def start(self, running_workers: Callable[[], Collection[str]]) -> None:
        """`running` names what has not stopped yet; it is called from another thread."""
        self._running_workers = running_workers
        self._timer.start()

    def _expire(self) -> None:
        log_thread = threading.Thread(target=self._log_running_workers, daemon=True)
        log_thread.start()
        log_thread.join(LAST_LOG_SECONDS)
        self._exit_process(EXIT_CODE)

    def _log_running_workers(self) -> None:
        running = ",".join(sorted(self._running_workers())) or "none"
        log.error("service.not_stopped", extra={"workers": running, "after_seconds": self._seconds})


log = logging.getLogger(__name__)

BACKLOG: Final = 2048
OPEN_FILES_UNLIMITED: Final = 1_048_576
"""What counts where the system sets no limit: the most that Linux gives a process by default (fs.nr_open)."""
LAST_RESPONSES_SECONDS: Final = 5
"""After everything was drained: what is being answered then may go on for so long, and a reader that has stopped reading holds
up nobody's restart."""

SWITCH_SECONDS: Final = 0.0005
"""How long a busy event loop keeps Python's lock from a thread that waits for it. With the usual 5 ms every commit, which gets
it back several times, waits as often for so long beside a loop that is never idle."""
EXIT_SECONDS: Final = 30.0
"""After the drain time the process ends, whatever does not stop. Longer than what bounds itself takes in all: a challenge
(10 s), then an attempt (10 s), the last answers (5 s), and an upstream's child that is asked to go (4 s)."""


class AddressTaken(SettingsError):
    """Somebody else listens there, perhaps the process that this one replaces."""


class UvicornServer(uvicorn.Server):
    """uvicorn without its own signal handlers: the order in which things stop is the caller's."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


def serve(
    settings: Settings,
    upstreams: Sequence[UpstreamConfig],
    *,
    read_configs: ReadConfigs | None = None,
    environment: Environment | None = None,
    exit_seconds: float = EXIT_SECONDS,
) -> None:
    """Serve until a signal says stop. Blocks; ends the process when it does not stop `exit_seconds` after its drain time.

    `reread` tells the upstreams anew, on SIGHUP and when an operator asks.
    """
    sys.setswitchinterval(SWITCH_SECONDS)
    configure_logging(level=settings.log_level, log_format=settings.log_format)
    limits = build_http_limits(settings, open_files_max=_raise_open_files_limit())
    with (
        ExitDeadline(seconds=settings.drain_seconds + exit_seconds) as deadline,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.run(_serve(settings, upstreams, read_configs, environment, limits, deadline))


async def _serve(
    settings: Settings,
    upstreams: Sequence[UpstreamConfig],
    read_configs: ReadConfigs | None,
    environment: Environment | None,
    limits: HttpLimits,
    deadline: ExitDeadline,
) -> None:
    with _bind_listener(settings) as listener:
        # A port of 0 has become a real one, which callbacks must name.
        settings = settings.model_copy(update={"port": listener.getsockname()[1]})
        async with open_application(settings, upstreams, read_configs=read_configs, environment=environment) as app:
            await _run_application(app, settings, listener, upstreams, limits, deadline)


async def _run_application(
    app: Application,
    settings: Settings,
    listener: socket.socket,
    upstreams: Sequence[UpstreamConfig],
    limits: HttpLimits,
    deadline: ExitDeadline,
) -> None:
    server = build_http_server(app.api, limits=limits)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(
            number, _handle_stop_signal, stop, partial(deadline.start, app.supervisor.running_workers)
        )
    reload_requested = asyncio.Event()
    loop.add_signal_handler(signal.SIGHUP, reload_requested.set)
    log.info(
        "service.listening",
        extra={
            "version": __version__,
            "url": settings.base_url,
            "auth": settings.auth,
            "upstreams": ",".join(config.name for config in upstreams) or "none",
        },
    )
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(server.serve(sockets=[listener]))
        reloading = group.create_task(_reload_on_signal(reload_requested, app))
        await app.run(stop)
        reloading.cancel()
        server.should_exit = True
        await serving
    log.info("service.stopped")


async def _reload_on_signal(reload_requested: asyncio.Event, app: Application) -> None:
    while True:
        await reload_requested.wait()
        reload_requested.clear()
        with suppress(RingbackError):  # whoever refused has logged why
            await app.services.administration.reload_upstreams()


def build_http_limits(settings: Settings, *, open_files_max: int) -> HttpLimits:
    return HttpLimits(
        connections_max=settings.connections_max or compute_connections_max(open_files_max),
        peer_connections_max=settings.peer_connections_max,
        trusted_proxies=settings.trusted_proxies,
    )


def build_http_server(
    api: FastAPI, *, limits: HttpLimits | None = None, connections: ConnectionLimiter | None = None
) -> UvicornServer:
    """`connections` for who watches them; else they have these limits, or the default ones."""
    if connections is None:
        connections = ConnectionLimiter(limits or HttpLimits())
    protocol = partial(BoundedHttpProtocol, connections=connections)
    return UvicornServer(
        uvicorn.Config(
            api,
            http=cast("Any", protocol),  # uvicorn calls what it is given; it is a class only in its annotation
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=LAST_RESPONSES_SECONDS,
        )
    )


def _raise_open_files_limit() -> int:
    """How many files may be open from now on. Attempts in flight, clients and upstreams take a socket each.

    The usual soft limit of 1,024 files protects programs that call select(), which this one does not. A socket that cannot be
    had would look like a receiver that cannot be reached.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard if hard != resource.RLIM_INFINITY else OPEN_FILES_UNLIMITED


def _handle_stop_signal(stop: asyncio.Event, start_deadline: Callable[[], None]) -> None:
    if stop.is_set():
        os._exit(1)
    stop.set()
    start_deadline()


def _bind_listener(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=BACKLOG)
    except OSError as problem:
        kind = AddressTaken if problem.errno == errno.EADDRINUSE else SettingsError
        raise kind(
            f"Cannot listen on {settings.host}:{settings.port}: {problem.strerror}. Choose another --host or --port."
        ) from None
