"""Adopted tasks: the whole service against a real MCP server with tasks."""

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from ringback.client import Conflict, Forbidden, InvalidRequest, NotFound, RingbackClient
from ringback.domain.principal import ALL_SCOPES
from tests.support.application import PUBLIC_URL, SECRET, RunningApplication, running_application, serving_callbacks
from tests.support.engine import wait_until
from tests.support.legacy_upstream import LegacyTask, LegacyUpstream
from tests.support.limits import WAIT_SECONDS
from tests.support.service import CALLBACK_URL
from tests.support.task_upstream import ACCEPTED_ANSWER, TaskUpstream, UpstreamTask
from tests.support.upstreams import ControlledUpstream, make_http_config, serving

pytestmark = pytest.mark.requirement("R29")

Stage = tuple[TaskUpstream, RunningApplication]


@asynccontextmanager
async def serving_task_upstream(folder: Path) -> AsyncGenerator[Stage]:
    upstream = TaskUpstream()
    async with serving(upstream.app()) as server, running_application(folder, make_http_config(server.url)) as ringback:
        yield upstream, ringback


@pytest.fixture(scope="module")
async def shared_stage(module_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Stage]:
    """A server that the service knows by two names."""
    upstream = TaskUpstream()
    async with serving(upstream.app()) as server:
        names = [make_http_config(server.url, name=name) for name in ("stage", "same")]
        async with running_application(module_path_factory.mktemp("adoption"), *names) as ringback:
            yield upstream, ringback


@pytest.fixture
def stage(shared_stage: Stage) -> Generator[Stage]:
    """For tests with tasks of their own, which do not count all requests. Their calls end with them."""
    upstream, _ = shared_stage
    yield shared_stage
    for task in upstream.tasks.values():
        task.complete_task("done")


TASK_NUMBERS: Final = count(1)


def start_upstream_task(upstream: TaskUpstream, task_id: str | None = None) -> UpstreamTask:
    """A task that another client started without Ringback."""
    task_id = task_id or f"task-{next(TASK_NUMBERS)}"
    task = upstream.tasks[task_id] = UpstreamTask(task_id, upstream)
    return task


async def make_adopter_client(ringback: RunningApplication, principal: str, **key: Any) -> RingbackClient:
    allowed: dict[str, Any] = {"scopes": ALL_SCOPES, "upstreams": None} | key
    _, text = await ringback.app.services.api_keys.create_key(principal, name="test", **allowed)
    return await ringback.client(api_key=text)


async def test_the_end_of_an_adopted_task_sends_a_callback(tmp_path: Path) -> None:
    async with serving_task_upstream(tmp_path) as (upstream, ringback), serving_callbacks() as receiver:
        alice, task = await make_adopter_client(ringback, "alice"), start_upstream_task(upstream)
        adopted = await alice.adopt(
            "stage",
            task.id,
            tool="work",
            correlation_id="c1",
            client_session_id="s1",
            callback={"url": receiver.url, "secret": SECRET},
        )
        await upstream.wait_until(lambda: upstream.count_requests("tasks/get") >= 2)
        task.complete_task("done")
        callback = await receiver.wait_for_callback("c1")
        resumed = await alice.resume(str(callback.data["resume_token"]))

    assert (adopted.call.status, adopted.call.tool, len(adopted.webhooks)) == ("working", "work", 1)
    assert (callback.data["call_id"], callback.data["outcome"]) == (adopted.call.id, "result")
    assert (callback.data["upstream"], callback.data["client_session_id"]) == ("stage", "s1")
    assert resumed.result == {"content": [{"type": "text", "text": "done"}], "isError": False}
    assert upstream.side_effects == []


async def test_a_task_that_has_ended_is_adopted_with_its_result(stage: Stage) -> None:
    upstream, ringback = stage
    alice, task = await make_adopter_client(ringback, "alice"), start_upstream_task(upstream)
    task.complete_task("done")
    adopted = await alice.adopt("stage", task.id)
    call = await alice.wait(adopted.call.id, timeout_seconds=WAIT_SECONDS)
    assert (call.outcome, call.tool) == ("result", "(unknown)")


async def test_adopting_a_task_again_shows_the_generated_secret_of_the_callback_again(stage: Stage) -> None:
    """The client repeats the request whose response was lost."""
    upstream, ringback = stage
    alice, task = await make_adopter_client(ringback, "alice"), start_upstream_task(upstream)
    first, again = [await alice.adopt("stage", task.id, callback={"url": CALLBACK_URL}) for _ in range(2)]
    assert first.callback_secret is not None
    assert again.callback_secret == first.callback_secret


async def test_adopting_a_task_again_returns_the_same_call_also_after_its_end(stage: Stage) -> None:
    upstream, ringback = stage
    alice, task = await make_adopter_client(ringback, "alice"), start_upstream_task(upstream)
    first, *others = await asyncio.gather(*[alice.adopt("stage", task.id) for _ in range(5)])
    task.complete_task("done")
    await alice.wait(first.call.id, timeout_seconds=WAIT_SECONDS)
    del upstream.tasks[task.id]
    late = await alice.adopt("stage", task.id)
    with pytest.raises(Conflict, match="Register a webhook"):
        await alice.adopt("stage", task.id, callback={"url": "https://agent.example/callback"})
    assert {other.call.id for other in others} == {first.call.id}
    assert (late.call.id, late.call.outcome) == (first.call.id, "result")


async def test_adopting_the_task_of_a_started_call_returns_that_call(tmp_path: Path) -> None:
    async with serving_task_upstream(tmp_path) as (upstream, ringback):
        alice = await make_adopter_client(ringback, "alice")
        started = await alice.start_call("stage", "work")
        task = await upstream.wait_for_task(1)
        await upstream.wait_until(lambda: upstream.count_requests("tasks/get") >= 1)
        adopted = await alice.adopt("stage", task.id)
    assert adopted.call.id == started.call.id


@pytest.mark.requirement("R25")
@pytest.mark.parametrize("ended", [False, True], ids=["running", "ended"])
async def test_a_foreign_task_gets_the_error_of_an_unknown_one(tmp_path: Path, *, ended: bool) -> None:
    async with serving_task_upstream(tmp_path) as (upstream, ringback):
        alice, bob = await make_adopter_client(ringback, "alice"), await make_adopter_client(ringback, "bob")
        adopted = (await alice.adopt("stage", start_upstream_task(upstream).id)).call
        started = (await alice.start_call("stage", "work")).call
        await upstream.wait_until(lambda: len(upstream.tasks) == 2 and upstream.count_requests("tasks/get") >= 3)
        if ended:
            for task in upstream.tasks.values():
                task.complete_task("done")
            await asyncio.gather(*[alice.wait(call.id, timeout_seconds=WAIT_SECONDS) for call in (adopted, started)])
        answers = [await adoption_error(bob, task_id) for task_id in (*upstream.tasks, "no-such-task")]
        seen = [call async for call in bob.calls()]
    assert len(answers) == 3
    assert {(problem.status, problem.type, problem.title, str(problem)) for problem in answers} == {
        (404, "/problems/not-found", "Not found", "This upstream has no task of yours with this id.")
    }
    assert seen == []


@pytest.mark.requirement("R25")
@pytest.mark.parametrize("state", ["running", "ended", "erased"])
async def test_a_foreign_task_is_not_adopted_through_another_name_of_its_server(stage: Stage, *, state: str) -> None:
    upstream, ringback = stage
    alice, bob = [await make_adopter_client(ringback, name) for name in ("alice", "bob")]
    task = start_upstream_task(upstream)
    adopted = await alice.adopt("stage", task.id)
    if state != "running":
        task.complete_task("private")
        await alice.wait(adopted.call.id, timeout_seconds=WAIT_SECONDS)
    if state == "erased":
        await alice.erase_call(adopted.call.id)
    with pytest.raises(NotFound) as refused:
        await bob.adopt("same", task.id)
    own = await alice.adopt("same", task.id)

    assert str(refused.value) == "This upstream has no task of yours with this id."
    assert own.call.upstream == "same"


async def test_another_server_may_have_a_task_of_the_same_id(tmp_path: Path) -> None:
    one, two = TaskUpstream(), TaskUpstream()
    async with (
        serving(one.app()) as first,
        serving(two.app()) as second,
        running_application(
            tmp_path, make_http_config(first.url), make_http_config(second.url, name="other")
        ) as ringback,
    ):
        alice, bob = [await make_adopter_client(ringback, name) for name in ("alice", "bob")]
        await alice.adopt("stage", start_upstream_task(one, "task-1").id)
        adopted = await bob.adopt("other", start_upstream_task(two, "task-1").id)

    assert (adopted.call.upstream, adopted.call.status) == ("other", "working")


async def test_the_task_of_an_erased_call_is_adopted_again_by_its_own_principal_only(stage: Stage) -> None:
    upstream, ringback = stage
    alice, bob = [await make_adopter_client(ringback, name) for name in ("alice", "bob")]
    task = start_upstream_task(upstream)
    adopted = await alice.adopt("stage", task.id)
    task.complete_task("private")
    await alice.wait(adopted.call.id, timeout_seconds=WAIT_SECONDS)
    await alice.erase_call(adopted.call.id)

    with pytest.raises(NotFound) as refused:
        await bob.adopt("stage", task.id)
    with pytest.raises(NotFound) as unknown:
        await bob.adopt("stage", "no-such-task")
    again = await alice.adopt("stage", task.id)

    assert str(refused.value) == str(unknown.value)
    assert again.call.id != adopted.call.id


async def test_an_adopted_task_is_not_polled_at_another_server(tmp_path: Path) -> None:
    new = TaskUpstream()
    async with serving_task_upstream(tmp_path) as (upstream, ringback):
        alice, task = await make_adopter_client(ringback, "alice"), start_upstream_task(upstream)
        adopted = await alice.adopt("stage", task.id)
    start_upstream_task(new, task.id).complete_task("the result of another principal")
    async with (
        serving(new.app()) as server,
        running_application(tmp_path, make_http_config(server.url)) as ringback,
    ):
        call = await (await make_adopter_client(ringback, "alice")).wait(adopted.call.id, timeout_seconds=WAIT_SECONDS)
    assert (call.outcome, new.requests) == ("unknown", [])


async def test_a_task_whose_status_is_none_of_mcp_is_not_adopted(stage: Stage) -> None:
    upstream, ringback = stage
    alice, task = await make_adopter_client(ringback, "alice"), start_upstream_task(upstream)
    statuses: list[Any] = ["sleeping", ["working"], {}]
    for status in statuses:
        task.set_state(status=status)
        await adoption_error(alice, task.id)


async def adoption_error(client: RingbackClient, task_id: str) -> NotFound:
    with pytest.raises(NotFound) as refusal:
        await client.adopt("stage", task_id)
    return refusal.value


async def test_a_question_of_an_adopted_task_reaches_its_adopter(stage: Stage) -> None:
    upstream, ringback = stage
    alice, task = await make_adopter_client(ringback, "alice"), start_upstream_task(upstream)
    adopted = await alice.adopt("stage", task.id)
    task.request_input("sure")

    async def needs_input() -> bool:
        return (await alice.call(adopted.call.id)).status == "input_required"

    await wait_until(needs_input)
    assert task.cancels == 0
    assert ACCEPTED_ANSWER not in task.answers.values()


async def test_adopting_needs_the_scope_adopt(tmp_path: Path) -> None:
    async with serving_task_upstream(tmp_path) as (upstream, ringback):
        agent = await ringback.create_agent_client("alice")
        with pytest.raises(Forbidden, match="adopt"):
            await agent.adopt("stage", start_upstream_task(upstream).id)
    assert upstream.count_requests("tasks/get") == 0


@pytest.mark.requirement("R25")
async def test_an_upstream_that_a_key_may_not_see_is_unknown(tmp_path: Path) -> None:
    async with serving_task_upstream(tmp_path) as (upstream, ringback):
        limited = await make_adopter_client(ringback, "alice", upstreams=frozenset({"other"}))
        task = start_upstream_task(upstream)
        refusals: list[str] = []
        for name in ("stage", "nowhere"):
            with pytest.raises(InvalidRequest) as refusal:
                await limited.adopt(name, task.id)
            refusals.append(f"{refusal.value.type} {refusal.value}")
    assert len(set(refusals)) == 1
    assert refusals[0].startswith("/problems/unknown-upstream")
    assert upstream.count_requests("tasks/get") == 0


async def test_adoption_from_an_upstream_without_tasks_is_refused_with_a_reason(tmp_path: Path) -> None:
    async with (
        serving(ControlledUpstream().app()) as server,
        running_application(tmp_path, make_http_config(server.url)) as ringback,
    ):
        alice = await make_adopter_client(ringback, "alice")
        with pytest.raises(InvalidRequest, match="does not support tasks"):
            await alice.adopt("stage", "task-1")


async def test_an_unreachable_upstream_refuses_an_adoption(tmp_path: Path) -> None:
    async with serving_task_upstream(tmp_path) as (upstream, _):
        start_upstream_task(upstream, "task-1")
    away = make_http_config("http://127.0.0.1:1/mcp")
    async with running_application(tmp_path, away, connect_patience_seconds=0.1) as ringback:
        _, key = await ringback.app.services.api_keys.create_key(
            "alice", name="test", scopes=ALL_SCOPES, upstreams=None
        )
        transport = httpx.ASGITransport(ringback.app.api)
        headers = {"Authorization": f"Bearer {key}"}
        async with httpx.AsyncClient(transport=transport, base_url=PUBLIC_URL, headers=headers) as alice:
            answer = await alice.post("/v1/calls/adopt", json={"upstream": "stage", "task_id": "task-1"})
            calls = (await alice.get("/v1/calls")).json()["calls"]
    assert (answer.status_code, answer.json()["type"]) == (503, "/problems/unavailable")
    assert calls == []


@pytest.mark.requirement("R28")
async def test_a_legacy_task_can_be_adopted(tmp_path: Path) -> None:
    upstream = LegacyUpstream(bound=False)
    async with (
        serving(upstream.app()) as server,
        running_application(tmp_path, make_http_config(server.url)) as ringback,
    ):
        alice = await make_adopter_client(ringback, "alice")
        task = upstream.tasks["task-1"] = LegacyTask("task-1", session=None, ttl=60_000)
        adopted = await alice.adopt("stage", task.id)
        again = await alice.adopt("stage", task.id)
        task.end_task()
        call = await alice.wait(adopted.call.id, timeout_seconds=WAIT_SECONDS)
        with pytest.raises(NotFound):
            await alice.adopt("stage", "task-9")
    assert again.call.id == adopted.call.id
    assert call.outcome == "result"
    assert upstream.effects == []
