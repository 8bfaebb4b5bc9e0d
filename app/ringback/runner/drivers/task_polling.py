"""Polling of a task, shared by both task drivers: the interval, the status message, and when the task counts as lost."""

from typing import Any, Final

from mcp_types import INVALID_PARAMS, METHOD_NOT_FOUND, MISSING_REQUIRED_CLIENT_CAPABILITY

from ringback.domain.call import Progress
from ringback.domain.call_outcome import CallCompletion, CallOutcome, failed_completion
from ringback.domain.clock import Clock
from ringback.domain.tool_result import PROGRESS_MESSAGE_LENGTH_MAX
from ringback.runner.drivers.driver import CallContext
from ringback.upstreams.errors import InvalidUpstreamResponse, RequestFailed, UpstreamError

TASK_ID_LENGTH_MAX: Final = 1024
"""A longer task id is not usable."""
POLL_SECONDS_MIN: Final = 0.1
POLL_SECONDS_MAX: Final = 60.0
"""The bounds of an upstream's own interval: shorter ones would flood it at ten thousand tasks, longer ones delay the result."""
POLL_SECONDS_DEFAULT: Final = 2.0
POLL_INTERVAL_RATIO: Final = 0.05
"""Poll interval divided by the time since polling began, for an upstream that names no interval: an end is noticed late by at
most this share. Polling ten thousand tasks every two seconds would be a flood (2 ms of CPU each, measured)."""
CONSECUTIVE_ERRORS_MAX: Final = 10
"""Failed polls in a row before the task counts as lost. A proxy whose upstream restarts returns such errors for a while."""
TASK_NOT_FOUND_CODES: Final = frozenset({INVALID_PARAMS, METHOD_NOT_FOUND, MISSING_REQUIRED_CLIENT_CAPABILITY})
"""The errors of tasks/get for an unknown or expired task (-32602, a MUST) and of a server that no longer has tasks."""


class TaskPoller:
    """The state of polling one task."""

    def __init__(self, context: CallContext, *, clock: Clock) -> None:
        self._context = context
        self._clock = clock
        self._started_at = clock.monotonic()
        self._message: str | None = None
        self._progress_steps = context.call.progress.progress if context.call.progress else 0.0
        self._consecutive_errors = 0
        self.poll_seconds = POLL_SECONDS_DEFAULT
        """The pause before the next poll, unless a notification arrives first."""

    def set_poll_interval(self, milliseconds: Any) -> None:
        """Use the upstream's interval within bounds; `milliseconds` is its unchecked value."""
        self.poll_seconds = compute_poll_seconds(
            milliseconds, elapsed_seconds=self._clock.monotonic() - self._started_at
        )

    async def report_status_message(self, message: Any) -> None:
        """Report each new statusMessage as one step of progress: a task reports no other progress."""
        if isinstance(message, str) and message != self._message:
            self._message = message
            self._progress_steps += 1
            await self._context.report_progress(
                Progress(progress=self._progress_steps, message=message[:PROGRESS_MESSAGE_LENGTH_MAX])
            )

    def reset_errors(self) -> None:
        """The upstream returned the task, so earlier errors no longer count."""
        self._consecutive_errors = 0

    def complete_if_lost(self, failure: RequestFailed) -> CallCompletion | None:
        """The completion of a lost task; None while another poll may succeed."""
        if not isinstance(failure, UpstreamError | InvalidUpstreamResponse):
            return None
        self._consecutive_errors += 1
        if self._consecutive_errors <= CONSECUTIVE_ERRORS_MAX and not (
            isinstance(failure, UpstreamError) and failure.error.get("code") in TASK_NOT_FOUND_CODES
        ):
            return None
        return failed_completion(
            CallOutcome.UNKNOWN,
            "The upstream no longer reports the task that it created. The tool may have done its work.",
        )


def compute_poll_seconds(milliseconds: Any, *, elapsed_seconds: float) -> float:
    """The pause before the next poll: the upstream's interval, else a share of the elapsed time."""
    if not isinstance(milliseconds, int | float) or isinstance(milliseconds, bool):
        return min(max(POLL_INTERVAL_RATIO * elapsed_seconds, POLL_SECONDS_DEFAULT), POLL_SECONDS_MAX)
    return min(max(milliseconds / 1000, POLL_SECONDS_MIN), POLL_SECONDS_MAX)
