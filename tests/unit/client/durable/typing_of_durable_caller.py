"""How a type checker sees the durable caller. Pyright reads this file; nothing runs it."""

from collections.abc import Mapping, Sequence
from typing import Any, assert_type

from ringback.client import CallHandle, DurableCaller, MemoryRequestState, RequestStateManager, SQLiteRequestState
from ringback.client.durable import CallSnapshot, JoinedCall, OnProgress, RedisRequestState
from ringback.client.models import Progress


def print_progress(progress: Progress) -> None: ...


async def store_progress(progress: Progress) -> None: ...


CALLBACKS: list[OnProgress] = [print, print_progress, store_progress]
STATES: list[RequestStateManager] = [
    MemoryRequestState(),
    SQLiteRequestState("calls.db"),
    RedisRequestState("redis://"),
]


async def use_caller(caller: DurableCaller) -> None:
    handle = await caller.request_call_tool("tool", {"n": 1}, upstream="git", callback={"url": "https://agent.example"})
    assert_type(handle, CallHandle)
    assert_type(await caller.join_call_tool(handle, timeout_seconds=5, on_progress=print), Mapping[str, Any] | None)
    assert_type(await caller.join_call_tool(handle.id), Mapping[str, Any] | None)
    assert_type(await caller.join_any([handle]), Sequence[JoinedCall])
    assert_type(await caller.join_all([handle, handle.id], timeout_seconds=1), Sequence[JoinedCall])
    assert_type(await caller.cancel_call_tool(handle), bool)
    assert_type(await caller.list_calls(correlation_id="c1"), Sequence[CallSnapshot])
    await caller.answer_call_tool(handle, {"sure": {"action": "accept", "content": {"sure": True}}})
