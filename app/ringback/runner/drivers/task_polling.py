"""Polling of a task, shared by both task drivers: `protocol.tasks.TaskPolling`, whose findings go to the call."""

from ringback.domain.call import Progress
from ringback.domain.call_outcome import CallCompletion, CallOutcome, failed_completion
from ringback.domain.clock import Clock
from ringback.domain.tool_result import PROGRESS_MESSAGE_LENGTH_MAX
from ringback.protocol.errors import RequestFailed
from ringback.protocol.tasks import TASK_LOST_MESSAGE, TaskPolling
from ringback.runner.drivers.driver import CallContext


class TaskPoller(TaskPolling):
    """The state of polling the task of one call."""

    def __init__(self, context: CallContext, *, clock: Clock) -> None:
        super().__init__(clock.monotonic)
        self._context = context
        self._message: str | None = None
        self._progress_steps = context.call.progress.progress if context.call.progress else 0.0

    async def report_status_message(self, message: str | None) -> None:
        """Report each new statusMessage as one step of progress: a task reports no other progress."""
        if message is not None and message != self._message:
            self._message = message
            self._progress_steps += 1
            await self._context.report_progress(
                Progress(progress=self._progress_steps, message=message[:PROGRESS_MESSAGE_LENGTH_MAX])
            )

    def complete_if_lost(self, failure: RequestFailed) -> CallCompletion | None:
        """The completion of a lost task; None while another poll may succeed."""
        return failed_completion(CallOutcome.UNKNOWN, TASK_LOST_MESSAGE) if self.counts_as_lost(failure) else None
