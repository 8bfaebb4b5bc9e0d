"""Reports on their way to a Ringback, in memory: one line for each call, tried again until the newest report has arrived."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Final

from ringback.domain.clock import Clock
from ringback.waits import first_of

log = logging.getLogger(__name__)

LINES_MAX: Final = 1_000
"""Calls that run or wait to be reported at once. Their results are kept in memory until they have arrived."""
PAUSE_SECONDS_MIN: Final = 1.0
PAUSE_SECONDS_MAX: Final = 60.0
GIVE_UP_SECONDS: Final = 3600.0
"""A Ringback that was away for longer is not waited for: memory is no place for a backlog of hours."""
JITTER: Final = 0.2
"""Servers that lost the same Ringback do not all come back to it in the same moment."""

Report = Mapping[str, Any]
"""The body of `POST /v1/calls/report`. It may hold a secret."""
Send = Callable[[Report], Awaitable[str]]
"""Takes a report to the Ringback; the call's id. Raises `TryAgain` or `Refused`."""


class TryAgain(Exception):
    """The report did not arrive, and may the next time."""


class Refused(Exception):
    """The report never will be taken; the text says why."""


class Line:
    """The way of one call's reports. Each of them says all that is known, so one that a newer has overtaken is never missed."""

    def __init__(self, send: Send, *, clock: Clock, chance: Callable[[], float]) -> None:
        self._send = send
        self._clock = clock
        self._chance = chance
        self._newest: Report = {}
        self._due = False
        """Whether the newest report is still to be carried."""
        self._closed = False
        """Whether nothing will be told after it."""
        self._ended = False
        """Whether nobody carries anything here any more."""
        self._news = asyncio.Event()
        self._tried = asyncio.Event()
        self.call_id: str | None = None
        """Known once a report has arrived: from then on the call's end will be rung, if only as `unknown`."""
        self.refusal: Refused | None = None

    @property
    def last_is_due(self) -> bool:
        return self._due and self._closed

    def tell(self, report: Report) -> None:
        if self._ended:
            return
        self._newest, self._due = report, True
        self._tried.clear()
        self._news.set()

    def close(self) -> None:
        """Nothing more will be told."""
        self._closed = True
        self._news.set()

    async def tried(self) -> None:
        """Wait until the newest report was tried once."""
        await self._tried.wait()

    async def run(self) -> None:
        """Carry reports until the last one has arrived, or never will."""
        try:
            while self._due or not self._closed:
                await self._news.wait()
                self._news.clear()
                if self._due:
                    await self._carry()
        except Exception:  # the boundary between a bug of ours and the tool whose answer waits
            log.exception("report.lost")
        finally:
            self._ended = True
            self._tried.set()

    async def _carry(self) -> None:
        for pause in _pauses(self._chance):
            report = self._newest
            try:
                self.call_id = await self._send(report)
            except TryAgain as problem:
                log.info("report.failed", extra={"tool": report["tool"], "reason": str(problem)})
            except Refused as problem:
                log.warning("report.refused", extra={"tool": report["tool"], "reason": str(problem)})
                self.refusal = problem
                return self._settle(report)
            else:
                return self._settle(report)
            if report is self._newest:
                self._tried.set()
            await first_of(self._news.wait(), self._clock.sleep(pause))
            self._news.clear()
        log.error("report.given_up", extra={"tool": self._newest["tool"]})
        return self._settle(self._newest)

    def _settle(self, report: Report) -> None:
        """This one needs no more attempts; one that was told meanwhile does."""
        self._due = report is not self._newest
        if self._due:
            self._news.set()
        else:
            self._tried.set()


class Outbox:
    def __init__(self, send: Send, *, clock: Clock, chance: Callable[[], float]) -> None:
        self._send = send
        self._clock = clock
        self._chance = chance
        self._lines: dict[Line, asyncio.Task[None]] = {}

    def open_line(self) -> Line | None:
        """A line for one call; None while there are too many."""
        if len(self._lines) >= LINES_MAX:
            return None
        line = Line(self._send, clock=self._clock, chance=self._chance)
        task = asyncio.create_task(line.run())
        self._lines[line] = task
        task.add_done_callback(lambda _: self._lines.pop(line))
        return line

    async def drain(self, timeout_seconds: float) -> None:
        """Wait until what was told last has arrived, or the time is over; whatever else is on its way ends here."""
        if due := {task for line, task in self._lines.items() if line.last_is_due}:
            await asyncio.wait(due, timeout=timeout_seconds)
        left = dict(self._lines)
        if lost := sum(line.last_is_due for line in left):
            log.error("reports.lost", extra={"reports": lost})
        for task in left.values():
            task.cancel()
        await asyncio.gather(*left.values(), return_exceptions=True)


def _pauses(chance: Callable[[], float]) -> Iterator[float]:
    pause, waited = PAUSE_SECONDS_MIN, 0.0
    while waited < GIVE_UP_SECONDS:
        yield pause * (1 - JITTER + 2 * JITTER * chance())
        waited += pause
        pause = min(2 * pause, PAUSE_SECONDS_MAX)
