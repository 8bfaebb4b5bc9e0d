"""The built-in tools of a running service, called as a model calls them."""

from dataclasses import dataclass
from typing import Any

import jsonschema

from ringback.domain.call import Call
from ringback.domain.principal import DEFAULT_SCOPES, Caller, Principal
from ringback.mcp_server.builtin_tools.call_tools import CallTools
from ringback.mcp_server.builtin_tools.tool_schemas import TOOL_DEFINITIONS, BuiltinToolName
from ringback.services.calls.call_starts import StartCallRequest
from ringback.services.calls.calls import Calls
from tests.support.service import ServiceUnderTest

ALICE = Caller(principal=Principal("alice"), scopes=DEFAULT_SCOPES)


@dataclass(frozen=True, slots=True)
class SilentWait:
    """The wait of a client without a progress token."""

    calls: Calls
    caller: Caller

    def choose_seconds(self, requested_seconds: float | None) -> float:
        return requested_seconds or 0.0

    async def wait_for_change(self, call: Call, *, wait_seconds: float) -> Call:
        return await self.calls.get_call(self.caller, call.id, wait_seconds=wait_seconds)


@dataclass(frozen=True, slots=True)
class BuiltinToolsHarness:
    service: ServiceUnderTest
    tools: CallTools

    async def start(self, caller: Caller = ALICE, **request: Any) -> str:
        started = await self.service.services.calls.start_call(
            caller, StartCallRequest(upstream="git", tool="git_status", **request)
        )
        return started.call.id

    async def call_tool(self, name: str, caller: Caller = ALICE, **arguments: Any) -> dict[str, Any]:
        """The tool's result, always validated against its outputSchema."""
        tool = BuiltinToolName(name)
        wait = SilentWait(self.service.services.calls, caller)
        result = await self.tools.call_tool(caller, tool, arguments, wait=wait, reserve_result=lambda _: None)
        if not result["isError"]:
            jsonschema.validate(result["structuredContent"], TOOL_DEFINITIONS[tool]["outputSchema"])
        return result


def text(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])
