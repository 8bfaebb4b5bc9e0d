"""Gives the callbacks of the inbox to the handler: one at a time for each order key, with retries."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, assert_never

from ringback.backoff import Backoff
from ringback.cli.durable_listener.defaults import ATTEMPTS_MAX_DEFAULT, PARALLEL_DEFAULT
from ringback.cli.durable_listener.handlers import (
    CallbackHandler,
    Failed,
    Handled,
    HandlerOutcome,
    ReceivedCallback,
    Refused,
)
from ringback.cli.durable_listener.inbox import Inbox, WaitingCallback
from ringback.client.http_transport import ClientClock
from ringback.receiver import Callback, parse

WAITING_MAX: Final = 10_000
"""Waiting callbacks. At this number the reader pauses, and the service keeps the rest."""
BACKOFF: Final = Backoff(first_seconds=1.0, longest_seconds=60.0)
"""The pause after a failure, unless the handler asks for a longer one, up to the longest."""

Report = Callable[[str], None]
"""Shows one line to the user."""


class CallbackDispatcher:
    def __init__(
        self,
        inbox: Inbox,
        handler: CallbackHandler,
        *,
        clock: ClientClock,
        report: Report,
        attempts_max: int = ATTEMPTS_MAX_DEFAULT,
        parallel: int = PARALLEL_DEFAULT,
        shows_handled: bool = True,
    ) -> None:
        self._inbox = inbox
        self._handler = handler
        self._clock = clock
        self._report = report
        self._attempts_max = attempts_max
        self._shows_handled = shows_handled
        self._permits = asyncio.Semaphore(parallel)
        self._lanes: dict[str, deque[WaitingCallback]] = {}
        self._tasks: dict[asyncio.Task[None], bool] = {}
        """The task of each lane, and whether it is in an attempt."""
        self._waiting = 0
        self._has_space = asyncio.Event()
        self._has_space.set()
        self._is_stopping = False
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def add_callback(self, waiting: WaitingCallback) -> None:
        """Handle the callback after the earlier ones with its order key."""
        self._waiting += 1
        if self._waiting >= WAITING_MAX:
            self._has_space.clear()
        lane = self._lanes.get(waiting.order_key)
        if lane is not None:
            lane.append(waiting)
            return
        self._lanes[waiting.order_key] = lane = deque([waiting])
        task = asyncio.create_task(self._run_lane(waiting.order_key, lane))
        self._tasks[task] = False
        task.add_done_callback(self._forget_lane_task)

    async def wait_for_space(self) -> None:
        """Wait until fewer than `WAITING_MAX` callbacks wait."""
        await self._has_space.wait()

    async def run(self) -> None:
        """Wait until a lane fails, which only happens if the state file or the output fails. Raises its error."""
        await self._failure

    def count_attempts(self) -> int:
        """The attempts that are in progress."""
        return sum(self._tasks.values())

    async def drain(self) -> None:
        """Start no attempt, and wait for the attempts in progress. Raises the error of the state file or of the output."""
        self._is_stopping = True
        for task, is_attempting in list(self._tasks.items()):
            if not is_attempting:
                task.cancel()
        ended, _ = await asyncio.wait(self._tasks) if self._tasks else ((), ())
        for task in ended:
            if not task.cancelled():
                task.result()

    async def cancel(self) -> None:
        """Cancel the attempts in progress. Their callbacks stay in the inbox."""
        self._is_stopping = True
        for task in (remaining := list(self._tasks)):
            task.cancel()
        await asyncio.gather(*remaining, return_exceptions=True)

    def _forget_lane_task(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if not task.cancelled() and (error := task.exception()) is not None and not self._failure.done():
            self._failure.set_exception(error)

    async def _run_lane(self, key: str, lane: deque[WaitingCallback]) -> None:
        while lane:
            await self._handle_until_settled(lane[0])
            lane.popleft()
            self._waiting -= 1
            if self._waiting < WAITING_MAX:
                self._has_space.set()
            if self._is_stopping:
                return
        del self._lanes[key]

    async def _handle_until_settled(self, waiting: WaitingCallback) -> None:
        attempt = waiting.attempts + 1
        while True:
            pause_seconds = await self._attempt(waiting, attempt)
            if pause_seconds is None or self._is_stopping:
                return
            await self._clock.sleep(pause_seconds)
            attempt += 1

    async def _attempt(self, waiting: WaitingCallback, attempt: int) -> float | None:
        """Run the handler once and record the outcome. Returns the pause before the next attempt, None if there is none."""
        async with self._permits:
            task = asyncio.current_task()
            assert task is not None  # noqa: S101 - the code runs in a task
            self._tasks[task] = True
            body = await self._inbox.read_body(waiting.position)
            callback = parse(body)
            assert isinstance(callback, Callback)  # noqa: S101 - the listener made this body from an event
            received = ReceivedCallback(event_id=waiting.event_id, callback=callback, body=body, attempt=attempt)
            outcome = await self._handler.handle_callback(received)
            pause_seconds = await self._record_outcome(waiting, received, outcome)
            self._tasks[task] = False
            return pause_seconds

    async def _record_outcome(
        self, waiting: WaitingCallback, received: ReceivedCallback, outcome: HandlerOutcome
    ) -> float | None:
        match outcome:
            case Handled():
                await self._inbox.mark_handled(waiting.position)
                if self._shows_handled:
                    self._report(f"{_describe(received)}: handled")
                return None
            case Refused():
                return await self._give_up(waiting, received, outcome.reason)
            case Failed():
                if received.attempt >= self._attempts_max:
                    return await self._give_up(waiting, received, outcome.reason)
                await self._inbox.record_failure(waiting.position, outcome.reason)
                pause_seconds = compute_pause(received.attempt, outcome.retry_after_seconds)
                self._report(
                    f"{_describe(received)}: {outcome.reason}; attempt {received.attempt + 1} in {pause_seconds:g} s"
                )
                return pause_seconds
            case _:
                assert_never(outcome)

    async def _give_up(self, waiting: WaitingCallback, received: ReceivedCallback, reason: str) -> None:
        await self._inbox.record_failure(waiting.position, reason)
        await self._inbox.mark_given_up(waiting.position)
        self._report(f"{_describe(received)}: {reason}; given up. Handle it again: ringback listen --retry-given-up …")


def compute_pause(attempt: int, retry_after_seconds: float = 0.0) -> float:
    """The pause after this attempt, in seconds."""
    return min(BACKOFF.longest_seconds, max(BACKOFF.pause_seconds(attempt), retry_after_seconds))


def _describe(received: ReceivedCallback) -> str:
    return f"{received.callback.name} {received.event_id} ({received.callback.call_id or 'no call'})"
