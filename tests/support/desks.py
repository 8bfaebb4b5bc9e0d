"""A desk without a store: what a driver does to its call is written down here, for a test to read."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from ringback.domain import inputs
from ringback.domain.call import Call, Handle, Progress

OnProgress = Callable[[Progress], Awaitable[None]]


async def ignore(progress: Progress) -> None:
    pass


class PaperDesk:
    """Implements `runner.drivers.Desk`. Waits for answers end at once when there are none, unless a test says `patient`."""

    def __init__(self, call: Call, *, on_progress: OnProgress = ignore, patient: bool = False) -> None:
        self.call = call
        self.told: list[Progress] = []
        self.kept: list[Handle | None] = []
        self._on_progress = on_progress
        self._patient = patient
        self.asked = asyncio.Event()
        """Set when something was asked."""
        self._answered = asyncio.Event()

    async def progress(self, progress: Progress) -> None:
        self.told.append(progress)
        await self._on_progress(progress)

    async def keep(self, handle: Handle | None) -> None:
        self.kept.append(handle)
        self.call = replace(self.call, handle=handle)

    async def ask(self, requests: Mapping[str, Mapping[str, Any]]) -> None:
        self.call = inputs.request_input(self.call, requests, now=self.call.updated_at)
        if self.call.input_requests:
            self.asked.set()

    async def answers(self, timeout_seconds: float) -> Mapping[str, Any]:
        if timeout_seconds > 0 and not self.call.input_responses:
            self._answered.clear()
            if self._patient:
                await self._answered.wait()
            await asyncio.sleep(0)
        return self.call.input_responses

    async def passed_on(self, keys: Collection[str]) -> None:
        self.call = inputs.remove_sent_responses(self.call, keys)

    # -- what a test does --

    def answer(self, responses: Mapping[str, Any]) -> None:
        """Answer by the keys of ours, as a client does."""
        self.call = inputs.answer_input(self.call, responses, now=self.call.updated_at).call
        self._answered.set()
