"""Several joins of one caller share what follows their call, and the end of one concerns no other."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, cast

import anyio
import pytest

from ringback.client.durable import (
    CallCancelled,
    CallHandle,
    DurableCaller,
    InputRequired,
    JoinedCall,
    McpTarget,
    MemoryRequestState,
    StoredState,
    UnknownHandle,
)
from ringback.client.durable.call_runner import CallRunner
from ringback.client.durable.joins import join_several
from ringback.client.durable.journal import CallJournal
from ringback.client.durable.local_call import LocalCall
from ringback.client.durable.record import Completion, PlainPosition, Position, TaskPosition
from ringback.client.models import InputRequest, Progress
from ringback.protocol.upstream_logins import LOGIN_REQUEST_KEY
from tests.support.limits import WAIT_SECONDS
from tests.support.plain_durable_callers import create_plain_caller
from tests.unit.client.durable.test_leases import RECORD, MovableClock

RESULT = {"content": [{"type": "text", "text": "done"}]}


class HeldState(MemoryRequestState):
    """Its reads wait while `is_open` is not set."""

    def __init__(self) -> None:
        super().__init__()
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.has_waiting_read = asyncio.Event()

    async def read(self, key: str) -> StoredState | None:
        if not self.is_open.is_set():
            self.has_waiting_read.set()
            await self.is_open.wait()
        return await super().read(key)


class FollowedTarget:
    """Follows a call until the test releases it, and counts how often it follows one."""

    url = "http://mcp.example/mcp"
    may_repeat_start = False

    def __init__(self, position: Position) -> None:
        self._position = position
        self.is_released = asyncio.Event()
        self.is_followed = asyncio.Event()
        self.follow_count = 0

    def check_request(self, request: Any) -> None: ...

    async def run_call(self, call: LocalCall) -> None:
        if call.record.position is None:
            await call.acquire_lease(position=PlainPosition())
            await call.save(position=self._position)
            call.started.set()
        self.follow_count += 1
        self.is_followed.set()
        await self.is_released.wait()
        await call.complete(Completion(outcome="result", result=RESULT))

    async def check_questions(self, call: LocalCall) -> None: ...

    async def aclose(self) -> None: ...


class AskingTarget(FollowedTarget):
    """Reports progress and asks, once the test releases it. After the answer it ends the call."""

    is_answered = False

    async def run_call(self, call: LocalCall) -> None:
        if self.is_answered:
            await super().run_call(call)
            return
        await call.acquire_lease(position=self._position)
        call.started.set()
        await self.is_released.wait()
        call.report_progress(Progress(progress=1))
        await call.save(input_requests={"q": InputRequest(method="elicitation/create", params={})})

    async def answer_call(self, call: LocalCall, responses: Any) -> None:
        self.is_answered = bool(responses)
        await call.save(input_requests={})


def create_caller(target: FollowedTarget, state: MemoryRequestState) -> DurableCaller:
    return DurableCaller(cast("McpTarget", target), state=state)


@pytest.fixture
def state() -> HeldState:
    return HeldState()


@pytest.fixture
def target() -> FollowedTarget:
    return FollowedTarget(TaskPosition(task_id="t1"))


@pytest.fixture
async def caller(target: FollowedTarget, state: HeldState) -> AsyncGenerator[DurableCaller]:
    async with asyncio.timeout(WAIT_SECONDS), create_caller(target, state) as caller:
        yield caller


async def test_a_join_goes_on_whose_callback_was_busy_while_the_tool_asked_and_was_answered(state: HeldState) -> None:
    """It waited for ever: nothing followed the call any more, because the question had ended that."""
    is_busy, may_go_on = asyncio.Event(), asyncio.Event()

    async def show(progress: Progress) -> None:
        del progress
        is_busy.set()
        await may_go_on.wait()

    target = AskingTarget(TaskPosition(task_id="task-1"))
    async with asyncio.timeout(WAIT_SECONDS), create_caller(target, state) as caller:
        handle = await caller.request_call_tool("work")
        joining = asyncio.create_task(caller.join_call_tool(handle, on_progress=show))
        await anyio.wait_all_tasks_blocked()
        target.is_released.set()
        await is_busy.wait()
        with pytest.raises(InputRequired):
            await caller.join_call_tool(handle)
        await caller.answer_call_tool(handle, {"q": {"action": "decline"}})
        may_go_on.set()

        assert await joining == RESULT


async def test_a_join_goes_on_if_another_one_ends_while_it_reads_the_state(
    caller: DurableCaller, target: FollowedTarget, state: HeldState
) -> None:
    handle = await caller.request_call_tool("work")
    target.is_followed.clear()
    first = asyncio.create_task(caller.join_call_tool(handle))
    await target.is_followed.wait()

    state.is_open.clear()
    second = asyncio.create_task(caller.join_call_tool(handle))
    await state.has_waiting_read.wait()
    first.cancel()
    await asyncio.wait([first])
    state.is_open.set()
    target.is_released.set()

    assert await second == RESULT


async def test_two_joins_that_read_the_state_at_once_follow_the_call_once(
    caller: DurableCaller, target: FollowedTarget, state: HeldState
) -> None:
    handle = await caller.request_call_tool("work")
    other_target = FollowedTarget(TaskPosition(task_id="t1"))
    async with create_caller(other_target, state) as other:
        state.is_open.clear()
        joining = [asyncio.create_task(other.join_call_tool(handle)) for _ in range(2)]
        await state.has_waiting_read.wait()
        state.is_open.set()
        other_target.is_released.set()

        assert await asyncio.gather(*joining) == [RESULT, RESULT]
    assert other_target.follow_count == 1


async def test_a_join_without_time_reads_only_the_state(
    caller: DurableCaller, target: FollowedTarget, state: HeldState
) -> None:
    handle = await caller.request_call_tool("work")
    other_target = FollowedTarget(TaskPosition(task_id="t1"))
    async with create_caller(other_target, state) as other:
        assert await other.join_call_tool(handle, timeout_seconds=0) is None
        target.is_released.set()
        await caller.join_call_tool(handle)
        assert await other.join_call_tool(handle, timeout_seconds=0) == RESULT

    assert other_target.follow_count == 0


async def test_a_join_that_waits_while_its_caller_cancels_the_call_says_that_it_was_cancelled(state: HeldState) -> None:
    target = FollowedTarget(PlainPosition())
    async with asyncio.timeout(WAIT_SECONDS), create_caller(target, state) as caller:
        handle = await caller.request_call_tool("work")
        joining = asyncio.create_task(caller.join_call_tool(handle))
        await asyncio.sleep(0)  # it waits

        assert await caller.cancel_call_tool(handle)
        with pytest.raises(CallCancelled):
            await joining


async def test_a_cancellation_while_joins_end_stays_within_its_scope_of_anyio() -> None:
    """Agents join within such scopes. A cancellation that the scope does not know would end the task around it."""
    scope = anyio.CancelScope()

    async def join_one(_: CallHandle) -> JoinedCall:
        try:
            await asyncio.Event().wait()
        finally:
            scope.cancel()
        raise AssertionError

    async def join() -> None:
        with scope:
            await join_several([RECORD.handle], join_one, 0.001, asyncio.ALL_COMPLETED)

    joining = asyncio.create_task(join())
    await asyncio.wait({joining}, timeout=WAIT_SECONDS)

    assert not joining.cancelled()


async def test_a_call_that_the_state_does_not_hold_any_more_hides_no_result_of_another() -> None:
    async with (
        asyncio.timeout(WAIT_SECONDS),
        create_plain_caller(lambda call: call.complete(Completion(outcome="result", result=RESULT))) as caller,
    ):
        known, forgotten = [await caller.request_call_tool("work") for _ in range(2)]
        await caller.forget_call(forgotten)

        joined = await caller.join_all([forgotten, known])
        with pytest.raises(UnknownHandle):
            await caller.join_all([forgotten.id, known])

    assert [each.handle for each in joined] == [forgotten, known]
    assert [(type(each.error), each.result) for each in joined] == [(UnknownHandle, None), (type(None), RESULT)]


async def test_a_join_leaves_questions_that_another_process_was_asked_since_the_login(
    state: HeldState, target: FollowedTarget
) -> None:
    """They were lost with the request to log in: the next round was sent without answers to them."""
    login, question = (InputRequest(method="elicitation/create", params={"message": each}) for each in ("login", "q"))
    asks_for_login = RECORD.model_copy(update={"input_requests": {LOGIN_REQUEST_KEY: login}})
    journal, clock = CallJournal(state), MovableClock()
    await journal.create(asks_for_login)
    call = LocalCall(asks_for_login, journal, clock, holder="here")
    runner = CallRunner(call, cast("McpTarget", target), tasks=set(), on_idle=lambda _: None)
    await LocalCall(asks_for_login, journal, clock, holder="elsewhere").save(input_requests={"q": question})

    await runner.begin_join()

    stored = await journal.read(RECORD.handle.id)
    assert stored is not None
    assert stored.input_requests == call.record.input_requests == {"q": question}
