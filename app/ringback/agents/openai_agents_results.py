"""What a tool of the OpenAI Agents SDK returns for an ended call."""

import json
from collections.abc import Mapping
from typing import Any

from agents import ToolOutputImageDict, ToolOutputTextDict

from ringback.agents.call_state import CallState, CallStateKind


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
