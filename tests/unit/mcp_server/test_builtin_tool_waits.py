"""A model waits for its calls, answers their questions and cancels them with the built-in tools."""

import asyncio

import pytest

from ringback.domain.call import Progress
from ringback.mcp_server.builtin_tools.poll_limiter import UNCHANGED_POLLS_MAX
from ringback.mcp_server.builtin_tools.tool_schemas import TOOL_WAIT_SECONDS_MAX
from ringback.services.calls.call_starts import StartCallRequest
from tests.support.builtin_tools import ALICE, BuiltinToolsHarness, text
from tests.support.limits import WAIT_SECONDS

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


async def test_a_model_that_polls_without_a_change_is_advised_to_end_its_turn_or_to_wait_longer(
    harness: BuiltinToolsHarness,
) -> None:
    call_id = await harness.start()
    for _ in range(UNCHANGED_POLLS_MAX - 1):
        observed = await harness.call_tool("ringback_get_call", call_id=call_id)
        assert "found no change" not in text(observed)

    returned = await harness.call_tool("ringback_get_call", call_id=call_id)

    assert "found no change" in text(returned)
    assert "with a larger wait_seconds" in returned["structuredContent"]["next_step"]


async def test_a_wait_after_many_polls_without_a_change_still_lasts_until_the_call_ends(
    harness: BuiltinToolsHarness,
) -> None:
    """Most servers report no progress: a client that waited again and again, as advised, got each response at once."""
    call_id = await harness.start()
    for _ in range(UNCHANGED_POLLS_MAX + 1):
        await harness.call_tool("ringback_get_call", call_id=call_id)

    waiting = asyncio.create_task(
        harness.call_tool("ringback_wait_for_call", call_id=call_id, wait_seconds=TOOL_WAIT_SECONDS_MAX)
    )
    await asyncio.sleep(0)
    await harness.service.finish_call(call_id)

    ended = await asyncio.wait_for(waiting, WAIT_SECONDS)
    assert ended["structuredContent"]["status"] == "completed"


async def test_a_change_resets_the_poll_limit(harness: BuiltinToolsHarness) -> None:
    call_id = await harness.start()
    for _ in range(UNCHANGED_POLLS_MAX):
        await harness.call_tool("ringback_get_call", call_id=call_id)

    await harness.service.mark_dispatched(call_id)
    await harness.service.record_progress(call_id, Progress(progress=1))
    observed = await harness.call_tool("ringback_get_call", call_id=call_id)
    await harness.service.finish_call(call_id)
    ended = await harness.call_tool("ringback_get_call", call_id=call_id)

    assert "found no change" not in text(observed)
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
