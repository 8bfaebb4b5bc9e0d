"""Pending reports in memory: one channel for each call, retried until the newest report has arrived."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ringback.asyncio_tasks import end_tasks
from ringback.backoff import JITTER_FRACTION, Backoff
from ringback.domain.clock import Clock
from ringback.waits import wait_first

log = logging.getLogger(__name__)

CHANNELS_MAX: Final = 1_000
"""Calls with a channel at once. Their results stay in memory until they have arrived."""
BACKOFF: Final = Backoff(first_seconds=1.0, longest_seconds=60.0, jitter_fraction=JITTER_FRACTION)
RETRY_WINDOW_SECONDS: Final = 3600.0
"""How long a report is retried: memory cannot hold a backlog of hours."""

ReportJson = Mapping[str, Any]
"""The body of `POST /v1/calls/report`. It may contain a secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedReport:
    """The answer to a report."""

    call_id: str
    has_listeners: bool
    """Whether a webhook or the call's own callback gets the end of the call."""


SendReport = Callable[[ReportJson], Awaitable[RecordedReport]]
"""Sends a report. Raises `ReportFailed` or `ReportRejected`."""


class ReportFailed(Exception):
    """The report did not arrive; a retry may succeed."""


class ReportRejected(Exception):
    """The report is refused for good; the text says why."""


class ReportChannel:
    """Sends the reports of one call. Each report is complete, so a newer one replaces an unsent older one."""

    def __init__(self, send: SendReport, *, clock: Clock, random_fraction: Callable[[], float]) -> None:
        self._send = send
        self._clock = clock
        self._random_fraction = random_fraction
        self._newest_report: ReportJson = {}
        self._is_due = False
        """Whether the newest report is still unsent."""
        self._is_closed = False
        """Whether no report follows."""
        self._is_finished = False
        """Whether the sending task has ended."""
        self._attempts = 0
        """Since a report arrived, or since `retry_now`."""
        self._changed = asyncio.Event()
        self._attempted = asyncio.Event()
        self.call_id: str | None = None
        """The call's id once a report has arrived and while a webhook or a callback waits for its end. From then on the call
        sends a callback at its end, even if only as `unknown`."""
        self.rejection: ReportRejected | None = None

    @property
    def is_last_report_due(self) -> bool:
        return self._is_due and self._is_closed

    def submit_report(self, report: ReportJson) -> None:
        if self._is_finished:
            return
        self._newest_report, self._is_due = report, True
        self._attempted.clear()
        self._changed.set()

    def close(self) -> None:
        """No further report follows."""
        self._is_closed = True
        self._changed.set()

    def retry_now(self) -> None:
        """Try again at once, and with short pauses from now on."""
        self._attempts = 0
        self._changed.set()

    async def wait_for_attempt(self) -> None:
        """Wait until the newest report was tried once."""
        await self._attempted.wait()

    async def send_reports(self) -> None:
        """Send reports until the last one has arrived or is given up."""
        try:
            while self._is_due or not self._is_closed:
                await self._changed.wait()
                self._changed.clear()
                if self._is_due:
                    await self._send_until_settled()
        except Exception:  # a bug here must not affect the tool whose response waits
            log.exception("report.lost")
        finally:
            self._is_finished = True
            self._attempted.set()

    async def _send_until_settled(self) -> None:
        self._attempts, waited_seconds = 0, 0.0
        while waited_seconds < RETRY_WINDOW_SECONDS:
            report, self._attempts = self._newest_report, self._attempts + 1
            try:
                recorded = await self._send(report)
                self.call_id = recorded.call_id if recorded.has_listeners else None
            except ReportFailed as problem:
                level = logging.WARNING if self._attempts == 1 else logging.INFO
                log.log(level, "report.failed", extra={"tool": report["tool"], "reason": str(problem)})
            except ReportRejected as problem:
                log.warning("report.refused", extra={"tool": report["tool"], "reason": str(problem)})
                self.rejection = problem
                return self._mark_settled(report)
            else:
                return self._mark_settled(report)
            if report is self._newest_report:
                self._attempted.set()
            failures = max(1, self._attempts)  # 0 if `retry_now` was called during the attempt
            pause_seconds = BACKOFF.pause_seconds(failures, random_fraction=self._random_fraction())
            waited_seconds += BACKOFF.pause_seconds(failures)
            await wait_first(self._changed.wait(), self._clock.sleep(pause_seconds))
            self._changed.clear()
        log.error("report.given_up", extra={"tool": self._newest_report["tool"]})
        return self._mark_settled(self._newest_report)

    def _mark_settled(self, report: ReportJson) -> None:
        """This report needs no more attempts; a newer one does."""
        self._is_due = report is not self._newest_report
        if self._is_due:
            self._changed.set()
        else:
            self._attempted.set()


class ReportOutbox:
    def __init__(self, send: SendReport, *, clock: Clock, random_fraction: Callable[[], float]) -> None:
        self._send = send
        self._clock = clock
        self._random_fraction = random_fraction
        self._channels: dict[ReportChannel, asyncio.Task[None]] = {}

    def open_channel(self) -> ReportChannel | None:
        """A channel for one call; None if there are too many."""
        if len(self._channels) >= CHANNELS_MAX:
            return None
        channel = ReportChannel(self._send, clock=self._clock, random_fraction=self._random_fraction)
        task = asyncio.create_task(channel.send_reports())
        self._channels[channel] = task
        task.add_done_callback(lambda _: self._channels.pop(channel))
        return channel

    async def drain(self, timeout_seconds: float) -> None:
        """Send all last reports now, until they have arrived or the timeout is over; then cancel the rest."""
        if due := {channel: task for channel, task in self._channels.items() if channel.is_last_report_due}:
            for channel in due:
                channel.retry_now()  # its pause may be a minute long
            await asyncio.wait(due.values(), timeout=timeout_seconds)
        remaining = dict(self._channels)
        if lost := sum(line.is_last_report_due for line in remaining):
            log.error("reports.lost", extra={"reports": lost})
        await end_tasks(remaining.values())
