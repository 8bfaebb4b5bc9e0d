"""The tools of the OpenAI Agents SDK: how the model sees a tool, and what it returns for an ended call."""

import json
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, cast

from agents import FunctionTool, ToolOutputImageDict, ToolOutputTextDict, UserError
from agents.tool_context import ToolContext

from ringback.agents.call_state import CallState, CallStateKind
from ringback.client import Tool

TOOL_NAME_CHARACTERS_MAX: Final = 64
"""The Responses API allows 64 letters, digits, _ and -."""

NO_ARGUMENTS: Final = "{}"
ToolCallKey = tuple[str, str, str]
"""A tool call's id, the name of its tool and its arguments: agents that are tools may name their calls alike."""

_ended_calls: ContextVar[Mapping[ToolCallKey, CallState] | None] = ContextVar("ended_calls", default=None)
"""What the tools of the current run return."""


def build_tool_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:TOOL_NAME_CHARACTERS_MAX]


def build_tool(name: str, tool: Tool) -> FunctionTool:
    return FunctionTool(
        name=name,
        description=tool.description or "",
        params_json_schema={"properties": {}, **tool.input_schema},  # the API requires `properties`; MCP does not
        on_invoke_tool=_return_result,
        strict_json_schema=False,
        needs_approval=True,
    )


@contextmanager
def returning_results(states: Mapping[ToolCallKey, CallState]) -> Generator[None]:
    """Let the tools return what these calls have."""
    ended = _ended_calls.set(states)
    try:
        yield
    finally:
        _ended_calls.reset(ended)


async def _return_result(context: ToolContext[Any], arguments: str) -> Any:
    """The body of every tool: what the call of this tool call has."""
    key = context.tool_call_id, context.tool_name, arguments or NO_ARGUMENTS
    state = (_ended_calls.get() or {}).get(key)
    if state is None:
        raise UserError(f"The tool '{context.tool_name}' runs on Ringback: run its agent with DurableRunner.run.")
    return to_tool_output(state)


def parse_arguments(text: str) -> dict[str, Any]:
    """The arguments that a model has written. Raises `ValueError` if they are not a JSON object."""
    arguments = json.loads(text, parse_constant=_refuse_constant)
    if not isinstance(arguments, dict):
        raise ValueError("The arguments are not a JSON object.")  # noqa: TRY004 - as for what is not JSON
    return cast("dict[str, Any]", arguments)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON.")


def to_tool_output(state: CallState) -> str | ToolOutputTextDict | ToolOutputImageDict | list[Any]:
    """What a tool returns for an ended call: blocks as the SDK makes them of MCP's, or an error in the SDK's words."""
    if state.kind is not CallStateKind.RESULT or state.result is None:
        return f"An error occurred while running the tool. Error: {state.text}"
    blocks = [_to_block(block) for block in state.result.get("content") or ()]
    if not blocks:
        return json.dumps(state.result.get("structuredContent"), ensure_ascii=False)
    return blocks[0] if len(blocks) == 1 else blocks


def _to_block(block: Mapping[str, Any]) -> ToolOutputTextDict | ToolOutputImageDict:
    match block:
        case {"type": "text", "text": str(text)}:
            return ToolOutputTextDict(type="text", text=text)
        case {"type": "image", "data": str(data), "mimeType": str(media_type)}:
            return ToolOutputImageDict(type="image", image_url=f"data:{media_type};base64,{data}")
        case _:
            return ToolOutputTextDict(type="text", text=json.dumps(block, ensure_ascii=False))
