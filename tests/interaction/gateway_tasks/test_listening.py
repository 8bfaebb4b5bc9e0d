"""What clients are told unasked: on the stream of a listen request, and in sessions of before."""

import json
from pathlib import Path

import httpx
import pytest

from ringback.domain.errors import Unavailable
from ringback.domain.principal import ALL_SCOPES, Caller, Principal
from ringback.mcp_server import listening, telling
from tests.interaction.gateway_tasks.conftest import House
from tests.support.application import running_application
from tests.support.engine import until
from tests.support.limits import WAIT_SECONDS
from tests.support.mcp_wire import TASKS, Json, Modern, Refused, Session
from tests.support.resource_stage import NOTE
from tests.support.serving import serving

ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
UPDATED = "notifications/resources/updated"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
OPERATOR = Caller(principal=Principal("operator"), scopes=ALL_SCOPES)
UNKNOWN = "call_00000000000000000000000000"

pytestmark = pytest.mark.requirement("R20")


async def acknowledged(modern: Modern, notifications: Json) -> Json:
    async with modern.listening(notifications) as stream:
        first = await stream.next()
        assert first["method"] == ACKNOWLEDGED
        honoured: Json = first["params"]["notifications"]
        return honoured


@pytest.mark.requirement("R30")
async def test_a_task_is_told_as_it_is_and_as_it_changes_exactly_as_it_would_be_answered(
    house: House, modern: Modern
) -> None:
    task_id, task = await house.begun()
    async with modern.listening({"taskIds": [task_id]}) as stream:
        first = await stream.next()
        assert (first["method"], first["params"]["notifications"]) == (ACKNOWLEDGED, {"taskIds": [task_id]})
        now = await stream.next()
        assert (now["method"], now["params"]["status"]) == ("notifications/tasks", "working")
        task.complete("done")
        ended = await stream.next(where=lambda told: told["status"] == "completed", method="notifications/tasks")
        answered = await modern.result("tasks/get", {"taskId": task_id})
    about = ended["params"].pop("_meta")
    assert about[SUBSCRIPTION] == first["params"]["_meta"][SUBSCRIPTION]
    assert about["ringback/callId"] == task_id
    assert ended["params"] == {key: value for key, value in answered.items() if key not in {"_meta", "resultType"}}


@pytest.mark.requirement("R30")
@pytest.mark.requirement("R25")
async def test_only_the_callers_own_tasks_are_accepted(house: House, modern: Modern) -> None:
    task_id, _ = await house.begun()
    theirs, _ = await house.begun(principal="bob")
    assert await acknowledged(modern, {"taskIds": [theirs, UNKNOWN, task_id, "nonsense", task_id]}) == {
        "taskIds": [task_id]
    }
    assert await acknowledged(modern, {"taskIds": [theirs]}) == {}


@pytest.mark.must("M21")
async def test_listening_to_tasks_takes_the_extension(house: House, modern: Modern) -> None:
    task_id, _ = await house.begun()
    async with modern.listening({"taskIds": [task_id]}, declare={}) as stream:
        with pytest.raises(Refused) as refused:
            await stream.answer()
    assert (refused.value.code, refused.value.status) == (-32021, 400)
    assert refused.value.data == {"requiredCapabilities": {"extensions": {TASKS: {}}}}


async def test_a_stream_that_cannot_go_on_says_so_and_that_it_may_be_opened_again(
    house: House, modern: Modern, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unavailable(*_: object) -> Json:
        raise Unavailable("The store cannot be read.")

    monkeypatch.setattr(listening, "detailed", unavailable)
    task_id, _ = await house.begun()
    async with modern.listening({"taskIds": [task_id]}) as stream:
        with pytest.raises(Refused) as refused:
            await stream.answer()
    assert (refused.value.code, refused.value.message) == (-32000, "The store cannot be read.")


async def test_what_is_no_list_of_texts_is_refused(modern: Modern) -> None:
    for wanted in ({"taskIds": "x"}, {"taskIds": [7]}, {"resourceSubscriptions": 7}):
        async with modern.listening(wanted) as stream:
            with pytest.raises(Refused) as refused:
                await stream.answer()
        assert refused.value.code == -32602


async def test_a_stream_accepts_only_so_many_tasks(
    house: House, modern: Modern, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "LISTENED_MAX", 1)
    first, _ = await house.begun()
    second, _ = await house.begun()
    assert await acknowledged(modern, {"taskIds": [first, second]}) == {"taskIds": [first]}


@pytest.mark.requirement("R15")
async def test_the_resource_of_a_call_is_told_when_it_changes(house: House, modern: Modern) -> None:
    task_id, task = await house.begun()
    uri = f"ringback://calls/{task_id}"
    async with modern.listening({"resourceSubscriptions": [uri]}) as stream:
        first = await stream.next()
        assert first["params"]["notifications"] == {"resourceSubscriptions": [uri]}
        task.complete("done")
        assert (await stream.next(UPDATED))["params"]["uri"] == uri
    (read,) = (await modern.result("resources/read", {"uri": uri}))["contents"]
    assert json.loads(read["text"])["result"]["content"] == [{"type": "text", "text": "done"}]


@pytest.mark.requirement("R25")
async def test_the_resource_of_somebody_elses_call_is_not_accepted(house: House) -> None:
    task_id, _ = await house.begun()
    bob = await house.modern("bob")
    assert await acknowledged(bob, {"resourceSubscriptions": [f"ringback://calls/{task_id}"]}) == {}


async def test_a_resource_of_the_upstreams_is_told_when_it_changes(house: House) -> None:
    modern = await house.modern(upstream="notes")
    async with modern.listening({"resourceSubscriptions": [NOTE]}) as stream:
        first = await stream.next()
        assert first["params"]["notifications"] == {"resourceSubscriptions": [NOTE]}
        await house.notes.change()
        assert (await stream.next(UPDATED))["params"]["uri"] == NOTE
    await house.notes.until(lambda: not house.notes.watched)


async def test_where_all_upstreams_are_joined_their_resources_and_lists_are_told_too(house: House) -> None:
    joined = Modern(house.http, f"{house.url}/mcp", await house.key("alice"))
    async with joined.listening({"resourceSubscriptions": [NOTE, "note://no"], "toolsListChanged": True}) as stream:
        first = await stream.next()
        assert first["params"]["notifications"] == {"resourceSubscriptions": [NOTE], "toolsListChanged": True}
        await house.notes.change()
        await house.notes.change_lists()
        told = {(await stream.next())["method"] for _ in range(2)}
    assert told == {UPDATED, "notifications/tools/list_changed"}


async def test_a_resource_of_which_the_upstream_will_not_tell_is_not_accepted(
    house: House, modern: Modern, session: Session
) -> None:
    assert await acknowledged(modern, {"resourceSubscriptions": [NOTE]}) == {}
    with pytest.raises(Refused):
        await session.result("resources/subscribe", {"uri": NOTE})


async def test_a_stream_is_ended_in_words_when_the_service_stops(tmp_path: Path) -> None:
    async with (
        running_application(tmp_path, auth="off", allowed_hosts=("127.0.0.1",)) as ringback,
        serving(ringback.app.api) as url,
        httpx.AsyncClient(timeout=WAIT_SECONDS) as http,
        Modern(http, f"{url}/mcp").listening({"toolsListChanged": True}) as stream,
    ):
        subscription = (await stream.next())["params"]["_meta"][SUBSCRIPTION]
        ringback.stop.set()
        ended = await stream.answer()
    assert (ended["resultType"], ended["_meta"][SUBSCRIPTION]) == ("complete", subscription)


async def test_changed_lists_are_told_to_who_wants_to_know(house: House) -> None:
    modern = await house.modern(upstream="notes")
    async with modern.listening({"resourcesListChanged": True, "promptsListChanged": False}) as stream:
        first = await stream.next()
        assert first["params"]["notifications"] == {"resourcesListChanged": True}
        await house.notes.change_lists()
        assert (await stream.next())["method"] == "notifications/resources/list_changed"


@pytest.mark.requirement("R15")
async def test_a_session_can_subscribe_to_the_resource_of_a_call(house: House, session: Session) -> None:
    task_id, task = await house.begun()
    uri = f"ringback://calls/{task_id}"
    async with session.stream() as stream:
        assert await session.result("resources/subscribe", {"uri": uri}) == {}
        task.complete("done")
        assert (await stream.next(UPDATED))["params"]["uri"] == uri


async def test_a_session_can_subscribe_to_a_resource_of_the_upstreams_until_it_does_not_want_to(house: House) -> None:
    async with house.session(upstream="notes") as session, session.stream() as stream:
        await session.result("resources/subscribe", {"uri": NOTE})
        await house.notes.change()
        assert (await stream.next(UPDATED))["params"]["uri"] == NOTE
        assert await session.result("resources/unsubscribe", {"uri": NOTE}) == {}
        await house.notes.until(lambda: not house.notes.watched)
        assert await session.result("resources/unsubscribe", {"uri": NOTE}) == {}


async def test_a_session_that_ends_watches_nothing_any_more(house: House) -> None:
    async with house.session(upstream="notes") as session:
        await session.result("resources/subscribe", {"uri": NOTE})
        assert house.notes.watched == [NOTE]
    await house.notes.until(lambda: not house.notes.watched)


@pytest.mark.requirement("R25")
async def test_nobody_subscribes_to_what_is_not_theirs_or_does_not_exist(house: House, session: Session) -> None:
    theirs, _ = await house.begun(principal="bob")
    for call_id in (theirs, UNKNOWN):
        with pytest.raises(Refused) as refused:
            await session.result("resources/subscribe", {"uri": f"ringback://calls/{call_id}"})
        assert refused.value.code == -32602


async def test_a_session_subscribes_to_so_much_and_no_more(
    house: House, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telling, "TOLD_IN_SESSION_MAX", 2)
    first, _ = await house.begun()
    second, _ = await house.begun()
    await session.result("resources/subscribe", {"uri": f"ringback://calls/{first}"})
    with pytest.raises(Refused, match="Unsubscribe"):
        await session.result("resources/subscribe", {"uri": f"ringback://calls/{second}"})
    await session.result("resources/unsubscribe", {"uri": f"ringback://calls/{first}"})
    await session.result("resources/subscribe", {"uri": f"ringback://calls/{second}"})


async def test_a_session_is_told_of_changed_lists(house: House) -> None:
    async with house.session(upstream="notes") as session, session.stream() as stream:
        await session.result("ping", {})  # what the session told before has been heard by then
        await house.notes.change_lists()
        told = {(await stream.next())["method"] for _ in range(2)}
    assert told == {"notifications/tools/list_changed", "notifications/resources/list_changed"}


async def test_streams_are_counted_among_the_principals_own(house: House, modern: Modern) -> None:
    async def open_streams() -> int:
        return (await house.ringback.app.services.insights.get_status(OPERATOR)).open_streams

    async def all_closed() -> bool:
        return await open_streams() == 0

    await until(all_closed)
    async with modern.listening({"toolsListChanged": True}) as stream:
        await stream.next()
        assert await open_streams() == 1
    await until(all_closed)
