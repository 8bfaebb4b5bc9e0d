"""A thread of LangGraph, as its checkpointer has it: what waits in it for Ringback, and the input with which it runs on."""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Protocol, cast

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.types import Command, Interrupt, PregelTask, StateSnapshot

from ringback.agents.call_state import CallState
from ringback.agents.wake_up import refuse_if_early, refuse_while_running

CALL_ID: Final = "ringback_call_id"
"""The member of an interrupt's value that has the call's id."""
INPUT_REQUESTS: Final = "input_requests"
"""The member of an interrupt's value that has a tool's open questions."""
HISTORY_MAX: Final = 100
"""Checkpoints that are searched for a call that is no longer pending: more than a run between two callbacks makes."""
NOTHING: Final = object()
"""There is nothing to run. None is the input with which LangGraph goes on with a step."""
DROPPED: Final = object()
"""Nothing in the thread waits for the call: a new message came while it was parked, and LangGraph dropped its interrupt."""


class Graph(Protocol):
    """A compiled graph with a checkpointer, as `create_agent` and `StateGraph.compile` return it."""

    @property
    def interrupt_before_nodes(self) -> Any: ...

    @property
    def interrupt_after_nodes(self) -> Any: ...

    async def aget_state(self, config: RunnableConfig) -> StateSnapshot: ...

    def aget_state_history(
        self, config: RunnableConfig, *, limit: int | None = None
    ) -> AsyncIterator[StateSnapshot]: ...

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any: ...  # noqa: A002 - LangGraph's name


async def find_next_input(graph: Graph, thread: RunnableConfig, state: CallState, now: datetime) -> Any:
    """The input with which the thread runs on, or `NOTHING`, or `DROPPED`. Raises `NotParkedYet`."""
    snapshot = await graph.aget_state(thread)
    if is_abandoned(snapshot):
        return None
    if _is_running(graph, snapshot):
        acted_at = state.changed_at, _parse_instant(snapshot.created_at)
        refuse_while_running(f"The thread of the call {state.call_id} is running.", acted_at, now)
        return None  # its process died
    pending = _find_pending(snapshot)
    showing = [each for each in pending if _find_call_id(each.value) == state.call_id]
    if not showing and state.is_final and await _was_dropped(graph, thread, snapshot, state):
        return DROPPED
    waiting = showing or pending
    resumed = {each.id: {CALL_ID: state.call_id} for each in waiting if _needs_resume(each.value, state)}
    if resumed:
        return Command(resume=resumed)
    if _has_failed(snapshot):
        return None
    if not pending and not await _was_parked(graph, thread, snapshot, state):
        refuse_if_early(state, now)
    return NOTHING


def _parse_instant(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def is_abandoned(snapshot: StateSnapshot) -> bool:
    """Whether all tasks of a step have ended, and no process goes on.

    Two processes that resume two interrupts at once leave it so: each takes the other's task for interrupted.
    """
    return bool(snapshot.tasks) and all(_has_ended(task) for task in snapshot.tasks)


def _has_ended(task: PregelTask) -> bool:
    """Whether a task has returned. In LangGraph 1.2.0 such a task keeps its interrupts, and others may have the result {}."""
    return task.result is not None and (bool(task.result) or not task.interrupts)


def _is_running(graph: Graph, snapshot: StateSnapshot) -> bool:
    """Whether a step has tasks that have neither ended nor stopped at an interrupt: a process runs them, or died in them.

    A graph with breakpoints stops before such tasks too, so nothing is known of it.
    """
    if graph.interrupt_before_nodes or graph.interrupt_after_nodes:
        return False
    return any(task.result is None and task.error is None and not task.interrupts for task in snapshot.tasks)


def _has_failed(snapshot: StateSnapshot) -> bool:
    """Whether a task of the step has raised, such as a model that did not respond. The next callback runs it again."""
    return any(task.error is not None for task in snapshot.tasks)


def _find_pending(snapshot: StateSnapshot) -> list[Interrupt]:
    """The thread's interrupts that wait for Ringback."""
    waiting = [each for task in snapshot.tasks if not _has_ended(task) for each in task.interrupts]
    return [each for each in waiting if _find_call_id(each.value) is not None]


def _needs_resume(value: Any, state: CallState) -> bool:
    """Whether a node that waits with this value has to run again. A person who is being asked is not asked again.

    A ToolNode that runs several calls in one task shows the interrupt of one of them only. So if no node shows the call, those
    that wait for other calls run again; they wait again if nothing has changed for theirs.
    """
    if _find_call_id(value) != state.call_id:
        return INPUT_REQUESTS not in value
    return state.is_final or set(value.get(INPUT_REQUESTS, ())) != set(state.input_requests)


async def _was_dropped(graph: Graph, thread: RunnableConfig, snapshot: StateSnapshot, state: CallState) -> bool:
    """Whether the input of a new run followed the last checkpoint that waited for the call, or its request in the messages.

    A ToolNode that runs several calls in one task shows the interrupt of one of them only, so the messages count too.
    """
    if snapshot.created_at is None:
        return False
    later: StateSnapshot | None = None
    async for earlier in graph.aget_state_history(thread, limit=HISTORY_MAX):
        if any(_find_call_id(each.value) == state.call_id for each in earlier.interrupts):
            return later is not None and (later.metadata or {}).get("source") == "input"
        later = earlier
    return _has_unanswered_request(_read_messages(snapshot), state.tool_call_id)


def _has_unanswered_request(messages: Sequence[Any], tool_call_id: str | None) -> bool:
    """Whether a message of a person follows the model's request of this tool call, and no result does."""
    is_requested = is_followed = False
    for message in messages:
        if isinstance(message, AIMessage) and any(each["id"] == tool_call_id for each in message.tool_calls):
            is_requested, is_followed = True, False
        elif isinstance(message, ToolMessage) and message.tool_call_id == tool_call_id:
            is_requested = False
        elif isinstance(message, HumanMessage):
            is_followed = True
    return is_requested and is_followed


async def _was_parked(graph: Graph, thread: RunnableConfig, snapshot: StateSnapshot, state: CallState) -> bool:
    """Whether the thread has had the call: its result is in the messages, or an earlier checkpoint waited for it."""
    if snapshot.created_at is None:
        return False
    messages = _read_messages(snapshot)
    if any(isinstance(each, ToolMessage) and each.tool_call_id == state.tool_call_id for each in messages):
        return True
    async for earlier in graph.aget_state_history(thread, limit=HISTORY_MAX):
        if any(_find_call_id(each.value) == state.call_id for each in earlier.interrupts):
            return True
    return False


def _read_messages(snapshot: StateSnapshot) -> Sequence[Any]:
    values: Any = snapshot.values  # pyright: ignore[reportUnknownMemberType] - LangGraph's types are incomplete
    return cast("Sequence[Any]", values.get("messages") or ()) if hasattr(values, "get") else ()


def _find_call_id(value: Any) -> str | None:
    return cast("Mapping[str, Any]", value).get(CALL_ID) if isinstance(value, dict) else None
