"""A state that fails for a moment ends no running tool, and no result or progress is lost."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ringback.client.durable import MemoryRequestState, StateUnavailable, StoredState, UnknownHandle
from ringback.client.durable.local_call import LASTING_ATTEMPTS_MAX, LocalCall
from ringback.client.durable.record import Completion
from ringback.client.models import Progress
from tests.support.limits import WAIT_SECONDS
from tests.support.plain_durable_callers import count_runners, create_plain_caller

RESULT: dict[str, Any] = {"content": [{"type": "text", "text": "done"}]}
DONE = Completion(outcome="result", result=RESULT)
LOST = Completion(outcome="unknown")
PROGRESS = '"progress":{'


class BrieflyBrokenState(MemoryRequestState):
    """Fails one write: the first after `count` writes whose text contains `text`."""

    def __init__(self, text: str, *, count: int = 0) -> None:
        super().__init__()
        self.has_failed = False
        self.is_repaired = asyncio.Event()
        """Set by the first write after the failed one."""
        self._text = text
        self._remaining = count

    async def write(self, state: StoredState, *, replaces: str | None) -> bool:
        self._remaining -= 1
        if not self.has_failed and self._remaining < 0 and self._text in state.text:
            self.has_failed = True
            raise ConnectionError("the state cannot be reached for a moment")
        is_written = await super().write(state, replaces=replaces)
        if self.has_failed and is_written:
            self.is_repaired.set()
        return is_written


async def test_a_failed_renewal_of_the_lease_does_not_end_a_running_tool() -> None:
    state = BrieflyBrokenState("", count=2)  # the record and its lease are written

    async def respond(call: LocalCall) -> None:
        await state.is_repaired.wait()
        await call.complete(DONE)

    await assert_joined(respond, state)


async def test_a_failed_write_of_progress_does_not_end_a_running_tool_and_the_next_write_has_it() -> None:
    state = BrieflyBrokenState(PROGRESS)

    async def respond(call: LocalCall) -> None:
        call.report_progress(Progress(progress=7))
        await state.is_repaired.wait()
        (stored,) = await state.list_states()
        assert PROGRESS in stored.text
        await call.complete(DONE)

    await assert_joined(respond, state)


async def test_progress_only_rises_even_if_the_target_sends_earlier_progress_again() -> None:
    joined, seen = asyncio.Event(), list[float]()

    async def respond(call: LocalCall) -> None:
        call.report_progress(Progress(progress=3))
        await joined.wait()
        for number in (1, 2, 3, 4):
            call.report_progress(Progress(progress=number))
        await call.complete(DONE)

    def see(progress: Progress) -> None:
        seen.append(progress.progress)
        joined.set()

    async with asyncio.timeout(WAIT_SECONDS), create_plain_caller(respond, MemoryRequestState()) as caller:
        await caller.join_call_tool(await caller.request_call_tool("work"), on_progress=see)

    assert seen == [3, 4]


async def test_a_result_that_cannot_be_written_for_a_moment_is_not_lost() -> None:
    await assert_joined(lambda call: call.complete(DONE), BrieflyBrokenState('"outcome"'))


class FullState(MemoryRequestState):
    """Has no room for the end of a call, until the test makes some."""

    def __init__(self) -> None:
        super().__init__()
        self.is_full = True
        self.is_given_up = asyncio.Event()
        """Set once the end of a call is not written again by itself."""
        self._refusals = 0

    async def write(self, state: StoredState, *, replaces: str | None) -> bool:
        if self.is_full and '"outcome"' in state.text:
            self._refusals += 1
            if self._refusals > LASTING_ATTEMPTS_MAX:
                self.is_given_up.set()
            raise StateUnavailable("database or disk is full")
        return await super().write(state, replaces=replaces)


async def test_a_result_for_which_the_disk_has_no_room_is_returned_here_and_written_once_it_has() -> None:
    """The response came to this process, and no server sends it a second time."""
    state = FullState()
    async with asyncio.timeout(WAIT_SECONDS), create_plain_caller(lambda call: call.complete(DONE), state) as caller:
        handle = await caller.request_call_tool("work")
        assert await caller.join_call_tool(handle) == RESULT
        assert await caller.join_call_tool(handle) == RESULT

        state.is_full = False
        assert await caller.join_call_tool(handle) == RESULT
        async with create_plain_caller(lambda call: call.complete(LOST), state) as other:
            assert await other.join_call_tool(handle) == RESULT

        assert count_runners(caller) == 0


class HangingState(FullState):
    """Hangs before it refuses one attempt to write the end of a call, until the test lets it go on."""

    def __init__(self, attempt: int) -> None:
        super().__init__()
        self.hangs = asyncio.Event()
        self.may_refuse = asyncio.Event()
        self._remaining = attempt

    async def write(self, state: StoredState, *, replaces: str | None) -> bool:
        try:
            return await super().write(state, replaces=replaces)
        except StateUnavailable:
            self._remaining -= 1
            if not self._remaining:
                self.hangs.set()
                await self.may_refuse.wait()
            raise


async def test_a_join_that_begins_during_the_last_attempt_to_write_a_result_returns_it() -> None:
    """It took the call for one that goes on, and waited for ever."""
    state = HangingState(LASTING_ATTEMPTS_MAX)
    async with asyncio.timeout(WAIT_SECONDS), create_plain_caller(lambda call: call.complete(DONE), state) as caller:
        handle = await caller.request_call_tool("work")
        await state.hangs.wait()
        joining = asyncio.create_task(caller.join_call_tool(handle))
        await asyncio.sleep(0)
        state.may_refuse.set()
        assert await joining == RESULT


async def test_a_result_that_cannot_be_written_is_kept_while_another_attempt_to_write_it_goes_on() -> None:
    """The next join waited for ever, too."""
    state, ends, joined = HangingState(LASTING_ATTEMPTS_MAX + 1), iter((DONE, LOST)), asyncio.Event()

    async def respond(call: LocalCall) -> None:
        call.report_progress(Progress(progress=1))
        await joined.wait()
        await call.complete(next(ends))

    async with asyncio.timeout(WAIT_SECONDS), create_plain_caller(respond, state) as caller:
        handle = await caller.request_call_tool("work")
        assert await caller.join_call_tool(handle, on_progress=lambda _: joined.set()) == RESULT
        await state.hangs.wait()
        state.may_refuse.set()

        assert await caller.join_call_tool(handle) == RESULT


async def test_a_result_for_which_no_join_waited_is_kept_and_written_when_its_caller_is_closed() -> None:
    state = FullState()
    async with asyncio.timeout(WAIT_SECONDS):
        async with create_plain_caller(lambda call: call.complete(DONE), state) as caller:
            handle = await caller.request_call_tool("work")
            await state.is_given_up.wait()
            assert await caller.join_call_tool(handle) == RESULT
            state.is_full = False
        async with create_plain_caller(lambda call: call.complete(LOST), state) as other:
            assert await other.join_call_tool(handle) == RESULT


async def test_a_result_that_is_being_written_again_when_its_caller_is_closed_is_written_then() -> None:
    state = HangingState(1)
    async with asyncio.timeout(WAIT_SECONDS):
        async with create_plain_caller(lambda call: call.complete(DONE), state) as caller:
            handle = await caller.request_call_tool("work")
            await state.hangs.wait()
            state.is_full = False
        async with create_plain_caller(lambda call: call.complete(LOST), state) as other:
            assert await other.join_call_tool(handle) == RESULT


async def test_a_call_that_is_forgotten_while_the_disk_has_no_room_for_its_result_is_unknown() -> None:
    state = FullState()
    async with asyncio.timeout(WAIT_SECONDS), create_plain_caller(lambda call: call.complete(DONE), state) as caller:
        handle = await caller.request_call_tool("work")
        assert await caller.join_call_tool(handle) == RESULT

        await caller.forget_call(handle)
        with pytest.raises(UnknownHandle):
            await caller.join_call_tool(handle)

        assert count_runners(caller) == 0


async def assert_joined(respond: Callable[[LocalCall], Awaitable[None]], state: BrieflyBrokenState) -> None:
    async with asyncio.timeout(WAIT_SECONDS), create_plain_caller(respond, state) as caller:
        assert await caller.join_call_tool(await caller.request_call_tool("work")) == RESULT
    assert state.has_failed
