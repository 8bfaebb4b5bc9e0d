"""Calls to an upstream that requires a login: they wait, ring, and go on after the login. None is lost, none runs twice."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from ringback.client import Call, RingbackClient
from ringback.client.problems import Conflict
from ringback.domain.principal import Principal
from ringback.domain.upstream_logins import CredentialsScope
from tests.support.engine import wait_until
from tests.support.protected_upstream import LOGIN_URL, ProtectedService, running_protected
from tests.support.task_upstream import TaskUpstream
from tests.support.upstreams import ControlledUpstream, make_legacy_app


@pytest.fixture
def stage() -> ControlledUpstream:
    return ControlledUpstream()


@pytest.fixture(params=["modern", "legacy"])
async def protected(
    tmp_path: Path, stage: ControlledUpstream, request: pytest.FixtureRequest
) -> AsyncGenerator[ProtectedService]:
    app = stage.app() if request.param == "modern" else make_legacy_app(stage.app())
    async with running_protected(tmp_path, app) as protected:
        yield protected


async def wait_for(client: RingbackClient, call_id: str, status: str) -> Call:
    async def has_status() -> bool:
        call = await client.call(call_id)
        assert call.status in {"working", "input_required", status}, call
        return call.status == status

    await wait_until(has_status)
    return await client.call(call_id)


async def start_call(client: RingbackClient, tool: str = "echo") -> str:
    return (await client.start_call("stage", tool, {"n": 1})).call.id


async def test_a_call_waits_for_the_first_login_and_runs_once(
    protected: ProtectedService, stage: ControlledUpstream
) -> None:
    alice = await protected.ringback.create_agent_client("alice")
    call_id = await start_call(alice)
    waiting = await wait_for(alice, call_id, "input_required")
    assert (waiting.input_requests["ringback/login"].params["url"], waiting.dispatched_at, waiting.runs) == (
        LOGIN_URL,
        None,
        0,
    )

    token = await protected.sign_in()
    ended = await wait_for(alice, call_id, "completed")
    assert (ended.outcome, ended.runs, len(stage.calls)) == ("result", 1, 1)
    assert protected.check.shown[-1] == token


async def test_a_token_that_is_refused_in_the_middle_of_a_session_parks_the_call(
    protected: ProtectedService, stage: ControlledUpstream
) -> None:
    await protected.sign_in()
    alice = await protected.ringback.create_agent_client("alice")
    await wait_for(alice, await start_call(alice), "completed")
    protected.check.accepted.clear()

    call_id = await start_call(alice)
    waiting = await wait_for(alice, call_id, "input_required")
    assert (waiting.dispatched_at, waiting.runs) == (None, 0)
    await protected.sign_in()
    ended = await wait_for(alice, call_id, "completed")
    assert (ended.runs, len(stage.calls)) == (1, 2)


async def test_a_missing_scope_parks_the_call_until_a_login_has_it(
    protected: ProtectedService, stage: ControlledUpstream
) -> None:
    await protected.sign_in(scope="read")
    alice = await protected.ringback.create_agent_client("alice")
    await wait_for(alice, await start_call(alice), "completed")
    protected.check.required_scope = "write"

    call_id = await start_call(alice)
    await wait_for(alice, call_id, "input_required")
    protected.check.required_scope = None
    await protected.sign_in(scope="read write")
    await wait_for(alice, call_id, "completed")
    assert len(stage.calls) == 2


async def test_a_login_whose_token_the_upstream_refuses_leaves_the_call_waiting(
    protected: ProtectedService, stage: ControlledUpstream
) -> None:
    alice = await protected.ringback.create_agent_client("alice")
    call_id = await start_call(alice)
    await wait_for(alice, call_id, "input_required")
    refused_count = protected.check.refused_count
    await protected.sign_in(is_accepted=False)
    await protected.check.wait_until_refused(refused_count + 1)
    await wait_for(alice, call_id, "input_required")

    await protected.sign_in()
    await wait_for(alice, call_id, "completed")
    assert len(stage.calls) == 1


async def test_the_tools_of_the_upstream_are_a_problem_that_names_the_login_page(protected: ProtectedService) -> None:
    alice = await protected.ringback.create_agent_client("alice")
    await wait_for(alice, await start_call(alice), "input_required")

    with pytest.raises(Conflict) as refused:
        await alice.tools("stage")
    assert (refused.value.slug, refused.value.extra["login_url"]) == ("login-required", LOGIN_URL)


async def test_a_task_keeps_its_handle_while_its_polls_are_refused(tmp_path: Path) -> None:
    tasks = TaskUpstream()
    async with running_protected(tmp_path, tasks.app()) as protected:
        await protected.sign_in()
        alice = await protected.ringback.create_agent_client("alice")
        call_id = await start_call(alice, "work")
        task = await tasks.wait_for_task(1)
        protected.check.accepted.clear()
        waiting = await wait_for(alice, call_id, "input_required")
        assert (waiting.dispatched_at is not None, waiting.runs) == (True, 1)

        task.complete_task("done")
        await protected.sign_in()
        ended = await wait_for(alice, call_id, "completed")
        assert (ended.runs, len(tasks.side_effects)) == (1, 1)


async def test_each_principal_waits_for_its_own_login_and_uses_its_own_token(tmp_path: Path) -> None:
    stage = ControlledUpstream()
    per_principal = {"credentials": CredentialsScope.PRINCIPAL}
    async with running_protected(tmp_path, stage.app(), config=per_principal) as protected:
        alice = await protected.ringback.create_agent_client("alice")
        bob = await protected.ringback.create_agent_client("bob")
        call_of_alice, call_of_bob = await start_call(alice), await start_call(bob)
        await wait_for(alice, call_of_alice, "input_required")
        await wait_for(bob, call_of_bob, "input_required")

        token_of_alice = await protected.sign_in(Principal("alice"))
        await wait_for(alice, call_of_alice, "completed")
        assert (await bob.call(call_of_bob)).status == "input_required"
        token_of_bob = await protected.sign_in(Principal("bob"))
        await wait_for(bob, call_of_bob, "completed")

    assert len(stage.calls) == 2
    assert {token_of_alice, token_of_bob, ""} == set(protected.check.shown)
