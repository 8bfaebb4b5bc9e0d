"""A call context without a store, which records a driver's changes for the test."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from ringback.domain import inputs
from ringback.domain.call import Call, Handle, Progress, ServerFingerprint

OnProgress = Callable[[Progress], Awaitable[None]]


async def ignore_progress(progress: Progress) -> None:
    pass


class RecordingCallContext:
    """Implements `runner.drivers.Desk`. Waits for answers end at once when there are none, unless a test says `patient`."""

    def __init__(self, call: Call, *, on_progress: OnProgress = ignore_progress, patient: bool = False) -> None:
        self.call = call
        self.progress_reports: list[Progress] = []
        self.saved_handles: list[Handle | None] = []
        self._on_progress = on_progress
        self._waits_for_answers = patient
        self.input_requested = asyncio.Event()
        """Set when input was requested."""
        self._answered = asyncio.Event()

    def enter_server(self, fingerprint: ServerFingerprint | None) -> None:
        pass

    async def report_progress(self, progress: Progress) -> None:
        self.progress_reports.append(progress)
        await self._on_progress(progress)

    async def save_handle(self, handle: Handle | None) -> None:
        self.saved_handles.append(handle)
        self.call = replace(self.call, handle=handle)

    async def request_input(self, requests: Mapping[str, Mapping[str, Any]]) -> None:
        self.call = inputs.request_input(self.call, requests, now=self.call.updated_at)
        if self.call.input_requests:
            self.input_requested.set()

    async def wait_for_answers(self, timeout_seconds: float) -> Mapping[str, Any]:
        if timeout_seconds > 0 and not self.call.input_responses:
            self._answered.clear()
            if self._waits_for_answers:
                await self._answered.wait()
            await asyncio.sleep(0)
        return self.call.input_responses

    async def mark_answers_sent(self, keys: Collection[str]) -> None:
        self.call = inputs.remove_sent_responses(self.call, keys)

    # -- for the test --

    def answer_input(self, responses: Mapping[str, Any]) -> None:
        """Answer by Ringback's keys, as a client does."""
        self.call = inputs.answer_input(self.call, responses, now=self.call.updated_at).call
        self._answered.set()
