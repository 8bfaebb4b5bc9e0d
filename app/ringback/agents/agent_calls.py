"""The Ringback side of every adapter: starts an agent's tool calls, and reads how they stand."""

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any, Final, TypedDict

from ringback.agents.call_state import CallState, CallStateKind, build_call_state, has_readable_result
from ringback.client import (
    Call,
    CallbackOptions,
    Conflict,
    Forbidden,
    Gone,
    InvalidArgument,
    InvalidRequest,
    NotFound,
    RingbackClient,
    Tool,
)
from ringback.client.arguments import check_json

log = logging.getLogger(__name__)

IDEMPOTENCY_PREFIX: Final = "agent-"
JOINED_CALLS_MAX: Final = 100
"""Calls of one `RingbackClient.wait_all`."""
INVALID_ARGUMENTS: Final = (InvalidRequest, InvalidArgument)
"""The arguments do not fit the tool, or are not JSON: a model may write NaN, or half of a character."""
REFUSALS: Final = (*INVALID_ARGUMENTS, NotFound, Forbidden)
"""Why a call was not started and never will be: invalid arguments, an unknown tool or upstream, a missing permission. The model
reads the text. After other errors a repeat may start it."""


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
        """Raises `InvalidArgument` for options that are not JSON: raised by a start, it would go to the model."""
        check_json({**(options or {})})
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

        A call that is found keeps the options with which it was started. Raises one of `REFUSALS`, whose text a model can read;
        nothing has started then. Any other error of the client means that the call may not have started; parking it again is
        safe.
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
        except Gone:
            return await _build_state(self._client, "", None, with_result=False)
        except Conflict as conflict:
            call = await self._find_started_call(conflict, tool, client_session_id, tool_call_id)
        else:
            call = started.call
        return await _build_state(self._client, call.id, call, with_result=True)

    async def _find_started_call(
        self, conflict: Conflict, tool: str, client_session_id: str, tool_call_id: str
    ) -> Call:
        """The call of this tool call that was started with another callback URL, such as by an earlier version of the agent.

        The idempotency key has all that distinguishes tool calls, and the list does not have the arguments. So if several calls
        could be meant, the conflict is raised.
        """
        found: list[Call] = []
        listing = self._client.calls(
            client_session_id=client_session_id, correlation_id=tool_call_id, upstream=self.upstream, tool=tool
        )
        async with aclosing(listing):
            async for call in listing:
                found.append(call)
                if len(found) > 1:
                    break
        if len(found) != 1:
            raise conflict
        log.warning("The call %s was started with another callback URL, and keeps it", found[0].id)
        return found[0]


async def read_call_state(client: RingbackClient, call_id: str, *, with_result: bool = True) -> CallState:
    """How a call stands now, by default with its result. An expired call has failed. Raises `NotFound`."""
    call = await _read_call(client, call_id)
    return await _build_state(client, call_id, call, with_result=with_result)


async def read_call_states(client: RingbackClient, call_ids: Sequence[str]) -> dict[str, CallState]:
    """By id, how calls stand now, read in one request for each 100. An expired call has failed. Raises `NotFound`.

    Results may be large, and are read once all of the calls have ended.
    """
    calls: dict[str, Call | None] = {}
    for start in range(0, len(call_ids), JOINED_CALLS_MAX):
        calls |= await _read_calls(client, call_ids[start : start + JOINED_CALLS_MAX])
    are_final = all(call is None or call.final for call in calls.values())
    return {
        call_id: await _build_state(client, call_id, call, with_result=are_final) for call_id, call in calls.items()
    }


async def _read_calls(client: RingbackClient, call_ids: Sequence[str]) -> dict[str, Call | None]:
    """By id; None for an expired call."""
    try:
        return {call.id: call for call in await client.wait_all(call_ids, timeout_seconds=0)}
    except Gone:  # one of them has expired, and the error does not say which
        return {call_id: await _read_call(client, call_id) for call_id in call_ids}


async def _read_call(client: RingbackClient, call_id: str) -> Call | None:
    try:
        return await client.call(call_id)
    except Gone:
        return None


async def _build_state(client: RingbackClient, call_id: str, call: Call | None, *, with_result: bool) -> CallState:
    try:
        if call is not None:
            result = await client.result(call_id) if with_result and has_readable_result(call) else None
            return build_call_state(call, result)
    except Gone:
        pass
    text = "The tool's call ended, and its result has expired. Call the tool again if you need the result."
    long_ago = datetime.min.replace(tzinfo=UTC)
    return CallState(kind=CallStateKind.FAILED, call_id=call_id, text=text, changed_at=long_ago, is_expired=True)


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
