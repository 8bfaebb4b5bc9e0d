"""Pydantic AI agents that park and wake.

    tools = RingbackToolset(client, "reports")
    agent = Agent(model, toolsets=[tools], output_type=[str, DeferredToolRequests])

    result = await agent.run(prompt, conversation=conversation)      # park: the output is DeferredToolRequests
    await conversations.save(result)                                 # the process may end, or be killed

    result = await wake(agent, conversations, callback, client)      # wake, in any process: loads, runs and saves

A call's client_session_id is its run's `conversation_id`, and its correlation_id is the tool_call_id. `conversations` is a
`ConversationStore` of Pydantic AI, or any object with its `load` and `save`.

Pydantic AI goes on only with the results of all parked calls of a run at once, so `wake` returns None until the last one has
ended. In one process a conversation wakes once at a time. Of two processes that wake it at once, both run the model, and a
`ConversationStore` refuses to save the second result.
"""

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Protocol, TypeVar, Unpack, cast

from pydantic_ai import Agent, AgentRunResult, RunContext
from pydantic_ai.conversation import Conversation
from pydantic_ai.exceptions import CallDeferred, ModelRetry, ToolFailed
from pydantic_ai.messages import BinaryContent, ModelRequest, ToolReturn, ToolReturnPart
from pydantic_ai.tools import AgentDepsT, DeferredToolRequests, DeferredToolResults, ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
from pydantic_core import SchemaValidator, core_schema, from_json

from ringback.agents.agent_calls import (
    INVALID_ARGUMENTS,
    REFUSALS,
    AgentCalls,
    ParkOptions,
    read_call_state,
    read_call_states,
)
from ringback.agents.call_state import CallState, CallStateKind
from ringback.agents.wake_up import (
    AskPerson,
    CallbackForm,
    WakeUp,
    ask_person,
    current_time,
    find_tool_call,
    parse_wake_up,
    refuse_if_early,
)
from ringback.client import RingbackClient, Tool
from ringback.key_locks import KeyLocks

__all__ = ["AskPerson", "Conversations", "RingbackToolset", "collect_results", "wake"]

OutputT = TypeVar("OutputT")

CALL_ID: Final = "ringback_call_id"
"""The key of a parked call's id in `DeferredToolRequests.metadata` and in the metadata of its tool return."""
_ARGUMENTS: Final = SchemaValidator(core_schema.dict_schema(core_schema.str_schema(), core_schema.any_schema()))
"""Ringback validates them with the tool's inputSchema before the call starts."""

_locks: Final = KeyLocks()


class Conversations(Protocol):
    """Where conversations are kept. `ConversationStore` of Pydantic AI is one."""

    async def load(self, conversation_id: str, /) -> Conversation | None:
        """The stored conversation, or None if there is none."""
        ...

    async def save(self, result: AgentRunResult[Any], /) -> object:
        """Store `result.conversation`, whole: its messages and its `deferred_tool_requests`."""
        ...


class RingbackToolset(AbstractToolset[AgentDepsT]):
    """The tools of one upstream. A tool that has not ended when its call is stored is deferred (`CallDeferred`).

    The agent needs `DeferredToolRequests` among its output types. `tools` are the names of the tools to offer; the default is
    all. Arguments that the tool's inputSchema refuses are a `ModelRetry`, `max_retries` times; the default is the agent's.
    `options` are `ParkOptions`.
    """

    def __init__(
        self,
        client: RingbackClient,
        upstream: str,
        *,
        tools: Sequence[str] | None = None,
        max_retries: int | None = None,
        **options: Unpack[ParkOptions],
    ) -> None:
        self._calls = AgentCalls(client, upstream, options)
        self._names = tools
        self._max_retries = max_retries
        self._tools: Sequence[Tool] | None = None

    @property
    def id(self) -> str:
        return f"ringback-{self._calls.upstream}"

    async def get_tools(self, ctx: RunContext[AgentDepsT]) -> dict[str, ToolsetTool[AgentDepsT]]:
        """The upstream's tools, read once."""
        if self._tools is None:
            self._tools = await self._calls.list_tools(self._names)
        max_retries = ctx.max_retries if self._max_retries is None else self._max_retries
        return {tool.name: self._describe(tool, max_retries) for tool in self._tools}

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[AgentDepsT], tool: ToolsetTool[AgentDepsT]
    ) -> Any:
        """Park the call. A call that has already ended returns at once."""
        del tool
        if ctx.conversation_id is None or ctx.tool_call_id is None:
            raise ValueError("A tool of Ringback runs only within a run of an agent, which has a conversation_id.")
        try:
            state = await self._calls.park(
                name, tool_args, client_session_id=ctx.conversation_id, tool_call_id=ctx.tool_call_id
            )
        except INVALID_ARGUMENTS as refused:
            raise ModelRetry(str(refused)) from refused
        except REFUSALS as refusal:
            raise ToolFailed(f"The tool '{name}' was not called: {refusal}") from refusal
        if not state.is_final:
            raise CallDeferred(metadata={CALL_ID: state.call_id})
        returned = _to_tool_result(state)
        if isinstance(returned, ToolFailed):
            raise returned
        return returned

    def _describe(self, tool: Tool, max_retries: int) -> ToolsetTool[AgentDepsT]:
        definition = ToolDefinition(
            name=tool.name,
            description=tool.description,
            parameters_json_schema=dict(tool.input_schema),
            return_schema=None if tool.output_schema is None else dict(tool.output_schema),
        )
        return ToolsetTool(toolset=self, tool_def=definition, max_retries=max_retries, args_validator=_ARGUMENTS)


async def wake(
    agent: Agent[Any, OutputT],
    conversations: Conversations,
    callback: CallbackForm,
    client: RingbackClient,
    *,
    ask: AskPerson | None = None,
    clock: Callable[[], datetime] = current_time,
    **run_options: Any,
) -> AgentRunResult[OutputT] | None:
    """Load the callback's conversation, run it on with the results of its parked calls, and save it.

    None if there is nothing to run: another call of the same run is still working, the agent was woken before, the event wakes
    no agent, or the tool asks (then `ask` was awaited). Also None while the run waits for approvals or for calls of others: run
    the agent yourself once you have them, with `collect_results`. `run_options` go to `agent.run`.

    Raises `NotParkedYet` if the conversation does not have the call yet: refuse the callback, and it comes again. Raises
    `MalformedBody` for what is not a callback, and the client's errors.
    """
    wake_up = parse_wake_up(callback)
    if wake_up is None or wake_up.client_session_id is None:
        return None
    async with _locks.hold(wake_up.client_session_id):
        conversation = await conversations.load(wake_up.client_session_id)
        requests = await _find_requests(conversation, wake_up, client, clock)
        if requests is None:
            return None
        states = await read_call_states(client, list(_find_parked(requests).values()))
        await ask_person(states[wake_up.call_id], ask)
        results = _build_results(requests, states)
        if results is None or requests.remaining(results) is not None:
            return None
        result = await agent.run(conversation=conversation, deferred_tool_results=results, **run_options)
        await conversations.save(result)
        return result


async def _find_requests(
    conversation: Conversation | None, wake_up: WakeUp, client: RingbackClient, clock: Callable[[], datetime]
) -> DeferredToolRequests | None:
    """The conversation's open requests if the call is one of them; None if it was one earlier. Raises `NotParkedYet`."""
    requests = None if conversation is None else conversation.deferred_tool_requests
    if requests is not None and wake_up.call_id in _find_parked(requests).values():
        return requests
    state = await read_call_state(client, wake_up.call_id, with_result=False)
    _, tool_call_id = find_tool_call(wake_up, state)
    if conversation is None or not _has_result(conversation, tool_call_id, wake_up.call_id):
        refuse_if_early(state, clock())
    return None


async def collect_results(requests: DeferredToolRequests, client: RingbackClient) -> DeferredToolResults | None:
    """The results of all calls that were parked on Ringback, or None if one of them has not ended.

    Calls of others and approvals are left out; add theirs with `DeferredToolResults.update` before you run the agent.
    """
    states = await read_call_states(client, list(_find_parked(requests).values()))
    return _build_results(requests, states)


def _build_results(requests: DeferredToolRequests, states: Mapping[str, CallState]) -> DeferredToolResults | None:
    if not all(state.is_final for state in states.values()):
        return None
    calls = {tool_call_id: _to_tool_result(states[call_id]) for tool_call_id, call_id in _find_parked(requests).items()}
    return DeferredToolResults(calls=calls)


def _to_tool_result(state: CallState) -> ToolReturn[Any] | ToolFailed:
    """What a tool of Pydantic AI returns or raises for an ended call."""
    if state.kind is CallStateKind.RESULT and state.result is not None:
        return ToolReturn(return_value=_to_return_value(state.result), metadata={CALL_ID: state.call_id})
    return ToolFailed(state.text + _mark_failed(state.call_id))


def _mark_failed(call_id: str) -> str:
    """The end of a failed call's text. Pydantic AI stores no metadata of it that could say which call it was."""
    return f" [{call_id}]" if call_id else ""


def _to_return_value(result: Mapping[str, Any]) -> Any:
    """The value of a CallToolResult as `MCPToolset` returns it: structured content, else its parts, or its only part."""
    blocks = cast("Sequence[Mapping[str, Any]]", result.get("content") or ())
    structured = result.get("structuredContent")
    if isinstance(structured, dict) and all(block.get("type") == "text" for block in blocks):
        members = cast("dict[str, Any]", structured)
        return members["result"] if members.keys() == {"result"} else members
    parts = [_to_part(block) for block in blocks]
    return parts[0] if len(parts) == 1 else parts


def _to_part(block: Mapping[str, Any]) -> Any:
    match block:
        case {"type": "text", "text": str(text)}:
            return _parse_json_text(text)
        case {"type": "image" | "audio", "data": str(data), "mimeType": str(media_type)}:
            return _to_binary(data, media_type)
        case {"type": "resource", "resource": {"text": str(text)}}:
            return text
        case {"type": "resource", "resource": {"blob": str(blob), **resource}}:
            return _to_binary(blob, str(resource.get("mimeType") or "application/octet-stream"))
        case {"type": "resource_link", "uri": str(uri)}:
            return uri
        case _:
            return dict(block)


def _parse_json_text(text: str) -> Any:
    """JSON objects and arrays are values, as `MCPToolset` makes them."""
    if not text.startswith(("{", "[")):
        return text
    try:
        return from_json(text)
    except ValueError:
        return text


def _to_binary(data: str, media_type: str) -> Any:
    try:
        content = base64.b64decode(data, validate=True)
    except binascii.Error:
        return f"A part of the result with the type {media_type} is not base64."
    return BinaryContent.narrow_type(BinaryContent(data=content, media_type=media_type))


def _find_parked(requests: DeferredToolRequests) -> dict[str, str]:
    """By tool_call_id, the ids of the calls that are on Ringback."""
    found = {part.tool_call_id: requests.metadata.get(part.tool_call_id, {}).get(CALL_ID) for part in requests.calls}
    return {tool_call_id: call_id for tool_call_id, call_id in found.items() if isinstance(call_id, str)}


def _has_result(conversation: Conversation, tool_call_id: str | None, call_id: str) -> bool:
    """Whether the history has a result of this tool call: the agent was woken for it before.

    Some models name the first call of every response alike, so a result counts only if it names the call.
    """
    requests = (message for message in conversation.messages if isinstance(message, ModelRequest))
    parts = (part for request in requests for part in request.parts if isinstance(part, ToolReturnPart))
    return any(part.tool_call_id == tool_call_id and _names_call(part, call_id) for part in parts)


def _names_call(part: ToolReturnPart, call_id: str) -> bool:
    metadata = part.metadata
    if isinstance(metadata, dict) and cast("Mapping[str, Any]", metadata).get(CALL_ID) == call_id:
        return True
    return isinstance(part.content, str) and part.content.endswith(_mark_failed(call_id))
