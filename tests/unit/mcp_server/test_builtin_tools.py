"""A model lists, reads and finds its calls with the built-in tools."""

import json
from datetime import timedelta
from typing import Any

import jsonschema
import pytest

from ringback.domain.call import Progress
from ringback.domain.call_outcome import CallOutcome, completion_from_result, failed_completion
from ringback.domain.clock import format_iso
from ringback.domain.principal import DEFAULT_SCOPES, Caller, Principal, Scope
from ringback.mcp_server.builtin_tools.tool_schemas import TOOL_DEFINITIONS, BuiltinToolName
from ringback.services.calls.call_starts import StartCallRequest
from tests.support.builtin_tools import ALICE, BuiltinToolsHarness, text

MALLORY = Caller(principal=Principal("mallory"), scopes=DEFAULT_SCOPES)
UNKNOWN = "call_01JZZZZZZZZZZZZZZZZZZZZZZZ"
REFUSAL = b'{"content":[{"type":"text","text":"No paint left."}],"isError":true}'
COUNT = b'{"content":[],"structuredContent":{"count":3}}'
PICTURE = b'{"content":[{"type":"image","data":"aGk=","mimeType":"image/png"}],"isError":false}'


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


async def test_a_scheduled_call_says_when_it_starts(harness: BuiltinToolsHarness) -> None:
    starts_at = harness.service.clock.now() + timedelta(hours=1)
    call_id = await harness.start(not_before=starts_at)

    observed = await harness.call_tool("ringback_get_call", call_id=call_id)
    listed = await harness.call_tool("ringback_list_calls")

    assert observed["structuredContent"]["not_before"] == format_iso(starts_at)
    assert listed["structuredContent"]["calls"][0]["not_before"] == format_iso(starts_at)
    assert f"it starts at {format_iso(starts_at)}. It needs nothing" in text(observed)


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


async def test_calls_that_wait_to_start_are_listed_apart_from_those_that_run(harness: BuiltinToolsHarness) -> None:
    waiting, running = await harness.start(), await harness.start()
    await harness.service.mark_dispatched(running)

    for started, expected in ((False, waiting), (True, running)):
        page = await harness.call_tool("ringback_list_calls", status="working", started=started)
        (call,) = page["structuredContent"]["calls"]
        assert (call["call_id"], call.get("waits_for")) == (expected, None if started else "queue")


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
