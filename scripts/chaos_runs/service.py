"""Ringback as a process that kills or stops itself at a step of the plan, by a wrapper around the store."""

import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar

from ringback.bootstrap import Environment
from ringback.domain.clock import SystemClock
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Store, Transaction
from ringback.server import serve
from ringback.settings import load_settings
from ringback.storage.store_wrapper import StoreWrapper
from ringback.upstreams.config import parse_upstream_option
from scripts.chaos_runs.plan import KillPoint
from tests.support.short_leases import shorten_leases

T = TypeVar("T")

STOPPED: Final = b"chaos.stopped\n"
KILLED: Final = b"chaos.killed\n"
"""The last line in the log of a service that has reached its step."""


class KillPointStore(StoreWrapper):
    """A store that counts executions of one unit of work, and sends its own process a signal at the n-th."""

    def __init__(self, store: Store, step: KillPoint) -> None:
        super().__init__(store)
        self._step = step
        self._left = step.nth

    async def _run_write(
        self,
        write: Callable[[Callable[[Transaction], Awaitable[T]]], Awaitable[T]],
        work: Callable[[Transaction], Awaitable[T]],
    ) -> T:
        here = getattr(work, "__qualname__", "").startswith(self._step.unit)
        if here and not self._step.after:
            self._count()
        value = await write(work)
        if (
            here and self._step.after and value != [] and getattr(value, "leased", True) != []
        ):  # an empty lease does not count
            self._count()
        return value

    def _count(self) -> None:
        self._left -= 1
        if self._left == 0:
            os.write(sys.stderr.fileno(), STOPPED if self._step.stops else KILLED)
            os.kill(os.getpid(), signal.SIGSTOP if self._step.stops else signal.SIGKILL)


class WrongClock(SystemClock):
    """The clock of a machine whose wall clock is wrong."""

    def __init__(self, *, ahead_seconds: float) -> None:
        self._ahead_nanoseconds = round(ahead_seconds * 1e9)
        super().__init__()

    def _wall_nanoseconds(self) -> int:
        return super()._wall_nanoseconds() + self._ahead_nanoseconds


def main(
    *,
    folder: Path,
    database_url: str,
    secret_keys: str | None = None,
    clock_ahead_seconds: float = 0.0,
    port: int,
    upstreams: dict[str, str],
    step: KillPoint | None,
) -> None:
    """`secret_keys` are given on PostgreSQL, where the leases are shortened, because a node waits for those of a dead one."""
    if secret_keys is not None:
        shorten_leases()
        os.environ["XDG_STATE_HOME"] = str(folder)  # where nodes on PostgreSQL write their child processes down
    settings = load_settings(
        database_url=database_url,
        secret_keys=secret_keys,
        port=port,
        auth="off",
        callback_private_cidrs=("127.0.0.0/8",),
        callback_http=True,
        drain_seconds=1.0,
    )
    configs = [parse_upstream_option(f"{name}={value}") for name, value in upstreams.items()]
    clock = WrongClock(ahead_seconds=clock_ahead_seconds)
    if step is None:
        environment = Environment(clock=clock)
    else:
        environment = Environment(clock=clock, wrap_store=lambda store: KillPointStore(store, step))
    try:
        serve(settings, configs, environment=environment)
    except StoreUnavailable as error:
        sys.exit(error.detail)  # as the command does: the database restarts while the node starts
