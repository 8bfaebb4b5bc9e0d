"""Ringback's own tools at work: what a model can do about its calls when its client speaks neither tasks nor webhooks.

Whatever goes wrong is a tool result with `isError` that says what to do: a model reads results, and JSON-RPC errors often never
reach it. What is foreign and what is unknown answer with the same words.
"""

from collections.abc import Mapping
from typing import Any, Final, cast

from pydantic import ValidationError

from ringback.domain import jsontext
from ringback.domain.call import Call, Status
from ringback.domain.call_rows import CallFilter
from ringback.domain.clock import iso
from ringback.domain.cursor import List, decode_id, encode, encode_place
from ringback.domain.errors import NotFound, RingbackError
from ringback.domain.event import Event
from ringback.domain.principal import Caller
from ringback.mcp_server import meta
from ringback.mcp_server.call_words import call_details, call_summary, told
from ringback.mcp_server.exchange import Exchange
from ringback.mcp_server.gateway import Feature, Gateway, OwnTool
from ringback.mcp_server.own_tool_list import (
    ARGUMENTS,
    TOOLS,
    AnswerCall,
    Arguments,
    CancelCall,
    GetCall,
    ListCalls,
    ResumeCall,
    ToolName,
    WaitForCall,
)
from ringback.mcp_server.polling import Looks
from ringback.mcp_server.refusals import refused_result
from ringback.services.answers import Answers
from ringback.services.calls import Calls
from ringback.services.resume import Resume

MISTAKES_MAX: Final = 5
"""Told of one request; whoever makes more wants to see the first ones."""
UNKNOWN_CALL: Final = "No call of yours has this id. Find it with ringback_list_calls."


def feature(gateway: Gateway) -> Feature:
    tools = OwnTools(calls=gateway.calls, answers=gateway.answers, resume=gateway.resume, looks=Looks())
    return Feature(tools=[_offered(tools, name) for name in ToolName])


def _offered(tools: "OwnTools", name: ToolName) -> OwnTool:
    async def handle(exchange: Exchange, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return await tools.call(exchange.caller, name, arguments)

    return OwnTool(definition=TOOLS[name], handler=handle)


class OwnTools:
    def __init__(self, *, calls: Calls, answers: Answers, resume: Resume, looks: Looks) -> None:
        self._calls = calls
        self._answers = answers
        self._resume = resume
        self._looks = looks

    async def call(self, caller: Caller, name: ToolName, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """A CallToolResult, as JSON."""
        try:
            return await self._do(caller, ARGUMENTS[name].model_validate(arguments))
        except ValidationError as problem:
            return refused_result(f"Nothing was done. {_mistakes(problem)}")
        except RingbackError as problem:
            return refused_result(problem.detail)

    async def _do(self, caller: Caller, asked: Arguments) -> dict[str, Any]:
        match asked:
            case ListCalls():
                return await self._list(caller, asked)
            case ResumeCall():
                return await self._take_up(caller, asked)
            case _:
                return await self._about_one(caller, asked)

    async def _about_one(self, caller: Caller, asked: Arguments) -> dict[str, Any]:
        try:
            match asked:
                case GetCall():
                    return await self._look(caller, asked.call_id, wait_seconds=0.0)
                case WaitForCall():
                    return await self._look(caller, asked.call_id, wait_seconds=asked.wait_seconds)
                case CancelCall():
                    return await self._shown(caller, await self._calls.cancel(caller, asked.call_id))
                case _:
                    return await self._answer(caller, cast("AnswerCall", asked))
        except NotFound:
            raise NotFound(UNKNOWN_CALL) from None

    async def _look(self, caller: Caller, call_id: str, *, wait_seconds: float) -> dict[str, Any]:
        call = await self._calls.get(caller, call_id)
        stop = self._looks.tired(caller.principal, call)
        if wait_seconds > 0 and not stop and call.status is Status.WORKING:
            call = await self._calls.get(caller, call_id, wait_seconds=wait_seconds)
        return await self._shown(caller, call)

    async def _shown(self, caller: Caller, call: Call) -> dict[str, Any]:
        result = None
        if call.result_bytes is not None:
            call, result = await self._calls.result(caller, call.id)
        return self._looked_at(caller, call, result)

    def _looked_at(self, caller: Caller, call: Call, result: bytes | None, **more: Any) -> dict[str, Any]:
        self._looks.count(caller.principal, call)
        stop = self._looks.tired(caller.principal, call)
        details = {**call_details(call, result, stop=stop), **more}
        return meta.labelled(_given(told(call, stop=stop), details, result), call)

    async def _answer(self, caller: Caller, asked: AnswerCall) -> dict[str, Any]:
        answered = await self._answers.answer(caller, asked.call_id, asked.responses)
        words = [told(answered.call)]
        if answered.ignored:
            words.append(f"These keys are not asked, or not any more: {', '.join(answered.ignored)}.")
        details = call_details(answered.call, None)
        details |= {"accepted": list(answered.accepted), "ignored": list(answered.ignored)}
        return meta.labelled(_given("\n".join(words), details), answered.call)

    async def _take_up(self, caller: Caller, asked: ResumeCall) -> dict[str, Any]:
        resumed = await self._resume.resume(caller, asked.resume_token, wait_seconds=asked.wait_seconds)
        return self._looked_at(
            caller,
            resumed.call,
            resumed.result,
            events=[_event(event) for event in resumed.events],
            truncated=resumed.truncated,
            resume_token=resumed.resume_token,
        )

    async def _list(self, caller: Caller, asked: ListCalls) -> dict[str, Any]:
        where = CallFilter(
            client_session_id=asked.client_session_id,
            correlation_id=asked.correlation_id,
            status=asked.status,
            upstream=asked.upstream,
            tool=asked.tool,
        )
        found = await self._calls.page(caller, where, before=decode_id(List.CALLS, asked.cursor), limit=asked.limit)
        calls = [call_summary(call) for call in found]
        more = None if found.next_place is None else encode(List.CALLS, found.next_place)
        page = {"calls": calls, "next_cursor": more}
        return _given(jsontext.dumps(page).decode(), page)


def _event(event: Event) -> dict[str, Any]:
    return {
        "eventId": event.id,
        "name": str(event.name),
        "timestamp": iso(event.created_at),
        "cursor": encode_place(event.place),
        "data": dict(event.data),
    }


def _given(text: str, structured: Mapping[str, Any], result: bytes | None = None) -> dict[str, Any]:
    """Our words first, then the tool's own content as it came, so that images stay images."""
    content: list[Any] = [] if result is None else jsontext.loads(result)["content"]
    return {
        "content": [{"type": "text", "text": text}, *content],
        "structuredContent": dict(structured),
        "isError": False,
    }


def _mistakes(problem: ValidationError) -> str:
    """Where and what, never the value: it may be a secret."""
    found = problem.errors(include_input=False, include_url=False, include_context=False)
    told_of = [f"{'.'.join(str(part) for part in one['loc'])[:100]}: {one['msg']}." for one in found[:MISTAKES_MAX]]
    return " ".join(told_of) + " Correct this and call the tool again."
