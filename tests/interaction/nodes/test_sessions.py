"""A legacy session goes on at whichever node its next request reaches."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest

from ringback.domain.call import Call
from ringback.domain.errors import QuotaExceeded, RingbackError, StoreUnavailable, Unavailable
from ringback.domain.ids import CallId
from ringback.domain.mcp_sessions import McpSession
from ringback.domain.principal import Caller
from ringback.mcp_server import resumed_calls, session_notifications
from ringback.mcp_server.elicitation import ELICITATION_TIMEOUT_SECONDS
from ringback.mcp_server.request_context import RequestContext
from ringback.mcp_server.subscriptions import LegacySubscriptions, SyncSubscriptionsParams
from ringback.services.calls.call_starts import StartCallRequest
from ringback.services.calls.calls import Calls
from ringback.services.calls.new_calls import StartedCall
from ringback.services.mcp_sessions import McpSessions
from tests.interaction.nodes.conftest import Site
from tests.support.asking_upstream import AskingUpstream
from tests.support.engine import wait_until
from tests.support.limits import WAIT_SECONDS
from tests.support.mcp_wire import Json, JsonRpcMessages, LegacyClientSession, ModernClient, legacy_session
from tests.support.nodes import Cluster, Node, running_cluster
from tests.support.resource_upstream import NOTE_URI, ResourceUpstream
from tests.support.upstreams import make_http_config, serving

pytestmark = [pytest.mark.requirement("R34"), pytest.mark.requirement("R35")]
PATIENT: dict[str, Any] = {"inline_wait_seconds": 40.0}
HOLD: Json = {"name": "hold", "arguments": {}}


@dataclass(slots=True)
class LateStart:
    """The starts of all nodes, which wait for `may_start`. `refusals` gets what each one raises."""

    may_start: asyncio.Event
    refusals: asyncio.Queue[RingbackError | None]


@pytest.fixture
def late_start(monkeypatch: pytest.MonkeyPatch) -> LateStart:
    monkeypatch.setattr(resumed_calls, "OTHER_NODE_PAUSES", ())
    start_call, late = Calls.start_call, LateStart(asyncio.Event(), asyncio.Queue())

    async def start_late(self: Calls, caller: Caller, request: StartCallRequest) -> StartedCall:
        await late.may_start.wait()
        try:
            started = await start_call(self, caller, request)
        except RingbackError as error:
            late.refusals.put_nowait(error)
            raise
        late.refusals.put_nowait(None)
        return started

    monkeypatch.setattr(Calls, "start_call", start_late)
    return late


@pytest.fixture
async def http() -> AsyncGenerator[httpx.AsyncClient]:
    async with httpx.AsyncClient(timeout=WAIT_SECONDS) as client:
        yield client


@asynccontextmanager
async def open_session(
    http: httpx.AsyncClient, cluster: Cluster, node: Node, path: str
) -> AsyncGenerator[LegacyClientSession]:
    key = await cluster.create_key("alice")
    async with legacy_session(http, f"{node.url}{path}", key=key) as session:
        yield session


def at(node: Node, session: LegacyClientSession) -> LegacyClientSession:
    """The same session, with its requests sent to this node."""
    return replace(session, url=f"{node.url}/mcp{session.url.partition('/mcp')[2]}")


async def test_a_session_goes_on_at_another_node_and_ends_at_all_of_them(site: Site, http: httpx.AsyncClient) -> None:
    first, second = await site.cluster.start_node(), await site.cluster.start_node()
    async with open_session(http, site.cluster, first, "/mcp/stage") as session:
        for node in (second, first, second):
            tools = (await at(node, session).request("tools/list", {}))["tools"]
            assert "echo" in {tool["name"] for tool in tools}

        assert (await http.delete(at(second, session).url, headers=session.headers)).status_code == 200

        async def is_unknown() -> bool:
            body: Json = {"jsonrpc": "2.0", "id": 99, "method": "ping", "params": {}}
            return (await http.post(session.url, headers=session.headers, json=body)).status_code == 404

        await wait_until(is_unknown)


async def test_a_lost_stream_follows_its_call_to_another_node(site: Site, http: httpx.AsyncClient) -> None:
    first = await site.cluster.start_node(**PATIENT)
    second = await site.cluster.start_node(**PATIENT)
    async with open_session(http, site.cluster, first, "/mcp/stage") as session:
        last_event_id = await lose_stream(http, session)
        await asyncio.wait_for(site.stage.wait_until_held(1), WAIT_SECONDS)
        site.stage.release.set()

        headers = {**session.headers, "last-event-id": last_event_id}
        async with http.stream("GET", at(second, session).url, headers=headers) as resumed:
            text = "".join([line async for line in resumed.aiter_lines() if '"id":7' in line])

    assert '"result"' in text
    assert len(site.stage.calls) == 1


async def test_a_start_that_is_slower_than_its_clients_return_to_another_node_runs_nothing(
    site: Site, http: httpx.AsyncClient, late_start: LateStart
) -> None:
    """The client is advised to send the request again: the first sending would run the tool a second time."""
    answer, refusal = await return_to_another_node(site, http, late_start)

    assert "has started no call" in answer
    assert isinstance(refusal, Unavailable)
    assert site.stage.calls == []


async def test_a_start_is_given_up_also_if_the_store_and_the_rate_of_starts_refuse_that_at_first(
    site: Site, http: httpx.AsyncClient, late_start: LateStart, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client read that nothing was started, and the start that was not given up ran the tool later."""
    give_up_start, problems = (
        Calls.give_up_start,
        [StoreUnavailable("away"), QuotaExceeded("too many starts", retry_after_seconds=1)],
    )

    async def refuse_first(self: Calls, caller: Caller, call_id: CallId) -> Call | None:
        if problems:
            raise problems.pop()
        return await give_up_start(self, caller, call_id)

    monkeypatch.setattr(Calls, "give_up_start", refuse_first)
    monkeypatch.setattr(resumed_calls, "STORE_PAUSE_SECONDS", 0.01)
    answer, refusal = await return_to_another_node(site, http, late_start)

    assert "has started no call" in answer
    assert isinstance(refusal, Unavailable)
    assert (problems, site.stage.calls) == ([], [])


async def return_to_another_node(
    site: Site, http: httpx.AsyncClient, late_start: LateStart
) -> tuple[str, RingbackError | None]:
    """What a client reads that lost its stream before its call was started, and what the start raises after that."""
    first, second = await site.cluster.start_node(**PATIENT), await site.cluster.start_node(**PATIENT)
    async with open_session(http, site.cluster, first, "/mcp/stage") as session:
        event_id = await lose_stream(http, session)
        answer = await http.get(at(second, session).url, headers={**session.headers, "last-event-id": event_id})
        late_start.may_start.set()
        refusal = await asyncio.wait_for(late_start.refusals.get(), WAIT_SECONDS)
        site.stage.release.set()
    return answer.text, refusal


async def lose_stream(http: httpx.AsyncClient, session: LegacyClientSession) -> str:
    """Send a tools/call and close the connection at its first event. Returns the id of that event."""
    body: Json = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": HOLD}
    async with http.stream("POST", session.url, json=body, headers=session.headers) as response:
        async for line in response.aiter_lines():
            if line.startswith("id:"):
                return line.removeprefix("id:").strip()
    raise AssertionError("the stream has no event")


async def test_a_legacy_cancellation_reaches_the_request_that_waits_at_another_node(
    site: Site, http: httpx.AsyncClient
) -> None:
    first, second = await site.cluster.start_node(**PATIENT), await site.cluster.start_node(**PATIENT)
    async with open_session(http, site.cluster, first, "/mcp/stage") as session:
        waiting = asyncio.create_task(session.request("tools/call", HOLD))
        await asyncio.wait_for(site.stage.wait_until_held(1), WAIT_SECONDS)

        await at(second, session).cancel_request(session.last_id)

        await asyncio.wait_for(site.stage.cancelled.wait(), WAIT_SECONDS)
        waiting.cancel()
        await asyncio.wait({waiting})


async def test_notifications_that_may_be_lost_cancel_no_request_and_end_no_login(
    site: Site, http: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    """A node that listens again cannot know what was sent meanwhile. Its waiters read the store; nothing else happens."""
    caplog.set_level(logging.INFO)
    node = await site.cluster.start_node(**PATIENT)
    async with open_session(http, site.cluster, node, "/mcp/stage") as session:
        waiting = asyncio.create_task(session.request("tools/call", HOLD))
        await asyncio.wait_for(site.stage.wait_until_held(1), WAIT_SECONDS)

        with node.ringback.app.store.signals.listen("any") as waiter:
            await cut_listeners(site.cluster.database_url)
            assert await waiter.wait(WAIT_SECONDS)
        await session.request("tools/list", {})  # by now a cancellation would have been sent
        site.stage.release.set()
        result = await asyncio.wait_for(waiting, WAIT_SECONDS)

    assert not result["isError"]
    assert not site.stage.cancelled.is_set()
    assert "upstream.login_changed" not in caplog.messages


async def cut_listeners(url: str) -> None:
    """End the connections by which nodes get notifications."""
    admin = await asyncpg.connect(url)
    await admin.fetch(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name = 'ringback notifications'"
    )
    await admin.close()


async def test_a_modern_cancellation_reaches_the_request_that_waits_at_another_node(
    site: Site, http: httpx.AsyncClient
) -> None:
    first, second = await site.cluster.start_node(**PATIENT), await site.cluster.start_node(**PATIENT)
    key = await site.cluster.create_key("alice")
    header = {"ringback-cancel-key": "esc-1"}
    waiting = asyncio.create_task(
        ModernClient(http, f"{first.url}/mcp/stage", key=key).request("tools/call", HOLD, declare={}, headers=header)
    )
    await asyncio.wait_for(site.stage.wait_until_held(1), WAIT_SECONDS)

    await ModernClient(http, f"{second.url}/mcp/stage", key=key).request("ringback/cancelRequest", {}, headers=header)

    await asyncio.wait_for(site.stage.cancelled.wait(), WAIT_SECONDS)
    waiting.cancel()
    await asyncio.wait({waiting})


@asynccontextmanager
async def ask_at_one_node(
    folder: Path, http: httpx.AsyncClient
) -> AsyncGenerator[tuple[LegacyClientSession, JsonRpcMessages, Json]]:
    """The session at another node than that of the waiting request, the messages of that request, and its question."""
    asking = AskingUpstream()
    async with serving(asking.app()) as server, running_cluster(folder, make_http_config(server.url)) as cluster:
        first, second = await cluster.start_node(**PATIENT), await cluster.start_node(**PATIENT)
        async with open_session(http, cluster, first, "/mcp/stage") as session:
            ask = {"name": "ask", "arguments": {"question": "Which colour?"}}
            async with session.open_request("tools/call", ask) as messages:
                yield at(second, session), messages, await messages.read_message("elicitation/create")


async def test_a_question_on_the_stream_of_one_node_is_answered_at_another(
    tmp_path: Path, http: httpx.AsyncClient
) -> None:
    async with ask_at_one_node(tmp_path, http) as (other, messages, question):
        await other.send_response(question, {"action": "accept", "content": {"answer": "blue"}})
        result = await messages.read_response()

    assert "blue" in result["content"][0]["text"]


@pytest.fixture
def endless_question(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but an answer ends the wait for one."""
    wait_for_call = Calls.wait_for_call

    async def wait(self: Calls, *call: Any, wait_seconds: float, until_final: bool = True) -> Any:
        if wait_seconds == ELICITATION_TIMEOUT_SECONDS:
            await asyncio.Event().wait()
        return await wait_for_call(self, *call, wait_seconds=wait_seconds, until_final=until_final)

    monkeypatch.setattr(Calls, "wait_for_call", wait)


@pytest.mark.usefixtures("endless_question")
@pytest.mark.parametrize(
    "answer",
    [
        {"result": {"action": "accept", "content": {"answer": 5}}},
        {"result": {"nonsense": True}},
        {"error": {"code": -32601, "message": "Not here"}},
    ],
    ids=["of another form than was asked for", "no answer", "an error"],
)
async def test_an_answer_that_another_node_refuses_ends_the_wait_for_it(
    tmp_path: Path, http: httpx.AsyncClient, answer: Json
) -> None:
    """As at the node that asks. The client had 202, and its call waited for the answer until the end of its time."""
    async with ask_at_one_node(tmp_path, http) as (other, messages, question):
        message: Json = {"jsonrpc": "2.0", "id": question["id"], **answer}
        posted = await http.post(other.url, json=message, headers=other.headers)
        result = await messages.read_response()

    assert posted.status_code == 202
    assert result["structuredContent"]["ringback_pending"]["status"] == "input_required"


async def test_a_subscription_that_is_made_at_one_node_reports_on_the_stream_of_another(
    tmp_path: Path, http: httpx.AsyncClient
) -> None:
    notes = ResourceUpstream()
    async with serving(notes.app()) as server, running_cluster(tmp_path, make_http_config(server.url)) as cluster:
        first, second = await cluster.start_node(), await cluster.start_node()
        async with open_session(http, cluster, first, "/mcp/stage") as session, session.open_event_stream() as stream:
            await at(second, session).request("resources/subscribe", {"uri": NOTE_URI})
            await notes.wait_until(lambda: len(notes.subscribed) == 2)  # each node has an upstream session of its own
            await notes.publish_resource_change()
            changed = await stream.read_message("notifications/resources/updated")

    assert changed["params"]["uri"] == NOTE_URI


async def test_a_reading_of_a_session_that_takes_long_does_not_undo_a_later_subscription(
    tmp_path: Path, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream opens, and its node reads the session. A client that subscribed meanwhile was told of no change."""
    has_read, may_follow, readings = asyncio.Event(), asyncio.Event(), 0
    find_session = McpSessions.find_session

    async def find_slowly(self: McpSessions, caller: Caller, session_id: str, endpoint: str) -> McpSession | None:
        nonlocal readings
        readings += 1
        found = await find_session(self, caller, session_id, endpoint)
        if not has_read.is_set():
            has_read.set()
            await may_follow.wait()
        return found

    notes, followed, has_followed = ResourceUpstream(), list[list[str]](), asyncio.Event()
    sync_subscriptions = LegacySubscriptions.sync_subscriptions

    async def sync_and_note(
        self: LegacySubscriptions, context: RequestContext, params: SyncSubscriptionsParams
    ) -> Mapping[str, Any]:
        result = await sync_subscriptions(self, context, params)
        followed.append(params.uris)
        if len(followed) == 2:
            has_followed.set()
        return result

    monkeypatch.setattr(LegacySubscriptions, "sync_subscriptions", sync_and_note)
    async with serving(notes.app()) as server, running_cluster(tmp_path, make_http_config(server.url)) as cluster:
        node = await cluster.start_node()
        async with open_session(http, cluster, node, "/mcp/stage") as session:
            monkeypatch.setattr(McpSessions, "find_session", find_slowly)
            async with session.open_event_stream() as stream, asyncio.timeout(WAIT_SECONDS):
                await has_read.wait()
                await session.request("resources/subscribe", {"uri": NOTE_URI})
                await session.request("tools/list", {})
                assert readings == 1
                may_follow.set()
                await has_followed.wait()
                await notes.publish_resource_change()
                changed = await stream.read_message("notifications/resources/updated")

    assert followed == [[], [NOTE_URI]]
    assert changed["params"]["uri"] == NOTE_URI


async def test_a_subscription_that_found_no_place_at_a_node_is_followed_there_once_it_has_one(
    tmp_path: Path, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_notifications, "PRINCIPAL_PUBLISHERS_MAX", 2)  # one of each session is for lists
    notes, synced = ResourceUpstream(), asyncio.Event()
    sync_subscriptions = LegacySubscriptions.sync_subscriptions

    async def sync_and_note(
        self: LegacySubscriptions, context: RequestContext, params: SyncSubscriptionsParams
    ) -> Mapping[str, Any]:
        result = await sync_subscriptions(self, context, params)
        if params.uris:
            synced.set()
        return result

    monkeypatch.setattr(LegacySubscriptions, "sync_subscriptions", sync_and_note)
    async with serving(notes.app()) as server, running_cluster(tmp_path, make_http_config(server.url)) as cluster:
        first, second = await cluster.start_node(), await cluster.start_node()
        async with open_session(http, cluster, first, "/mcp/stage") as session:
            async with open_session(http, cluster, first, "/mcp/stage"):
                await at(second, session).request("resources/subscribe", {"uri": NOTE_URI})
                async with asyncio.timeout(WAIT_SECONDS):
                    await synced.wait()
                assert len(notes.subscribed) == 1
            async with session.open_event_stream():
                await notes.wait_until(lambda: len(notes.subscribed) == 2)
