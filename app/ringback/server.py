"""The process: one application, one HTTP server, and a shutdown in order.

SIGTERM or SIGINT begins the shutdown. Requests that start work get 503 and readiness fails; running calls and attempts are
drained and recorded; requests that read are served until the end. A second signal ends the process at once. So does
`ExitDeadline` when a worker does not stop. Neither loses anything that was acknowledged.

SIGHUP, and a change of a file that is watched, read the upstreams' configuration again. An invalid configuration changes
nothing, and the log says why.
"""

import asyncio
import errno
import gc
import logging
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable, Collection, Coroutine, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, cast

import uvicorn
import uvloop
from fastapi import FastAPI

from ringback import __version__
from ringback.bootstrap import Application, Environment, ReadConfigs, open_application
from ringback.bootstrap.idle_stop import IdleWatch
from ringback.bootstrap.tracing import open_tracer
from ringback.domain.clock import SystemClock
from ringback.domain.errors import RingbackError, StoreUnavailable
from ringback.freed_memory import map_large_blocks
from ringback.http_server import (
    BoundedHttpProtocol,
    ConnectionLimiter,
    HttpLimits,
    compute_connections_max,
    count_wanted_files,
)
from ringback.settings import Settings, SettingsError
from ringback.storage.urls import locate_database
from ringback.telemetry.logs import configure_logging
from ringback.upstreams.config import UpstreamConfig, UpstreamEntry
from ringback.upstreams.own_address import OwnAddress

log = logging.getLogger(__name__)

BACKLOG: Final = 2048
OPEN_FILES_UNLIMITED: Final = 1_048_576
"""The assumed limit where the system sets none: Linux's default maximum for a process (fs.nr_open)."""
LAST_RESPONSES_SECONDS: Final = 5
"""For responses in progress after the drain, so that a client that stopped reading does not delay the restart."""
SWITCH_SECONDS: Final = 0.0005
"""How long a busy event loop keeps the GIL from a waiting thread. A commit takes the GIL several times, and with Python's
default of 5 ms each time waits that long."""
GARBAGE_THRESHOLD: Final = 5_000
"""New containers, less the freed ones, until the garbage collector looks for cycles among them. At Python's default of 700, a
hundred calls in flight reach it again and again with objects that are all in use."""
EXIT_SECONDS: Final = 30.0
"""From the end of the drain to the forced exit. The steps that bound themselves take just under 30 s: a challenge (10 s), an
attempt (10 s), the last responses (5 s), and the end of an upstream's child process with its pipes (4.7 s)."""
EXIT_LOG_SECONDS: Final = 1.0
"""For the last log line: the log itself may be blocked."""
EXIT_CODE: Final = 1
RELOAD_AGAIN_SECONDS: Final = 5.0
"""After a reload during which the store was unavailable."""

OnListening = Callable[[str], Coroutine[Any, Any, None]]
"""Called with the service's URL when it accepts requests."""
WaitForChange = Callable[[], Coroutine[Any, Any, None]]
"""Returns when a file of the configuration has changed."""


class ExitDeadline:
    """Ends the process `seconds` after `start`, unless the context is left before.

    Every worker bounds its own shutdown. This thread covers what a worker cannot bound: a disk that completes no write, a
    child process that cannot be killed, a blocked event loop, a log whose pipe is full. Like a `kill -9`, the forced exit loses
    nothing that was acknowledged: it is on disk, and the next start voids the leases.
    """

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
        """`running_workers` returns the workers that have not stopped; it is called from another thread."""
        self._running_workers = running_workers
        self._timer.start()

    def _expire(self) -> None:
        log_thread = threading.Thread(target=self._log_running_workers, daemon=True)
        log_thread.start()
        log_thread.join(EXIT_LOG_SECONDS)
        self._exit_process(EXIT_CODE)

    def _log_running_workers(self) -> None:
        running = ",".join(sorted(self._running_workers())) or "none"
        log.error("service.not_stopped", extra={"workers": running, "after_seconds": self._seconds})


class AddressTaken(SettingsError):
    """Another process listens on the address, perhaps the one that this process replaces."""

    needs_operator = False


class UvicornServer(uvicorn.Server):
    """uvicorn without its signal handlers: `_run_application` decides the order of the shutdown."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


def serve(
    settings: Settings,
    upstreams: Sequence[UpstreamEntry],
    *,
    read_configs: ReadConfigs | None = None,
    environment: Environment | None = None,
    exit_seconds: float = EXIT_SECONDS,
    on_listening: OnListening | None = None,
    wait_for_change: WaitForChange | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT. Ends the process when it has not stopped `exit_seconds` after its drain time.

    `read_configs` reads the upstreams' configuration again, on SIGHUP, when an operator requests a reload, and each time that
    `wait_for_change` returns.
    """
    sys.setswitchinterval(SWITCH_SECONDS)
    map_large_blocks()
    configure_logging(level=settings.log_level, log_format=settings.log_format, levels=dict(settings.log_levels))
    open_files_max = _raise_open_files_limit()
    limits = build_http_limits(settings, open_files_max=open_files_max)
    warn_about_open_files(limits, settings, open_files_max=open_files_max)
    with (
        ExitDeadline(seconds=settings.drain_seconds + exit_seconds) as deadline,
        open_tracer(os.environ, node=f"{socket.gethostname()}:{os.getpid()}") as tracer,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        if tracer is not None:
            environment = replace(environment or Environment(), tracer=tracer)
        runner.run(
            _serve(settings, upstreams, read_configs, environment, limits, deadline, on_listening, wait_for_change)
        )


async def _serve(
    settings: Settings,
    upstreams: Sequence[UpstreamEntry],
    read_configs: ReadConfigs | None,
    environment: Environment | None,
    limits: HttpLimits,
    deadline: ExitDeadline,
    on_listening: OnListening | None,
    wait_for_change: WaitForChange | None,
) -> None:
    reload_requested = asyncio.Event()
    # From here on, a reload does not end a service that still migrates or recovers its database.
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload_requested.set)
    with _bind_listener(settings) as listener:
        # The system has replaced port 0 with a free one, and callbacks name that one.
        settings = settings.model_copy(update={"port": listener.getsockname()[1]})
        async with open_application(settings, upstreams, read_configs=read_configs, environment=environment) as app:
            await _run_application(
                app,
                settings,
                listener,
                upstreams,
                limits,
                deadline,
                on_listening,
                wait_for_change,
                reload_requested=reload_requested,
            )


async def _run_application(
    app: Application,
    settings: Settings,
    listener: socket.socket,
    upstreams: Sequence[UpstreamEntry],
    limits: HttpLimits,
    deadline: ExitDeadline,
    on_listening: OnListening | None,
    wait_for_change: WaitForChange | None,
    *,
    reload_requested: asyncio.Event,
) -> None:
    connections = ConnectionLimiter(limits)
    server = build_http_server(app.api, connections=connections)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    stop_service = partial(_handle_stop_signal, stop, partial(deadline.start, app.supervisor.running_workers))
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop_service)
    _log_listening(settings, upstreams)
    exempt_startup_objects_from_garbage_collection()
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(server.serve(sockets=[listener]))
        background = [group.create_task(_reload_when_requested(reload_requested, app))]
        if on_listening is not None:
            background.append(group.create_task(on_listening(settings.base_url)))
        if wait_for_change is not None:
            background.append(group.create_task(_request_reloads(wait_for_change, reload_requested)))
        if settings.idle_stop_seconds is not None:
            watch = _build_idle_watch(app, connections, settings.idle_stop_seconds)
            background.append(group.create_task(_stop_when_idle(watch, stop, stop_service)))
        await app.run(stop)
        for task in background:
            task.cancel()
        server.should_exit = True
        await serving
    log.info("service.stopped")


def exempt_startup_objects_from_garbage_collection() -> None:
    """What exists when the service begins to listen stays until its end.

    Each collection of the oldest generation would visit all of it, for 0.1 s on the event loop. Without the exemption and with
    Python's threshold, collections took 12 % of the CPU of a call; so they take 2 % (measured).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE_THRESHOLD, *gc.get_threshold()[1:])


def _log_listening(settings: Settings, upstreams: Sequence[UpstreamEntry]) -> None:
    log.info(
        "service.listening",
        extra={
            "version": __version__,
            "url": settings.base_url,
            "listens_on": settings.listening_url,
            "auth": settings.auth,
            "database": locate_database(settings.database_url),
            "roles": ",".join(settings.roles),
            "upstreams": ",".join(_list_served(settings, upstreams)) or "none",
        },
    )


def _list_served(settings: Settings, upstreams: Sequence[UpstreamEntry]) -> list[str]:
    own_address = OwnAddress({settings.base_url, settings.process_url})
    return [each.name for each in upstreams if isinstance(each, UpstreamConfig) and not own_address.judge_config(each)]


def _build_idle_watch(app: Application, connections: ConnectionLimiter, idle_seconds: float) -> IdleWatch:
    return IdleWatch(
        app.store, clock=SystemClock(), count_connections=lambda: len(connections), idle_seconds=idle_seconds
    )


async def _stop_when_idle(watch: IdleWatch, stop: asyncio.Event, stop_service: Callable[[], None]) -> None:
    await watch.wait_until_idle()
    if not stop.is_set():  # a second stop would end the process at once
        stop_service()


async def _request_reloads(wait_for_change: WaitForChange, reload_requested: asyncio.Event) -> None:
    while True:
        await wait_for_change()
        reload_requested.set()


async def _reload_when_requested(reload_requested: asyncio.Event, app: Application) -> None:
    while True:
        await reload_requested.wait()
        reload_requested.clear()
        try:
            await app.services.upstream_reloads.reload_upstreams()
        except StoreUnavailable:  # the configuration is applied, and the calls that it unblocks still wait
            log.warning("calls.not_resumed")
            await asyncio.sleep(RELOAD_AGAIN_SECONDS)
            reload_requested.set()
        except RingbackError:
            pass  # the reload has logged the reason
        except Exception:  # a bug in a reload must not end the service and the calls that run
            log.exception("configuration.reload_failed")


def build_http_limits(settings: Settings, *, open_files_max: int) -> HttpLimits:
    return HttpLimits(
        connections_max=settings.connections_max or compute_connections_max(open_files_max),
        peer_connections_max=settings.peer_connections_max,
        trusted_proxies=settings.trusted_proxies,
    )


def warn_about_open_files(limits: HttpLimits, settings: Settings, *, open_files_max: int) -> None:
    """At the limit, clients are refused and upstreams' commands do not start, and neither names the cause."""
    wanted = count_wanted_files(settings.connections_max or settings.peer_connections_max)
    if open_files_max < wanted:
        log.warning(
            "service.open_files_limited",
            extra={"limit": open_files_max, "wanted": wanted, "connections_max": limits.connections_max},
        )


def build_http_server(
    api: FastAPI, *, limits: HttpLimits | None = None, connections: ConnectionLimiter | None = None
) -> UvicornServer:
    """`connections` is for tests that inspect the limiter; otherwise one is made with `limits` or the defaults."""
    if connections is None:
        connections = ConnectionLimiter(limits or HttpLimits())
    protocol = partial(BoundedHttpProtocol, connections=connections)
    return UvicornServer(
        uvicorn.Config(
            api,
            http=cast("Any", protocol),  # uvicorn only calls it, but annotates a class
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,  # `ForwardedClientMiddleware` reads them, from trusted proxies only
            timeout_graceful_shutdown=LAST_RESPONSES_SECONDS,
        )
    )


def _raise_open_files_limit() -> int:
    """Raise the soft limit on open files to the hard one, and return it. Every attempt, client and upstream takes a socket.

    The usual soft limit of 1,024 protects programs that call select(), which this one does not. At the limit, attempts would
    fail as if their receivers were unreachable.
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
        option = "--host" if problem.errno == errno.EADDRNOTAVAIL else "--port"
        raise kind(
            f"Cannot listen on {settings.host}:{settings.port}: {problem.strerror}. Choose another {option}."
        ) from None
