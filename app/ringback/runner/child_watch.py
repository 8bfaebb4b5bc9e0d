"""Looks after a shared child: asks it now and then whether it is there, and replaces one that is frozen (`domain.liveness`)."""

import asyncio
import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final

from ringback.domain.clock import Clock
from ringback.domain.liveness import Liveness, Vital, liveness
from ringback.runner.child import Child
from ringback.runner.failures import RequestFailed
from ringback.runner.faults import Fault, Faults
from ringback.runner.link import Link

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 5.0
"""Between two looks. A ping goes out when nothing was heard since the last look."""
_STOPPED: Final = "T"


class ChildWatch:
    def __init__(
        self,
        link: Link,
        child: Child,
        *,
        clock: Clock,
        faults: Faults,
        deadlines: Callable[[], Collection[float]],
        on_verdict: Callable[[Liveness], None],
    ) -> None:
        """`deadlines` are those of the calls that run, by `clock.monotonic()`; `on_verdict` hears each change."""
        self._link = link
        self._child = child
        self._clock = clock
        self._faults = faults
        self._deadlines = deadlines
        self._on_verdict = on_verdict
        self._verdict = Liveness.ALIVE
        self._heard = child.heard
        self._stopped_since: float | None = None
        self._unanswered_since: float | None = None
        self._ping: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Until the child is gone, or was found frozen and killed."""
        try:
            while self._child.is_alive:
                await self._clock.sleep(LOOK_SECONDS)
                if self._look() is Liveness.FROZEN:
                    break
        finally:
            if self._ping is not None:
                self._ping.cancel()

    def _look(self) -> Liveness:
        seen = self._see()
        verdict = liveness(seen)
        if verdict is not self._verdict:
            self._verdict = verdict
            self._on_verdict(verdict)
        if verdict is Liveness.FROZEN:
            self._link.retire()  # first, so that no call begins on it between its death and the news of it
            self._child.kill()
            self._faults.count(Fault.REPLACED)
        elif self._unanswered_since is None and self._nothing_heard():
            self._ask(seen.now)
        self._heard = self._child.heard
        return verdict

    def _see(self) -> Vital:
        now, status = self._clock.monotonic(), self._child.status()
        stopped = status is not None and status.state == _STOPPED
        self._stopped_since = None if not stopped else self._stopped_since or now
        if not self._nothing_heard():
            self._unanswered_since = None
        return Vital(
            now=now,
            stopped_since=self._stopped_since,
            unanswered_since=self._unanswered_since,
            reads_input=not self._child.stalled,
            deadlines=self._deadlines(),
        )

    def _nothing_heard(self) -> bool:
        return self._child.heard == self._heard

    def _ask(self, now: float) -> None:
        """One ping at a time; an answer of any kind is a sign of life, an error as well."""
        self._unanswered_since = now
        if self._ping is None or self._ping.done():
            self._ping = asyncio.create_task(self._send_ping())

    async def _send_ping(self) -> None:
        with suppress(RequestFailed):
            await self._link.request("ping", {})
