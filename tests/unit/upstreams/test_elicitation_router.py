"""An elicitation reaches a call only if it is certain that the call asks."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import nullcontext, suppress
from contextvars import Context, copy_context
from typing import Any, Final

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import RequestId

from ringback.domain.principal import Principal
from ringback.protocol.errors import RequestFailed, RequestNotSent, ResponseLost, UpstreamError
from ringback.upstreams import elicitation_router
from ringback.upstreams.elicitation_router import (
    CallOwner,
    ElicitationReceiver,
    ElicitationRouter,
    get_receiver,
    leave_call_context,
    own_requests,
    receive_elicitations,
)

ALICE: Final = CallOwner(principal=Principal("alice"), client_session_id="s-1")
ALICE_ELSEWHERE: Final = CallOwner(principal=Principal("alice"), client_session_id="s-2")
BOB: Final = CallOwner(principal=Principal("bob"), client_session_id="s-1")
QUESTION: Final[Mapping[str, Any]] = {"message": "Really?"}


def question_of(task_id: str) -> Mapping[str, Any]:
    return {**QUESTION, "_meta": {"io.modelcontextprotocol/related-task": {"taskId": task_id}}}


class OpenCall:
    """A call with one open request, in a task of its own."""

    def __init__(
        self,
        router: ElicitationRouter,
        owner: CallOwner | None,
        method: str,
        params: Mapping[str, Any],
        *,
        accepts: bool,
        request_id: RequestId | None = None,
    ) -> None:
        self.request_id = request_id
        self._end: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        self.opened = asyncio.Event()
        self.task = asyncio.create_task(self._run(router, owner, method, params, accepts=accepts))
        self.context = Context()
        self.receiver: ElicitationReceiver | None = None

    async def end(self, result: Mapping[str, Any] | None = None, error: Exception | None = None) -> None:
        """End the request with a result or an error; without both, its caller abandons it."""
        if result is not None:
            self._end.set_result(result)
        elif error is not None:
            self._end.set_exception(error)
        else:
            self.task.cancel()
        await asyncio.wait([self.task])

    async def _run(
        self,
        router: ElicitationRouter,
        owner: CallOwner | None,
        method: str,
        params: Mapping[str, Any],
        *,
        accepts: bool,
    ) -> None:
        receiving = receive_elicitations(lambda _id, _request: None) if accepts else nullcontext()
        with (
            suppress(RequestFailed),
            own_requests(owner),
            receiving,
            router.track_request(method, params) as note_result,
        ):
            if self.request_id is not None:
                router.note_request_id(self.request_id)
            self.context, self.receiver = copy_context(), get_receiver()
            self.opened.set()
            note_result(await self._end)


class OpenCalls:
    """A session and its calls."""

    def __init__(self) -> None:
        self.router = ElicitationRouter()
        self.calls: list[OpenCall] = []

    async def open(
        self,
        owner: CallOwner | None = ALICE,
        method: str = "tools/call",
        *,
        accepts_input: bool = True,
        request_id: RequestId | None = None,
        **params: Any,
    ) -> OpenCall:
        self.calls.append(OpenCall(self.router, owner, method, params, accepts=accepts_input, request_id=request_id))
        await self.calls[-1].opened.wait()
        return self.calls[-1]

    async def create_task(self, task_id: str, owner: CallOwner = BOB) -> None:
        call = await self.open(owner, accepts_input=False)
        await call.end({"task": {"taskId": task_id}})


@pytest.fixture
async def session() -> AsyncGenerator[OpenCalls]:
    calls = OpenCalls()
    yield calls
    for call in calls.calls:
        call.task.cancel()
    await asyncio.gather(*(call.task for call in calls.calls), return_exceptions=True)


def refusal(router: ElicitationRouter, params: Mapping[str, Any] = QUESTION) -> str:
    with pytest.raises(MCPError) as refused:
        router.find_receiver(params)
    return refused.value.error.message


async def test_the_only_open_call_is_asked(session: OpenCalls) -> None:
    call = await session.open()
    await session.open(BOB, "tools/list")

    assert session.router.find_receiver(QUESTION) is call.receiver
    await call.end({"content": []})
    assert "cannot tell" in refusal(session.router)


@pytest.mark.parametrize("other", [ALICE, BOB, None])
async def test_one_of_two_open_calls_is_not_asked(session: OpenCalls, other: CallOwner | None) -> None:
    call = await session.open()
    neighbour = await session.open(other, "resources/read", accepts_input=False)

    assert "cannot tell" in refusal(session.router)
    await neighbour.end({})
    assert session.router.find_receiver(QUESTION) is call.receiver


async def test_on_the_stream_of_a_request_only_its_call_is_asked(session: OpenCalls) -> None:
    find, calls = session.router.find_receiver, [await session.open(), await session.open(BOB)]
    silent = await session.open(accepts_input=False)

    assert [each.context.run(find, QUESTION) for each in calls] == [each.receiver for each in calls]
    assert "does not accept input" in silent.context.run(refusal, session.router)
    assert silent.context.run(refusal, session.router).endswith(
        "over MCP, declare the capability elicitation or request a callback; over REST, start the call with accepts_input "
        "(ringback call --accepts-input)."
    )


async def test_a_call_without_input_and_an_ended_call_are_not_asked(session: OpenCalls) -> None:
    silent = await session.open(accepts_input=False)
    assert "does not accept input" in refusal(session.router)
    await silent.end({})

    ended = await session.open()
    await ended.end({"content": []})
    assert "does not accept input" in ended.context.run(refusal, session.router)


@pytest.mark.parametrize("failure", [None, ResponseLost("lost")], ids=["cancelled", "lost"])
@pytest.mark.parametrize(("owner", "is_asked"), [(ALICE, True), (ALICE_ELSEWHERE, False), (BOB, False), (None, False)])
async def test_after_an_abandoned_request_only_the_same_client_session_is_asked(
    session: OpenCalls, failure: Exception | None, owner: CallOwner | None, *, is_asked: bool
) -> None:
    abandoned = await session.open(ALICE)
    await abandoned.end(error=failure)
    following = await session.open(owner)

    if is_asked:
        assert session.router.find_receiver(QUESTION) is following.receiver
    else:
        assert "cannot tell" in refusal(session.router)


async def test_after_two_client_sessions_have_abandoned_requests_no_call_is_asked(session: OpenCalls) -> None:
    for owner in (ALICE, BOB, ALICE_ELSEWHERE):
        await (await session.open(owner)).end()
    await session.open(ALICE)

    assert "cannot tell" in refusal(session.router)


@pytest.mark.parametrize(("sent", "received"), [(7, 7), (7, "7"), ("a-1", "a-1")], ids=["number", "text", "name"])
async def test_a_response_to_an_abandoned_request_ends_the_doubt(
    session: OpenCalls, sent: RequestId, received: RequestId
) -> None:
    await (await session.open(BOB, request_id=sent)).end()
    following = await session.open(ALICE, request_id=8)
    session.router.note_response(9)
    assert "cannot tell" in refusal(session.router)

    session.router.note_response(received)
    assert session.router.find_receiver(QUESTION) is following.receiver


async def test_a_response_that_arrives_while_its_request_is_cancelled_leaves_no_doubt(session: OpenCalls) -> None:
    answered = await session.open(BOB, request_id=7)
    session.router.note_response(7)
    await answered.end()
    following = await session.open(ALICE, request_id=8)

    assert session.router.find_receiver(QUESTION) is following.receiver


async def test_the_doubt_about_more_abandoned_requests_than_are_remembered_stays(
    session: OpenCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elicitation_router, "ABANDONED_REQUESTS_MAX", 1)
    for request_id in (1, 2):
        await (await session.open(BOB, request_id=request_id)).end()
    for request_id in (1, 2):
        session.router.note_response(request_id)
    await session.open(ALICE)

    assert "cannot tell" in refusal(session.router)


@pytest.mark.parametrize("failure", [RequestNotSent("down"), UpstreamError({"code": -32000, "message": "no"})])
async def test_a_request_that_was_not_sent_or_was_answered_leaves_no_doubt(
    session: OpenCalls, failure: Exception
) -> None:
    await (await session.open(BOB)).end(error=failure)
    following = await session.open(ALICE)

    assert session.router.find_receiver(QUESTION) is following.receiver


# -- tasks ------------------------------------------------------------------------------------------------------------------


async def test_a_related_task_names_the_call(session: OpenCalls) -> None:
    for task_id in ("t-1", "t-2"):
        await session.create_task(task_id)
    alice = await session.open(ALICE, "tasks/result", taskId="t-1")
    bob = await session.open(BOB, "tasks/get", taskId="t-2")
    await session.open(BOB)

    assert session.router.find_receiver(question_of("t-1")) is alice.receiver
    assert session.router.find_receiver(question_of("t-2")) is bob.receiver
    assert "cannot tell" in refusal(session.router, question_of("t-3"))
    assert "cannot tell" in refusal(session.router)


async def test_the_only_task_is_asked_without_its_name(session: OpenCalls) -> None:
    await session.create_task("t-1", ALICE)
    call = await session.open(ALICE, "tasks/result", taskId="t-1")

    assert session.router.find_receiver(QUESTION) is call.receiver


@pytest.mark.parametrize(
    ("method", "result", "is_open"),
    [
        ("tasks/get", {"status": "working"}, True),
        ("tasks/get", {"status": ["completed"]}, True),
        ("tasks/get", {"status": "completed"}, False),
        ("tasks/cancel", {"status": "cancelled"}, False),
        ("tasks/result", {"content": []}, False),
    ],
)
async def test_a_task_may_ask_until_it_has_ended(
    session: OpenCalls, method: str, result: Mapping[str, Any], *, is_open: bool
) -> None:
    await session.create_task("t-1", BOB)
    request = await session.open(BOB, method, taskId="t-1")
    await request.end(result)
    following = await session.open(ALICE)

    assert request.task.exception() is None
    if is_open:
        assert "cannot tell" in refusal(session.router)
    else:
        assert session.router.find_receiver(QUESTION) is following.receiver


async def test_a_task_that_is_forgotten_counts_as_abandoned(
    session: OpenCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elicitation_router, "TASKS_MAX", 1)
    for task_id in ("t-1", "t-2"):
        await session.create_task(task_id, BOB)
    await (await session.open(BOB, "tasks/get", taskId="t-2")).end({"status": "completed"})
    await session.open(ALICE)

    assert "cannot tell" in refusal(session.router)


# -- receivers --------------------------------------------------------------------------------------------------------------


async def test_a_closed_receiver_leaves_its_open_elicitations_unanswered() -> None:
    received: list[tuple[str, Any]] = []
    receiver = ElicitationReceiver(lambda request_id, request: received.append((request_id, request)))
    waiting = asyncio.create_task(receiver.wait_for_answer("7", QUESTION))
    await asyncio.sleep(0)

    assert not receiver.answer("8", {})
    receiver.close()
    with pytest.raises(MCPError, match="left this connection"):
        await waiting
    receiver.withdraw("7")
    assert not receiver.answer("7", {})
    assert received == [("7", QUESTION)]


async def test_a_session_that_a_call_opens_does_not_belong_to_the_call(session: OpenCalls) -> None:
    call = await session.open()
    await session.open(BOB)

    def open_session() -> str:
        leave_call_context()
        return refusal(session.router)

    assert "cannot tell" in call.context.run(open_session)
