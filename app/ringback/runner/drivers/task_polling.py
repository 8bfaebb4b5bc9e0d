"""What both editions of tasks have in common while one is followed: how often to look, what it tells, and when it is lost."""

from typing import Any, Final

from mcp_types import INVALID_PARAMS, METHOD_NOT_FOUND, MISSING_REQUIRED_CLIENT_CAPABILITY

from ringback.domain.call import CallCompletion, CallOutcome, Progress, failed_completion
from ringback.domain.clock import Clock
from ringback.domain.tool_result import PROGRESS_MESSAGE_LENGTH_MAX
from ringback.runner.drivers.driver import CallContext
from ringback.upstreams.errors import InvalidUpstreamResponse, RequestFailed, UpstreamError

TASK_ID_LENGTH_MAX: Final = 1024
"""An upstream's own name for a task; what is longer is not kept."""
POLL_SECONDS_MIN: Final = 0.1
POLL_SECONDS_MAX: Final = 60.0
"""Between these an upstream's interval is followed: below, ten thousand tasks would be a flood; above, nobody waits."""
POLL_SECONDS_DEFAULT: Final = 2.0
POLL_INTERVAL_RATIO: Final = 0.05
"""Of the time that a task was followed: an upstream that names no interval is asked ever more seldom, and an end is noticed
late by no more than this share. Ten thousand tasks every two seconds would be a flood (2 ms of CPU each, measured)."""
CONSECUTIVE_ERRORS_MAX: Final = 10
"""Answers in a row that are none, before an upstream counts as unable to tell. A proxy whose upstream restarts answers so."""
TASK_NOT_FOUND_CODES: Final = frozenset({INVALID_PARAMS, METHOD_NOT_FOUND, MISSING_REQUIRED_CLIENT_CAPABILITY})
"""What tasks/get answers when the task is unknown or expired (-32602, a MUST), or when there are no tasks any more."""


class TaskPoller:
    """What is known of one task while it is followed."""

    def __init__(self, context: CallContext, *, clock: Clock) -> None:
        self._context = context
        self._clock = clock
        self._started_at = clock.monotonic()
        self._message: str | None = None
        self._progress_steps = context.call.progress.progress if context.call.progress else 0.0
        self._consecutive_errors = 0
        self.poll_seconds = POLL_SECONDS_DEFAULT
        """Until the next look, unless the upstream tells something first."""

    def set_poll_interval(self, milliseconds: Any) -> None:
        """Look again when the upstream wants it, in bounds; `milliseconds` is what it said, whatever that is."""
        self.poll_seconds = compute_poll_seconds(
            milliseconds, elapsed_seconds=self._clock.monotonic() - self._started_at
        )

    async def report_status_message(self, message: Any) -> None:
        """A task's only progress is its statusMessage, so each new one is a step."""
        if isinstance(message, str) and message != self._message:
            self._message = message
            self._progress_steps += 1
            await self._context.report_progress(
                Progress(progress=self._progress_steps, message=message[:PROGRESS_MESSAGE_LENGTH_MAX])
            )

    def reset_errors(self) -> None:
        """The upstream told of the task, so what it refused before counts no more."""
        self._consecutive_errors = 0

    def complete_if_lost(self, failure: RequestFailed) -> CallCompletion | None:
        """None while it is worth asking again: the upstream is away, or something between us and it is."""
        if not isinstance(failure, UpstreamError | InvalidUpstreamResponse):
            return None
        self._consecutive_errors += 1
        if self._consecutive_errors <= CONSECUTIVE_ERRORS_MAX and not (
            isinstance(failure, UpstreamError) and failure.error.get("code") in TASK_NOT_FOUND_CODES
        ):
            return None
        return failed_completion(
            CallOutcome.UNKNOWN,
            "The upstream no longer tells of the task that it made. The tool may have done its work.",
        )


def compute_poll_seconds(milliseconds: Any, *, elapsed_seconds: float) -> float:
    """How long to wait until a task is asked for again: as its upstream wants it, else by how long it was followed."""
    if not isinstance(milliseconds, int | float) or isinstance(milliseconds, bool):
        return min(max(POLL_INTERVAL_RATIO * elapsed_seconds, POLL_SECONDS_DEFAULT), POLL_SECONDS_MAX)
    return min(max(milliseconds / 1000, POLL_SECONDS_MIN), POLL_SECONDS_MAX)
