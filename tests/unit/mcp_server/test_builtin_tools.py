"""A model manages its calls with the built-in tools."""

import asyncio
import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from ringback.domain.call import Call, Progress
from ringback.domain.call_outcome import CallOutcome, completion_from_result, failed_completion
from ringback.domain.principal import DEFAULT_SCOPES, Caller, Principal, Scope
from ringback.mcp_server.builtin_tool_schemas import TOOL_DEFINITIONS, TOOL_WAIT_SECONDS_MAX, BuiltinToolName
from ringback.mcp_server.builtin_tools import BuiltinToolHandler
from ringback.mcp_server.poll_limiter import UNCHANGED_POLLS_MAX, PollLimiter
from ringback.services.call_starts import StartCallRequest
from ringback.services.calls import Calls
from tests.support.limits import WAIT_SECONDS
from tests.support.service import ServiceUnderTest, running_service

ALICE = Caller(principal=Principal("alice"), scopes=DEFAULT_SCOPES)
MALLORY = Caller(principal=Principal("mallory"), scopes=DEFAULT_SCOPES)
UNKNOWN = "call_01JZZZZZZZZZZZZZZZZZZZZZZZ"
REFUSAL = b'{"content":[{"type":"text","text":"No paint left."}],"isError":true}'
COUNT = b'{"content":[],"structuredContent":{"count":3}}'
PICTURE = b'{"content":[{"type":"image","data":"aGk=","mimeType":"image/png"}],"isError":false}'


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
    tools: BuiltinToolHandler

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


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncGenerator[BuiltinToolsHarness]:
    async with running_service(tmp_path) as service:
        behind = service.services
        tools = BuiltinToolHandler(
            calls=behind.calls,
            input_answers=behind.input_answers,
            resume=behind.call_resumption,
            call_resumes=behind.call_resumes,
            poll_limiter=PollLimiter(),
            is_paused=behind.upstream_controls.is_paused,
        )
        yield BuiltinToolsHarness(service, tools)


def text(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


# -- the list --------------------------------------------------------------------------------------------------------------


def test_each_builtin_tool_describes_its_input_its_output_and_its_effects() -> None:
    listed = {tool["name"]: tool for tool in TOOL_DEFINITIONS.values()}

    assert list(listed) == [str(tool) for tool in BuiltinToolName]
    for tool in listed.values():
        jsonschema.Draft202012Validator.check_schema(tool["inputSchema"])
        jsonschema.Draft202012Validator.check_schema(tool["outputSchema"])
        assert tool["inputSchema"]["type"] == tool["outputSchema"]["type"] == "object"
        assert "$ref" not in json.dumps(tool["inputSchema"])
    looking = {name for name, tool in listed.items() if tool["annotations"]["readOnlyHint"]}
    assert looking == {"ringback_get_call", "ringback_wait_for_call", "ringback_resume", "ringback_list_calls"}


# -- polling ---------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R19")
async def test_a_running_call_is_returned_with_its_labels_and_progress(harness: BuiltinToolsHarness) -> None:
    call_id = await harness.start(client_session_id="session-1", correlation_id="report-1")
    await harness.service.mark_dispatched(call_id)
    await harness.service.record_progress(call_id, Progress(progress=3, total=10, message="counting"))

    observed = await harness.call_tool("ringback_get_call", call_id=call_id)

    returned = observed["structuredContent"]
    assert (returned["status"], returned["client_session_id"], returned["correlation_id"]) == (
        "working",
        "session-1",
        "report-1",
    )
    assert returned["progress"] == {"progress": 3, "total": 10, "message": "counting"}
    assert observed["_meta"] == {
        "ringback/callId": call_id,
        "ringback/clientSessionId": "session-1",
        "ringback/correlationId": "report-1",
    }
    assert "Progress 3 of 10: counting" in text(observed)
    assert "continues in the background" in text(observed)


async def test_an_ended_call_returns_the_tools_own_content_unchanged(harness: BuiltinToolsHarness) -> None:
    call_id = await harness.start()
    await harness.service.finish_call(call_id, completion_from_result(PICTURE, is_error=False))

    observed = await harness.call_tool("ringback_get_call", call_id=call_id)

    assert observed["content"][:-1] == json.loads(PICTURE)["content"]
    assert "Status: completed" in observed["content"][-1]["text"]
    assert observed["structuredContent"]["result"] == json.loads(PICTURE)
    assert observed["structuredContent"]["outcome"] == "result"
    assert observed["isError"] is False


@pytest.mark.parametrize("tool", ["ringback_get_call", "ringback_wait_for_call"])
async def test_an_error_of_the_tool_is_an_error_and_precedes_our_words(harness: BuiltinToolsHarness, tool: str) -> None:
    call_id = await harness.start()
    await harness.service.finish_call(call_id, completion_from_result(REFUSAL, is_error=True))

    observed = await harness.call_tool(tool, call_id=call_id)

    assert observed["isError"]
    assert observed["content"][0] == {"type": "text", "text": "No paint left."}
    assert "reports an error" in observed["content"][1]["text"]


async def test_a_result_without_content_is_shown_by_its_structured_content(harness: BuiltinToolsHarness) -> None:
    call_id = await harness.start()
    await harness.service.finish_call(call_id, completion_from_result(COUNT, is_error=False))

    observed = await harness.call_tool("ringback_get_call", call_id=call_id)

    assert observed["content"][0] == {"type": "text", "text": '{"count":3}'}


async def test_cancelling_a_call_that_has_failed_is_no_error(harness: BuiltinToolsHarness) -> None:
    call_id = await harness.start()
    await harness.service.finish_call(call_id, failed_completion(CallOutcome.UNKNOWN, "The runner died."))

    assert (await harness.call_tool("ringback_cancel_call", call_id=call_id))["isError"] is False


async def test_a_call_that_may_have_run_says_so(harness: BuiltinToolsHarness) -> None:
    call_id = await harness.start()
    await harness.service.finish_call(call_id, failed_completion(CallOutcome.UNKNOWN, "The runner died."))

    observed = await harness.call_tool("ringback_get_call", call_id=call_id)

    assert observed["isError"]
    assert "may have run" in text(observed)
    assert observed["structuredContent"]["error"]["data"] == {"outcome": "unknown"}


@pytest.mark.parametrize("tool", ["ringback_get_call", "ringback_wait_for_call", "ringback_cancel_call"])
async def test_a_foreign_call_gets_the_error_of_an_unknown_one(harness: BuiltinToolsHarness, tool: str) -> None:
    call_id = await harness.start()

    foreign = await harness.call_tool(tool, MALLORY, call_id=call_id)
    unknown = await harness.call_tool(tool, MALLORY, call_id=UNKNOWN)

    assert foreign == unknown
    assert foreign["isError"]
    assert "ringback_list_calls" in text(foreign)
    assert (await harness.service.read_call(call_id)).cancel_requested is False


# -- waiting ---------------------------------------------------------------------------------------------------------------


async def test_a_wait_ends_with_the_call(harness: BuiltinToolsHarness) -> None:
    call_id = await harness.start()

    waiting = asyncio.create_task(
        harness.call_tool("ringback_wait_for_call", call_id=call_id, wait_seconds=TOOL_WAIT_SECONDS_MAX)
    )
    await harness.service.finish_call(call_id)
    observed = await asyncio.wait_for(waiting, WAIT_SECONDS)

    assert observed["structuredContent"]["status"] == "completed"


async def test_a_wait_that_is_over_leaves_the_call_running(harness: BuiltinToolsHarness) -> None:
    call_id = await harness.start()

    observed = await harness.call_tool("ringback_wait_for_call", call_id=call_id, wait_seconds=0.01)

    assert observed["structuredContent"]["status"] == "working"


async def test_an_input_request_ends_a_wait_at_once_and_is_returned(harness: BuiltinToolsHarness) -> None:
    call_id = await harness.start(accepts_input=True)
    await harness.service.request_input(call_id, "colour")

    observed = await asyncio.wait_for(
        harness.call_tool("ringback_wait_for_call", call_id=call_id, wait_seconds=TOOL_WAIT_SECONDS_MAX), WAIT_SECONDS
    )

    assert "r1.1: colour?" in text(observed)
    assert observed["structuredContent"]["input_requests"]["r1.1"]["method"] == "elicitation/create"


@pytest.mark.requirement("R16")
async def test_a_model_that_polls_without_a_change_is_asked_to_stop_and_gets_responses_at_once(
    harness: BuiltinToolsHarness,
) -> None:
    call_id = await harness.start()
    for _ in range(UNCHANGED_POLLS_MAX - 1):
        observed = await harness.call_tool("ringback_get_call", call_id=call_id)
        assert "Stop polling" not in text(observed)

    returned = await harness.call_tool("ringback_get_call", call_id=call_id)
    again = await asyncio.wait_for(
        harness.call_tool("ringback_wait_for_call", call_id=call_id, wait_seconds=TOOL_WAIT_SECONDS_MAX), WAIT_SECONDS
    )

    for observed in (returned, again):
        assert "Stop polling" in text(observed)
        assert "Come back after a callback" in observed["structuredContent"]["next_step"]


async def test_a_change_resets_the_poll_limit(harness: BuiltinToolsHarness) -> None:
    call_id = await harness.start()
    for _ in range(UNCHANGED_POLLS_MAX):
        await harness.call_tool("ringback_get_call", call_id=call_id)

    await harness.service.mark_dispatched(call_id)
    await harness.service.record_progress(call_id, Progress(progress=1))
    observed = await harness.call_tool("ringback_get_call", call_id=call_id)
    await harness.service.finish_call(call_id)
    ended = await harness.call_tool("ringback_get_call", call_id=call_id)

    assert "Stop polling" not in text(observed)
    assert ended["structuredContent"]["status"] == "completed"


# -- answering and cancelling ----------------------------------------------------------------------------------------------


@pytest.mark.requirement("R32")
async def test_an_answer_resumes_the_call_and_lists_unknown_keys(harness: BuiltinToolsHarness) -> None:
    call_id = await harness.start(accepts_input=True)
    await harness.service.request_input(call_id, "colour")
    yes = {"action": "accept", "content": {"colour": "red"}}

    returned = await harness.call_tool("ringback_answer_call", call_id=call_id, responses={"r1.1": yes, "r9.9": yes})

    assert returned["structuredContent"]["accepted"] == ["r1.1"]
    assert returned["structuredContent"]["ignored"] == ["r9.9"]
    assert (await harness.service.read_call(call_id)).input_responses == {"colour": yes}


async def test_an_invalid_answer_is_refused_with_the_polling_tool(harness: BuiltinToolsHarness) -> None:
    call_id = await harness.start(accepts_input=True)
    await harness.service.request_input(call_id, "colour")

    returned = await harness.call_tool("ringback_answer_call", call_id=call_id, responses={"r1.1": {"colour": "red"}})

    assert returned["isError"]
    assert '"action": "accept"' in text(returned)


async def test_an_answer_that_does_not_match_its_question_is_refused_with_the_place(
    harness: BuiltinToolsHarness,
) -> None:
    call_id = await harness.start(accepts_input=True)
    schema = {"type": "object", "properties": {"colour": {"type": "string"}}}
    before = await harness.service.request_input(call_id, "colour", schema=schema)

    wrong = {"r1.1": {"action": "accept", "content": {"colour": 5}}}
    returned = await harness.call_tool("ringback_answer_call", call_id=call_id, responses=wrong)

    assert returned["isError"]
    assert "#/responses/r1.1/content/colour: 5 is not of type" in text(returned)
    assert await harness.service.read_call(call_id) == before


async def test_a_queued_call_is_cancelled_at_once_and_a_running_one_gets_a_request(
    harness: BuiltinToolsHarness,
) -> None:
    queued, running = await harness.start(), await harness.start()
    await harness.service.mark_dispatched(running)

    ended = await harness.call_tool("ringback_cancel_call", call_id=queued)
    requested = await harness.call_tool("ringback_cancel_call", call_id=running)

    assert ended["structuredContent"]["status"] == "cancelled"
    assert requested["structuredContent"]["cancel_requested"] is True
    assert "Cancellation is requested" in text(requested)


# -- resuming and finding --------------------------------------------------------------------------------------------------


async def test_a_token_from_a_callback_returns_the_result_the_events_and_a_new_token(
    harness: BuiltinToolsHarness,
) -> None:
    started = await harness.service.services.calls.start_call(
        ALICE, StartCallRequest(upstream="git", tool="git_status")
    )
    await harness.service.finish_call(started.call.id)

    returned = await harness.call_tool("ringback_resume", resume_token=started.resume_token)
    again = await harness.call_tool("ringback_resume", resume_token=returned["structuredContent"]["resume_token"])

    assert returned["content"][0]["text"] == "done"
    assert [event["name"] for event in returned["structuredContent"]["events"]] == ["call.finished"]
    assert again["structuredContent"]["events"] == []


async def test_an_input_request_ends_the_wait_of_a_resume_too(harness: BuiltinToolsHarness) -> None:
    started = await harness.service.services.calls.start_call(
        ALICE, StartCallRequest(upstream="git", tool="git_status", accepts_input=True)
    )
    await harness.service.request_input(started.call.id, "colour")

    returned = await asyncio.wait_for(
        harness.call_tool("ringback_resume", resume_token=started.resume_token, wait_seconds=TOOL_WAIT_SECONDS_MAX),
        WAIT_SECONDS,
    )

    assert "r1.1: colour?" in text(returned)
    assert [event["name"] for event in returned["structuredContent"]["events"]] == ["call.input_required"]


async def test_a_resume_token_names_a_call_and_does_not_authenticate(harness: BuiltinToolsHarness) -> None:
    started = await harness.service.services.calls.start_call(
        ALICE, StartCallRequest(upstream="git", tool="git_status")
    )

    foreign = await harness.call_tool("ringback_resume", MALLORY, resume_token=started.resume_token)
    forged = await harness.call_tool("ringback_resume", MALLORY, resume_token="e30.forged")

    assert foreign == forged
    assert foreign["isError"]


async def test_calls_are_found_by_the_clients_labels_page_by_page(harness: BuiltinToolsHarness) -> None:
    mine = [await harness.start(client_session_id="session-1") for _ in range(3)]
    await harness.start(client_session_id="session-2")
    await harness.start(MALLORY, client_session_id="session-1")

    first = (await harness.call_tool("ringback_list_calls", client_session_id="session-1", limit=2))[
        "structuredContent"
    ]
    rest = await harness.call_tool(
        "ringback_list_calls", client_session_id="session-1", limit=2, cursor=first["next_cursor"]
    )

    found = [call["call_id"] for call in [*first["calls"], *rest["structuredContent"]["calls"]]]
    assert sorted(found) == sorted(mine)
    assert rest["structuredContent"]["next_cursor"] is None


# -- bad arguments ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "arguments", "place"),
    [
        ("ringback_get_call", {}, "call_id"),
        ("ringback_get_call", {"call_id": "x" * 65}, "call_id"),
        ("ringback_get_call", {"call_id": UNKNOWN, "verbose": True}, "verbose"),
        ("ringback_wait_for_call", {"call_id": UNKNOWN, "wait_seconds": 61}, "wait_seconds"),
        ("ringback_wait_for_call", {"call_id": UNKNOWN, "wait_seconds": "long"}, "wait_seconds"),
        ("ringback_answer_call", {"call_id": UNKNOWN, "responses": {}}, "responses"),
        ("ringback_resume", {"resume_token": "x" * 1025}, "resume_token"),
        ("ringback_list_calls", {"status": "done"}, "status"),
        ("ringback_list_calls", {"cursor": "bm90IG91cnM"}, "cursor"),
        ("ringback_list_calls", {"limit": 51}, "limit"),
    ],
)
async def test_invalid_arguments_are_refused_with_their_location(
    harness: BuiltinToolsHarness, tool: str, arguments: dict[str, Any], place: str
) -> None:
    returned = await harness.call_tool(tool, **arguments)

    assert returned["isError"]
    assert place in text(returned)


async def test_a_secret_among_invalid_arguments_is_not_repeated(harness: BuiltinToolsHarness) -> None:
    returned = await harness.call_tool("ringback_resume", resume_token="sesame" * 200)

    assert "sesamesesame" not in text(returned)


async def test_a_key_without_the_scope_gets_the_missing_scope(harness: BuiltinToolsHarness) -> None:
    reader = Caller(principal=Principal("alice"), scopes=frozenset({Scope.READ}))
    call_id = await harness.start()

    returned = await harness.call_tool("ringback_cancel_call", reader, call_id=call_id)

    assert returned["isError"]
    assert "scope 'calls'" in text(returned)
