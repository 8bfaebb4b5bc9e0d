"""The plain driver over a session with scripted responses."""

from dataclasses import replace
from typing import Any

import pytest
from pydantic_core import from_json

from ringback.domain import jsontext
from ringback.domain.call import Progress
from ringback.domain.call_outcome import CallCompletion, CallOutcome
from ringback.domain.tool_result import ERROR_BYTES_MAX, PROGRESS_MESSAGE_LENGTH_MAX
from ringback.protocol.errors import (
    InvalidUpstreamResponse,
    RequestFailed,
    RequestNotSent,
    ResponseLost,
    SessionNotFound,
    UpstreamError,
    UpstreamUnavailable,
)
from ringback.runner.drivers.completions import RESULT_DEPTH_MAX
from ringback.runner.drivers.plain import PlainDriver
from tests.support.examples import CALL
from tests.support.recording_call_context import RecordingCallContext
from tests.support.scripted_sessions import ScriptedSession

TEXT = {"type": "text", "text": "done"}


async def run(session: ScriptedSession, **changes: Any) -> tuple[CallCompletion, list[Progress]]:
    context = RecordingCallContext(replace(CALL, **changes))
    return await PlainDriver().run_call(session, context), context.progress_reports


async def test_a_result_is_kept_unchanged() -> None:
    result = {
        "content": [TEXT, {"type": "hologram", "x": 1}],
        "structuredContent": [1],
        "_meta": {"ui": {"a": None}},
        "new": 1,
    }
    completion, _ = await run(ScriptedSession(result))

    assert completion.outcome is CallOutcome.RESULT
    assert completion.result == jsontext.dumps(result)


async def test_null_members_are_valid_and_not_kept() -> None:
    completion, _ = await run(ScriptedSession({"content": [TEXT], "_meta": None, "isError": None}))

    assert completion.outcome is CallOutcome.RESULT
    assert completion.result == jsontext.dumps({"content": [TEXT]})


async def test_a_tool_error_differs_from_a_protocol_error() -> None:
    completion, _ = await run(ScriptedSession({"content": [TEXT], "isError": True}))

    assert completion.outcome is CallOutcome.TOOL_ERROR


@pytest.mark.parametrize(
    ("meta", "kept"),
    [
        (
            {"io.modelcontextprotocol/serverInfo": {}, "openai/outputTemplate": "ui://x"},
            {"openai/outputTemplate": "ui://x"},
        ),
        ({"io.modelcontextprotocol/related-task": {"taskId": "1"}}, None),
    ],
)
async def test_reserved_keys_do_not_stay_in_a_result(meta: dict[str, Any], kept: dict[str, Any] | None) -> None:
    completion, _ = await run(ScriptedSession({"content": [TEXT], "_meta": meta}))

    assert completion.result is not None
    assert jsontext.loads(completion.result).get("_meta") == kept


@pytest.mark.parametrize("odd", [{}, {"content": None}])
async def test_a_result_with_structured_content_alone_is_a_result(odd: dict[str, Any]) -> None:
    """The tool has run, and its data is there. Large public servers send no text beside it."""
    completion, _ = await run(ScriptedSession({**odd, "structuredContent": {"price": 7}}))

    assert completion.outcome is CallOutcome.RESULT
    assert jsontext.loads(completion.result or b"") == {"content": [], "structuredContent": {"price": 7}}


@pytest.mark.parametrize(
    "result",
    [
        {},
        {"content": "text"},
        {"content": [1]},
        {"content": [{"text": "no type"}]},
        {"content": [], "isError": "yes"},
        {"content": [], "_meta": []},
        {"resultType": "task", "taskId": "1"},
        {"resultType": "input_required", "inputRequests": {}},
        {"content": [], "n": 10**300},
    ],
)
async def test_an_invalid_result_is_an_upstream_error(result: dict[str, Any]) -> None:
    completion, _ = await run(ScriptedSession(result))

    assert completion.outcome is CallOutcome.UPSTREAM_ERROR
    assert completion.result is None


async def test_a_result_that_requires_input_explains_why_the_call_failed() -> None:
    completion, _ = await run(ScriptedSession({"resultType": "input_required", "inputRequests": {}}))

    assert completion.error is not None
    assert "asks for input" in completion.error["message"]


@pytest.mark.requirement("R33")
@pytest.mark.parametrize(
    ("failure", "outcome"),
    [
        (RequestNotSent("refused"), CallOutcome.REJECTED),
        (SessionNotFound("forgotten"), CallOutcome.REJECTED),
        (ResponseLost("lost"), CallOutcome.UNKNOWN),
        (InvalidUpstreamResponse("garbage"), CallOutcome.UPSTREAM_ERROR),
        (UpstreamUnavailable("HTTP 502"), CallOutcome.UNKNOWN),
    ],
)
async def test_each_failure_has_its_outcome(failure: RequestFailed, outcome: CallOutcome) -> None:
    completion, _ = await run(ScriptedSession(failure))

    assert completion.outcome is outcome
    assert completion.error is not None
    assert completion.error["message"].startswith(str(failure))
    assert (completion.error["code"], completion.error["data"]) == (-32603, {"outcome": str(outcome)})
    assert ("may have run" in completion.error["message"]) is isinstance(failure, InvalidUpstreamResponse)


async def test_a_result_that_cannot_be_stored_is_no_reason_to_run_the_tool_again() -> None:
    too_deep: Any = []
    for _ in range(200):
        too_deep = [too_deep]
    for unstorable in (10**300, too_deep):
        completion, _ = await run(ScriptedSession({"content": [], "n": unstorable}))
        assert completion.error is not None
        assert "The tool has run" in completion.error["message"]
        assert "Do not call the tool again" in completion.error["message"]


@pytest.mark.parametrize("leaf", [1, [], {}, 2**70], ids=repr)
@pytest.mark.parametrize("is_object", [False, True])
async def test_a_result_is_stored_if_parsers_read_it_with_ten_levels_around(leaf: Any, is_object: bool) -> None:  # noqa: FBT001
    """The limit of the writer, which decides most cases, must not let one through."""
    for levels in range(RESULT_DEPTH_MAX - 3, RESULT_DEPTH_MAX + 3):
        nested: Any = leaf
        for _ in range(levels):
            nested = {"a": nested} if is_object else [nested]
        result: dict[str, Any] = {"content": [], "structuredContent": {"x": nested}}
        try:
            from_json(b"[" * 10 + jsontext.dumps(result) + b"]" * 10)
            is_read = True
        except ValueError:
            is_read = False

        completion, _ = await run(ScriptedSession(result))

        assert completion.result == (jsontext.dumps(result) if is_read else None)


async def test_the_error_object_of_the_upstream_is_kept_unchanged() -> None:
    error = {"code": -32042, "message": "no", "data": {"x": 1}}
    completion, _ = await run(ScriptedSession(UpstreamError(error)))

    assert (completion.outcome, completion.error) == (CallOutcome.UPSTREAM_ERROR, error)


async def test_an_upstream_that_is_a_ringback_and_does_not_know_the_outcome_leaves_it_unknown() -> None:
    error = {"code": -32603, "message": "lost", "data": {"outcome": "unknown", "call_id": f"call_{'0' * 26}"}}
    completion, _ = await run(ScriptedSession(UpstreamError(error)))

    assert completion.outcome is CallOutcome.UNKNOWN
    assert completion.error is not None
    assert completion.error["data"] == {"outcome": "unknown", "cause": error}
    assert "call_0" not in completion.error["message"], "the id of a call that this client cannot read"


async def test_an_unknown_outcome_stays_unknown_through_several_ringbacks_and_through_tasks() -> None:
    error: dict[str, Any] = {"code": -32603, "message": "lost", "data": {"outcome": "unknown"}}
    for _ in range(2):
        completion, _ = await run(ScriptedSession(UpstreamError(error)))
        assert (completion.outcome, completion.error and completion.error["data"]["cause"]) == ("unknown", error)
        assert completion.error is not None
        error = completion.error


OUTCOME_DATA = {"outcome": "unknown"}


@pytest.mark.parametrize(
    "error",
    [
        {"code": -32000, "data": OUTCOME_DATA},
        {"code": -32602, "data": {**OUTCOME_DATA, "call_id": f"call_{'0' * 26}"}},
        {"code": -32042, "data": OUTCOME_DATA},
        {"code": -32603, "data": {**OUTCOME_DATA, "ref": 77}},
        {"code": -32603, "data": {**OUTCOME_DATA, "call_id": "77"}},
        {"code": -32603, "data": {**OUTCOME_DATA, "call_id": [77]}},
        {"code": -32603, "data": {**OUTCOME_DATA, "cause": "network"}},
        {"code": -32603, "data": {"outcome": ["unknown"]}},
        {"code": -32603, "data": "unknown"},
    ],
    ids=str,
)
async def test_an_error_that_no_ringback_wrote_is_kept_whatever_its_data_calls_an_outcome(
    error: dict[str, Any],
) -> None:
    error = {"message": "Card network timed out", **error}
    completion, _ = await run(ScriptedSession(UpstreamError(error)))

    assert (completion.outcome, completion.error) == (CallOutcome.UPSTREAM_ERROR, error)


@pytest.mark.parametrize(
    "error",
    [
        {"message": "x" * ERROR_BYTES_MAX},
        {"message": "x", "data": 10**300},
        {"message": "x", "data": [0] * 20_000},
    ],
    ids=["long", "wide", "many values"],
)
async def test_an_error_that_is_too_large_is_replaced(error: dict[str, Any]) -> None:
    completion, _ = await run(ScriptedSession(UpstreamError({"code": 1, **error})))

    assert completion.error is not None
    assert "too large" in completion.error["message"]


async def test_arguments_and_meta_are_sent_unchanged() -> None:
    session = ScriptedSession({"content": []})
    await run(session, tool="log", arguments={"a": None}, meta={"vendor/key": 1})
    await run(session, tool="log", arguments={}, meta={})

    assert session.requests == [
        ("tools/call", {"name": "log", "arguments": {"a": None}, "_meta": {"vendor/key": 1}}),
        ("tools/call", {"name": "log", "arguments": {}}),
    ]


async def test_progress_is_finite_and_bounded() -> None:
    progress = ((float("nan"), None, None), (1, float("inf"), "x" * 5000), (2, 4, None))
    session = ScriptedSession({"content": []}, progress=progress)
    _, seen = await run(session)

    assert seen == [
        Progress(progress=1, total=None, message="x" * PROGRESS_MESSAGE_LENGTH_MAX),
        Progress(progress=2, total=4, message=None),
    ]
