"""LangGraph agents that park and wake.

    tools = await load_tools(client, "reports")
    graph = create_agent(model, tools, checkpointer=checkpointer)              # or a graph of your own, with a ToolNode

    config = {"configurable": {"thread_id": "session-7"}}
    await graph.ainvoke({"messages": [("user", prompt)]}, config)              # park: the graph is interrupted
                                                                               # the process may end, or be killed
    state = await wake(graph, callback, client)                                # wake, in any process

A call's client_session_id is the thread_id, and its correlation_id is the id of the tool call. A node without a model uses
`call_tool`. LangGraph runs an interrupted node again from its beginning. That is safe for 30 days: the start has an idempotency
key of the thread and the tool call, so it finds its call and starts no other.

The checkpoint has the call's id, not its result: a woken node reads the result from Ringback. So it does not matter what a
graph is resumed with, and a repeated or unexpected wake runs no model. In one process a thread wakes once at a time. Two
processes that wake it in the same moment may both run the model; an `ordered` webhook sends its callbacks one by one.

A tool's question (`accepts_input=True`) is an interrupt too, whose value has the `input_requests`. Resume it as any question to
a person, with the answers by their keys: `Command(resume={interrupt.id: {key: {"action": "accept", "content": {…}}}})`.
"""

import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, Unpack, cast

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langgraph.prebuilt import ToolRuntime
from langgraph.types import interrupt

from ringback.agents.agent_calls import REFUSALS, AgentCalls, ParkOptions, read_call_state
from ringback.agents.call_state import CallState, CallStateKind
from ringback.agents.langgraph_thread import (
    CALL_ID,
    DROPPED,
    INPUT_REQUESTS,
    NOTHING,
    Graph,
    find_next_input,
    is_abandoned,
)
from ringback.agents.wake_up import CallbackForm, current_time, find_tool_call, parse_wake_up
from ringback.client import Conflict, InvalidRequest, RingbackClient, Tool
from ringback.key_locks import KeyLocks

__all__ = ["Graph", "OnDropped", "call_tool", "load_tools", "wake"]

OnDropped = Callable[[CallState], Awaitable[Any]]
"""What `wake` does with the end of a call for which nothing in its thread waits any more."""

_locks: Final = KeyLocks()
log = logging.getLogger(__name__)


async def load_tools(
    client: RingbackClient, upstream: str, *, tools: Sequence[str] | None = None, **options: Unpack[ParkOptions]
) -> list[BaseTool]:
    """The tools of one upstream, or those with these names, for `create_agent` or a `ToolNode`. `options` are `ParkOptions`.

    They are asynchronous (`ainvoke`, `astream`), and the graph needs a checkpointer and a thread_id. A tool's error, and
    arguments that its inputSchema refuses, are a ToolMessage with the status `error`.
    """
    calls = AgentCalls(client, upstream, options)
    return [_build_tool(client, calls, tool) for tool in await calls.list_tools(tools)]


async def call_tool(
    client: RingbackClient,
    upstream: str,
    tool: str,
    arguments: Mapping[str, Any],
    *,
    key: str,
    config: RunnableConfig,
    **options: Unpack[ParkOptions],
) -> CallState:
    """Call a tool within a node of your own, and return how it ended; the graph is interrupted meanwhile.

    `key` names this call within the thread: the same key with the same arguments is the same call, also when the node runs
    again. `config` is the node's. Raises `InvalidRequest` for unknown tools and invalid arguments, and `NotFound` for unknown
    upstreams.
    """
    return await _park_and_wait(client, AgentCalls(client, upstream, options), tool, arguments, key, config)


async def wake(
    graph: Graph,
    callback: CallbackForm,
    client: RingbackClient,
    *,
    config: RunnableConfig | None = None,
    on_dropped: OnDropped | None = None,
    clock: Callable[[], datetime] = current_time,
    **invoke_options: Any,
) -> Any:
    """Run the thread of the callback's call on, and return what `graph.ainvoke` returns; None if there is nothing to run.

    While other calls of the thread are parked, or a tool asks a person, the returned state has `__interrupt__`. `config` is
    added to the thread's; `invoke_options` go to `ainvoke`.

    A message that came to the thread while the call was parked has made LangGraph drop the interrupt: nothing in the thread
    waits for the result, and the history has none. Then `wake` returns what `on_dropped` returns, which gets the call with its
    result, and may run the thread with a message that has it. Without `on_dropped` it logs a warning. Another callback of the
    call that reaches `wake` is dropped in the same way.

    Raises `NotParkedYet` if the thread has no checkpoint with the call yet, or while another process runs the thread: refuse
    the callback, and it comes again. If that process has died, the thread can be continued ten minutes after its last
    checkpoint and the call's end, and the first callback after that does. Raises `MalformedBody` for what is not a callback,
    and the client's errors.
    """
    wake_up = parse_wake_up(callback)
    if wake_up is None:
        return None
    state = await read_call_state(client, wake_up.call_id, with_result=False)  # the woken node reads it
    thread_id, tool_call_id = find_tool_call(wake_up, state)
    state = replace(state, tool_call_id=tool_call_id)
    if thread_id is None or state.kind is CallStateKind.WORKING:
        return None
    async with _locks.hold(thread_id):
        thread = _build_config(thread_id, config)
        next_input = await find_next_input(graph, thread, state, clock())
        if next_input is NOTHING:
            return None
        if next_input is DROPPED:
            return await _handle_dropped(client, state, on_dropped)
        return await _run_thread(graph, next_input, thread, invoke_options)


async def _run_thread(graph: Graph, next_input: Any, thread: RunnableConfig, options: Mapping[str, Any]) -> Any:
    values: Any = await graph.ainvoke(next_input, thread, **options)
    if is_abandoned(await graph.aget_state(thread)):
        values = await graph.ainvoke(None, thread, **options)
    return values


async def _handle_dropped(client: RingbackClient, state: CallState, on_dropped: OnDropped | None) -> Any:
    if on_dropped is not None:
        return await on_dropped(await read_call_state(client, state.call_id))
    log.warning(
        "The thread %s got a message while the call %s of the tool '%s' was parked, so LangGraph dropped the call, and its "
        "history has no result. Read it with GET /v1/calls/%s/result, or give wake() an `on_dropped`",
        state.client_session_id,
        state.call_id,
        state.tool,
        state.call_id,
    )
    return None


def _build_config(thread_id: str, config: RunnableConfig | None) -> RunnableConfig:
    given = config or {}
    return {**given, "configurable": {**given.get("configurable", {}), "thread_id": thread_id}}


# -- park --


class _LangGraphTool(StructuredTool):
    """Passes all arguments on. `StructuredTool` loses those with the names `config` and `run_manager`."""

    async def _arun(self, *args: Any, **kwargs: Any) -> Any:
        return await cast("Callable[..., Awaitable[Any]]", self.coroutine)(*args, **kwargs)


def _build_tool(client: RingbackClient, calls: AgentCalls, tool: Tool) -> BaseTool:
    async def run(
        ringback_runtime: ToolRuntime[Any, Any], **arguments: Any
    ) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
        if ringback_runtime.tool_call_id is None:
            raise ValueError(
                "A tool of Ringback runs only for a tool call of a model; use call_tool in a node of your own."
            )
        try:
            state = await _park_and_wait(
                client, calls, tool.name, arguments, ringback_runtime.tool_call_id, ringback_runtime.config
            )
        except REFUSALS as refusal:
            raise ToolException(str(refusal)) from refusal
        return _to_content_and_artifact(state)

    return _LangGraphTool(
        name=tool.name,
        description=tool.description or tool.title or tool.name,
        args_schema={"properties": {}, **tool.input_schema},
        coroutine=run,
        response_format="content_and_artifact",
        handle_tool_error=True,
    )


async def _park_and_wait(
    client: RingbackClient,
    calls: AgentCalls,
    tool: str,
    arguments: Mapping[str, Any],
    tool_call_id: str,
    config: RunnableConfig,
) -> CallState:
    """Park the call, and interrupt the node until it has ended.

    LangGraph runs the node again for every resume, and `interrupt` returns the earlier resumes' values again, in their order.
    So every value is only a reason to look. Ringback ignores answers that are sent again.
    """
    state = await calls.park(tool, arguments, client_session_id=_find_thread_id(config), tool_call_id=tool_call_id)
    problem: str | None = None
    while not state.is_final:
        value = interrupt(_describe(state, problem))
        problem = await _send_answers(client, state, value)
        state = await read_call_state(client, state.call_id)
    return state


def _describe(state: CallState, problem: str | None) -> dict[str, Any]:
    """The value of an interrupt, for `wake` and for the application that shows it."""
    value: dict[str, Any] = {CALL_ID: state.call_id, "upstream": state.upstream, "tool": state.tool}
    if state.kind is CallStateKind.INPUT_REQUIRED:
        value[INPUT_REQUESTS] = {key: dict(request) for key, request in state.input_requests.items()}
    return value if problem is None else {**value, "problem": problem}


async def _send_answers(client: RingbackClient, state: CallState, value: Any) -> str | None:
    """Send the answers among a resume's values. Returns why Ringback refuses them; the person is then asked again."""
    if not isinstance(value, dict) or not (answers := _select_answers(cast("Mapping[str, Any]", value), state)):
        return None
    try:
        await client.answer(state.call_id, answers)
    except (InvalidRequest, Conflict) as refused:
        return str(refused)
    return None


def _select_answers(value: Mapping[str, Any], state: CallState) -> dict[str, Mapping[str, Any]]:
    return {key: answer for key, answer in value.items() if key in state.input_requests and isinstance(answer, dict)}


def _find_thread_id(config: RunnableConfig) -> str:
    thread_id = config.get("configurable", {}).get("thread_id")
    if thread_id is None:
        raise ValueError('Give the graph a checkpointer, and run it with {"configurable": {"thread_id": …}}.')
    return str(thread_id)


# -- results --


def _to_content_and_artifact(state: CallState) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """The content blocks of a ToolMessage and its artifact. Raises `ToolException`."""
    if state.kind is not CallStateKind.RESULT or state.result is None:
        raise ToolException(state.text)
    structured = state.result.get("structuredContent")
    blocks = [_to_block(block) for block in state.result.get("content") or ()]
    return blocks, None if structured is None else {"structured_content": structured}


def _to_block(block: Mapping[str, Any]) -> dict[str, Any]:
    """A content block of LangChain."""
    match block:
        case {"type": "text", "text": str(text)}:
            return {"type": "text", "text": text}
        case {"type": "image" | "audio" as kind, "data": str(data), "mimeType": str(mime_type)}:
            return {"type": kind, "base64": data, "mime_type": mime_type}
        case {"type": "resource", "resource": {"text": str(text)}}:
            return {"type": "text", "text": text}
        case {"type": "resource", "resource": {"blob": str(blob), **resource}}:
            mime_type = str(resource.get("mimeType") or "application/octet-stream")
            return {"type": _find_block_type(mime_type), "base64": blob, "mime_type": mime_type}
        case {"type": "resource_link", "uri": str(uri)}:
            return {"type": "text", "text": uri}
        case _:
            return {"type": "text", "text": json.dumps(block)}


def _find_block_type(mime_type: str) -> str:
    kind = mime_type.partition("/")[0]
    return kind if kind in {"image", "audio", "video"} else "file"
