"""The whole service as a process that kills itself at a chosen step.

The step is a unit of work of the store, named by its function, and whether the process dies just before it or just after its
commit. These are all the points between two steps, because nothing else about a call is durable.
"""

import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from ringback.bootstrap import Environment
from ringback.domain.ports import Store, Transaction
from ringback.notifier.http.resolver import CAresResolver, Resolution
from ringback.server import serve
from ringback.settings import load_settings
from ringback.upstreams.config import parse_upstream_option
from tests.support.clock import OffsetClock
from tests.support.short_leases import shorten_leases
from tests.support.stores import StoreWrapper

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashStep:
    """The step at which the process dies. `unit` is a prefix of a qualified name."""

    unit: str
    after: bool


class CrashingStore(StoreWrapper):
    """A store whose process dies at a step: the first unit of work with this name; for leases, the first that is not empty."""

    def __init__(self, store: Store, step: CrashStep) -> None:
        super().__init__(store)
        self._step = step

    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        if not getattr(work, "__qualname__", "").startswith(self._step.unit):
            return await super().write(work)
        if not self._step.after:
            _die()
        return await super().write(_dying(work))


def _dying(work: Callable[[Transaction], Awaitable[T]]) -> Callable[[Transaction], Awaitable[T]]:
    """The process dies before all other actions that follow the commit: one of them sends the request of a call."""

    async def write(tx: Transaction) -> T:
        value: list[T] = []

        def die() -> None:
            if value != [[]] and getattr(value[0], "leased", True) != []:  # an empty lease does not count
                _die()

        tx.on_commit(die)
        value.append(await work(tx))
        return value[0]

    return write


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class UncachedResolver(CAresResolver):
    """What the test's name server answers counts for the next attempt, too."""

    async def __call__(self, host: str, /) -> Resolution:
        return replace(await super().__call__(host), ttl_seconds=0.0)


def main(spec: dict[str, str | bool | float]) -> None:
    if secret_keys := spec.get("secret_keys"):  # on PostgreSQL
        shorten_leases()
    settings = load_settings(
        database_url=str(spec["database_url"]),
        secret_keys=secret_keys,
        port=int(spec.get("port", 0)),
        auth="off",
        callback_private_cidrs=("127.0.0.0/8",),
        callback_http=True,
        drain_seconds=1.0,
        verify_callbacks=spec.get("verify"),
        inline_wait_seconds=spec.get("inline_wait_seconds"),
        ca_file=spec.get("ca_file"),
    )
    clock = OffsetClock()
    clock.advance(float(spec.get("ahead_seconds", 0.0)))
    environment = Environment(clock=clock)
    if unit := spec.get("unit"):
        step = CrashStep(unit=str(unit), after=bool(spec["after"]))
        environment = Environment(clock=clock, wrap_store=lambda store: CrashingStore(store, step))
    if name_server := spec.get("name_server"):
        environment = replace(environment, resolver=UncachedResolver([str(name_server)]))
    upstream = parse_upstream_option(f"stage={spec['upstream']}")
    if max_concurrent := spec.get("max_concurrent"):
        upstream = replace(upstream, max_concurrent=int(max_concurrent))
    serve(settings, [upstream], environment=environment)
