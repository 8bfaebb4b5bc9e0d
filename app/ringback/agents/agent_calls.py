"""The Ringback side of every adapter: starts an agent's tool calls, and reads how they stand."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypedDict

from ringback.agents.call_state import CallState, CallStateKind, build_call_state, has_readable_result
from ringback.client import Call, CallbackOptions, Gone, RingbackClient, Tool

IDEMPOTENCY_PREFIX: Final = "agent-"


class ParkOptions(TypedDict, total=False):
    """Options of the calls that an agent parks."""

    callback: CallbackOptions
    """Where the call's callback goes. Without it, the webhooks that you registered receive it."""
    timeout_seconds: float
    """The call's deadline, from its start. Default: the service's."""
    accepts_input: bool
    """Whether a person can answer the tool's questions. Default: no, and a tool that asks gets an error."""
    rerun_policy: str
    """never | if_safe | always: whether the tool may run again when it is unknown whether it ran."""


class AgentCalls:
    """The calls of agents to the tools of one upstream."""

    def __init__(self, client: RingbackClient, upstream: str, options: ParkOptions | None = None) -> None:
        self._client = client
        self._options: ParkOptions = options or {}
        self.upstream = upstream

    async def list_tools(self, names: Sequence[str] | None = None) -> Sequence[Tool]:
        """The upstream's tools, or those with these names; raises `ValueError` with the unknown ones."""
        tools = await self._client.tools(self.upstream)
        if names is None:
            return tools
        if unknown := set(names) - {tool.name for tool in tools}:
            known = ", ".join(tool.name for tool in tools)
            raise ValueError(
                f"The upstream '{self.upstream}' has no tool {', '.join(sorted(unknown))}. It has: {known}"
            )
        return [tool for tool in tools if tool.name in names]

    async def park(
        self, tool: str, arguments: Mapping[str, Any], *, client_session_id: str, tool_call_id: str
    ) -> CallState:
        """Start the call, or find it if this tool call has started it before. It may have ended, and its result expired.

        Raises `InvalidRequest`, whose text a model can read, for unknown tools and invalid arguments; nothing has started then.
        Any other error of the client means that the call may not have started; parking it again is safe.
        """
        try:
            started = await self._client.start_call(
                self.upstream,
                tool,
                arguments,
                client_session_id=client_session_id,
                correlation_id=tool_call_id,
                idempotency_key=derive_idempotency_key(client_session_id, tool_call_id, self.upstream, tool, arguments),
                **self._options,
            )
            return await _add_result(self._client, started.call)
        except Gone:
            return _build_expired_state("")


async def read_call_state(client: RingbackClient, call_id: str) -> CallState:
    """How a call stands now, with its result if it has one. An expired call has failed. Raises `NotFound`."""
    try:
        return await _add_result(client, await client.call(call_id))
    except Gone:
        return _build_expired_state(call_id)


def _build_expired_state(call_id: str) -> CallState:
    text = "The tool's call ended, and its result has expired. Call the tool again if you need the result."
    return CallState(kind=CallStateKind.FAILED, call_id=call_id, text=text)


async def _add_result(client: RingbackClient, call: Call) -> CallState:
    result = await client.result(call.id) if has_readable_result(call) else None
    return build_call_state(call, result)


def derive_idempotency_key(
    client_session_id: str, tool_call_id: str, upstream: str, tool: str, arguments: Mapping[str, Any]
) -> str:
    """The same key for the same tool call of the same conversation, in any process.

    The tool and its arguments are in it because some models name the first tool call of every response alike. If such a model
    repeats a call within a conversation, it gets the result of the first one.
    """
    parts = [client_session_id, tool_call_id, upstream, tool, arguments]
    text = json.dumps(parts, sort_keys=True, ensure_ascii=True, default=str)
    return IDEMPOTENCY_PREFIX + hashlib.sha256(text.encode()).hexdigest()
