"""A 2025-11-25 server asks on the connection of the call. `answer_input` answers it, in the process that follows the call."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ringback.client.durable import AnswerInput, CallFailed, CallHandle, DurableCaller, McpTarget, SQLiteRequestState
from ringback.client.models import InputRequest
from tests.support.durable_calls import request_call
from tests.support.legacy_upstream import ACCEPTED_ANSWER, LegacyUpstream
from tests.support.limits import WAIT_SECONDS
from tests.support.upstreams import HttpServer, serving


class Person:
    def __init__(self) -> None:
        self.asked: list[tuple[CallHandle, InputRequest]] = []
        self.answer: Mapping[str, Any] = ACCEPTED_ANSWER

    async def answer_input(self, handle: CallHandle, request: InputRequest) -> Mapping[str, Any]:
        self.asked.append((handle, request))
        return self.answer


def create_caller(server: HttpServer, folder: Path, answer_input: AnswerInput | None) -> DurableCaller:
    target = McpTarget(server.url, answer_input=answer_input)
    return DurableCaller(target, state=SQLiteRequestState(folder / "calls.db"))


async def ask_once(upstream: LegacyUpstream, folder: Path, answer_input: AnswerInput | None) -> Any:
    """The result of the tool `ask`."""
    upstream.release.set()
    async with (
        asyncio.timeout(WAIT_SECONDS),
        serving(upstream.app()) as server,
        create_caller(server, folder, answer_input) as caller,
    ):
        return await caller.join_call_tool(await request_call(caller, "ask"))


async def test_a_question_on_the_stream_of_a_call_is_answered(tmp_path: Path) -> None:
    upstream, person = LegacyUpstream(), Person()

    assert await ask_once(upstream, tmp_path, person.answer_input) is not None

    ((asked_for, request),) = person.asked
    assert (asked_for.tool, request.params["message"]) == ("ask", "Really?")
    assert [answer.content for answer in upstream.answers] == [ACCEPTED_ANSWER["content"]]


async def test_a_question_of_a_legacy_task_is_answered_by_another_caller(tmp_path: Path) -> None:
    upstream, person = LegacyUpstream(), Person()
    async with serving(upstream.app()) as server, asyncio.timeout(WAIT_SECONDS):
        async with create_caller(server, tmp_path, person.answer_input) as caller:
            handle = await request_call(caller, "long")
        task = await upstream.wait_for_task()
        task.status = "input_required"
        async with create_caller(server, tmp_path, person.answer_input) as caller:
            joining = asyncio.create_task(caller.join_call_tool(handle))
            await upstream.wait_until(lambda: upstream.answers)
            task.end_task()
            result = await joining

    assert result is not None
    assert len(person.asked) == 1


@pytest.mark.parametrize("answer", [{"action": "perhaps"}, None])
async def test_an_answer_that_is_none_reaches_the_server_as_an_error(
    tmp_path: Path, answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    upstream, person = LegacyUpstream(), Person()
    person.answer = answer

    with pytest.raises(CallFailed, match="could not ask a person"):
        await ask_once(upstream, tmp_path, person.answer_input)

    assert "returned no ElicitResult" in caplog.text


async def test_a_person_who_cannot_be_asked_is_an_error_for_the_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(_handle: CallHandle, _request: InputRequest) -> Mapping[str, Any]:
        raise ConnectionError("the chat is down")

    with pytest.raises(CallFailed, match="could not ask a person"):
        await ask_once(LegacyUpstream(), tmp_path, fail)

    assert "the chat is down" in caplog.text


async def test_a_server_learns_of_no_elicitation_that_no_client_answers(tmp_path: Path) -> None:
    upstream = LegacyUpstream()

    with pytest.raises(CallFailed):
        await ask_once(upstream, tmp_path, None)

    assert upstream.answers == []
