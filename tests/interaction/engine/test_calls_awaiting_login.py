"""A call whose upstream requires a login waits for the login, in any process, and goes on after it."""

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from ringback.domain.call import Call, CallPhase, CallStatus
from ringback.domain.call_outcome import CallCompletion, CallOutcome
from ringback.domain.call_rows import CallChange
from ringback.domain.clock import SystemClock, seconds
from ringback.domain.event import EventName
from ringback.domain.ports import Transaction
from ringback.domain.principal import Caller, Principal, Scope
from ringback.domain.upstream_logins import CredentialsScope, UpstreamTokens
from ringback.protocol.errors import LoginRequired
from ringback.protocol.upstream_logins import LOGIN_REQUEST_KEY
from ringback.services.calls.cancellation import cancel_open_call
from ringback.services.calls.input_answers import InputAnswers
from ringback.services.limits.schema_checks import SchemaCheckLimiter
from ringback.services.logins.login_waits import RESUMED_BATCH_SIZE, continue_resumption, resume_orphans
from ringback.upstreams.catalog.requested_schemas import RequestedSchemas
from tests.support.builders import make_call
from tests.support.clock import FakeClock
from tests.support.engine import PUBLIC_URL, Engine, OnProgress, ScriptedUpstreams
from tests.support.examples import ALICE
from tests.support.executions import lease_call_with_handle, lease_new_call, run_execution
from tests.support.logins import TOKENS, make_tokens, read_waiting, sign_in
from tests.support.stored_work import COMPLETED_RESULT

LOGIN_URL = f"{PUBLIC_URL}/login/git"
CALLER = Caller(principal=ALICE, scopes=frozenset({Scope.CALLS}), upstreams=None, key_id=None)


class ProtectedTool:
    """A tool behind a bearer check: it runs only while its login is valid."""

    def __init__(self, *, is_open: bool = False, tokens_version: int | None = None) -> None:
        self.is_open = is_open
        self.tokens_version = tokens_version
        self.runs: list[str] = []

    async def __call__(self, call: Call, on_progress: OnProgress) -> CallCompletion:  # noqa: ARG002 - what a tool is given
        if not self.is_open:
            raise LoginRequired("The upstream requires a login.", tokens_version=self.tokens_version)
        self.runs.append(call.id)
        return COMPLETED_RESULT


class OwnedUpstreams(ScriptedUpstreams):
    """Upstreams to which each principal signs in."""

    def get_login_owner(self, call: Call) -> Principal:
        return call.principal


async def run_until_parked(engine: Engine) -> Call:
    call = await lease_new_call(engine)
    await run_execution(engine.make_execution(call, ScriptedUpstreams(ProtectedTool())))
    return await engine.read_call(call)


async def test_a_call_whose_request_was_refused_is_parked_with_the_page_of_the_login(engine: Engine) -> None:
    call = await run_until_parked(engine)

    assert (call.status, call.phase) == (CallStatus.INPUT_REQUIRED, CallPhase.PARKED)
    assert (call.dispatched_at, call.runs, call.lease_token) == (None, 0, None), "the tool did not run"
    request = call.input_requests[LOGIN_REQUEST_KEY]
    assert (request.method, request.params["mode"], request.params["url"]) == ("elicitation/create", "url", LOGIN_URL)
    assert request.params["message"].endswith(f": ringback upstreams login {call.upstream}"), "a command can be copied"
    assert "lacks the scope 'admin'" in request.params["message"]
    assert await read_waiting(engine.store) == [call.id]


@pytest.mark.parametrize(("upstreams", "shared_writes"), [(ScriptedUpstreams, 1), (OwnedUpstreams, 0)])
async def test_a_call_that_waits_for_the_shared_login_is_parked_outside_its_principals_share_of_the_store(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, upstreams: type[ScriptedUpstreams], shared_writes: int
) -> None:
    leased = await lease_new_call(engine)
    write, write_for, writes = engine.store.write, engine.store.write_for, Counter[str]()

    async def record_write(work: Any) -> Any:
        writes["shared"] += 1
        return await write(work)

    async def record_write_for(principal: Principal, work: Any) -> Any:
        shared = writes["shared"]
        written = await write_for(principal, work)
        writes["shared"] = shared  # the store of this test writes all units alike
        return written

    monkeypatch.setattr(engine.store, "write", record_write)
    monkeypatch.setattr(engine.store, "write_for", record_write_for)
    await run_execution(engine.make_execution(leased, upstreams(ProtectedTool())))

    assert writes["shared"] == shared_writes


async def test_its_event_says_where_to_sign_in(engine: Engine) -> None:
    await run_until_parked(engine)

    (event,) = await engine.read_events()
    assert event.name == EventName.CALL_INPUT_REQUIRED
    assert (event.data["input_keys"], event.data["login_url"]) == ([LOGIN_REQUEST_KEY], LOGIN_URL)


async def test_the_login_lets_it_run_once(engine: Engine) -> None:
    call = await run_until_parked(engine)
    tool = ProtectedTool(is_open=True)
    async with engine.running_runner(ScriptedUpstreams(tool)):
        await sign_in(engine.store, engine.login_waits)
        (ended,) = await engine.wait_until_final(call)

    assert (ended.outcome, ended.runs, tool.runs) == (CallOutcome.RESULT, 1, [call.id])
    assert not await read_waiting(engine.store)


async def test_a_call_with_a_handle_keeps_it_and_its_dispatch(engine: Engine) -> None:
    leased = await lease_call_with_handle(engine, "task", deadline_in=3600)
    await run_execution(engine.make_execution(leased, ScriptedUpstreams(ProtectedTool())))
    parked = await engine.read_call(leased)

    assert (parked.handle, parked.dispatched_at, parked.runs) == (leased.handle, leased.dispatched_at, 1)
    await sign_in(engine.store, engine.login_waits)
    queued = await engine.read_call(leased)
    assert (queued.phase, queued.handle, queued.input_requests) == (CallPhase.QUEUED, leased.handle, {})


async def test_a_call_that_is_refused_after_the_login_has_new_tokens_is_queued_at_once(engine: Engine) -> None:
    leased = await lease_new_call(engine)
    await sign_in(engine.store, engine.login_waits)
    await run_execution(engine.make_execution(leased, ScriptedUpstreams(ProtectedTool(tokens_version=None))))
    call = await engine.read_call(leased)

    assert (call.status, call.phase, call.input_requests) == (CallStatus.WORKING, CallPhase.QUEUED, {})
    assert not await engine.read_events()


@pytest.mark.parametrize("stored", [TOKENS, make_tokens(access_token=None)])
async def test_a_call_waits_while_the_tokens_are_those_that_did_not_suffice_or_were_refused(
    engine: Engine, stored: UpstreamTokens
) -> None:
    await engine.store.write(lambda tx: tx.upstream_tokens.save(stored, expected_version=None))
    leased = await lease_new_call(engine)
    await run_execution(engine.make_execution(leased, ScriptedUpstreams(ProtectedTool(tokens_version=1))))

    assert (await engine.read_call(leased)).phase is CallPhase.PARKED


async def test_a_login_of_another_owner_leaves_it_waiting(engine: Engine) -> None:
    call = await run_until_parked(engine)
    await sign_in(engine.store, engine.login_waits, make_tokens(owner=Principal("bob")))

    assert (await engine.read_call(call)).phase is CallPhase.PARKED


async def test_the_next_process_goes_on_after_the_login(engine: Engine) -> None:
    call = await run_until_parked(engine)
    await engine.run_recovery()
    assert (await engine.read_call(call)).phase is CallPhase.PARKED

    await sign_in(engine.store, engine.login_waits)
    async with engine.running_runner(ScriptedUpstreams(ProtectedTool(is_open=True))):
        (ended,) = await engine.wait_until_final(call)
    assert ended.outcome is CallOutcome.RESULT


async def test_many_waiting_calls_go_on_in_batches(still: Engine) -> None:
    calls = [make_call(deadline_at=still.clock.now() + seconds(3600)) for _ in range(2 * RESUMED_BATCH_SIZE + 1)]
    for call in calls:
        leased = await still.lease_call(call)
        await run_execution(still.make_execution(leased, ScriptedUpstreams(ProtectedTool())))

    await sign_in(still.store, still.login_waits)
    assert len(await read_waiting(still.store)) == RESUMED_BATCH_SIZE + 1, "one transaction queues one batch"
    await still.run_recovery(still.make_janitor())
    assert {(await still.read_call(call)).phase for call in calls} == {CallPhase.QUEUED}
    assert await still.store.read(lambda tx: tx.login_waits.find_next_resumption()) is None


async def test_a_login_that_does_not_suffice_queues_each_call_once(still: Engine) -> None:
    calls = [make_call(deadline_at=still.clock.now() + seconds(3600)) for _ in range(2 * RESUMED_BATCH_SIZE + 1)]
    for call in calls:
        leased = await still.lease_call(call)
        await run_execution(still.make_execution(leased, ScriptedUpstreams(ProtectedTool())))
    await sign_in(still.store, still.login_waits)

    janitor = still.make_janitor()
    refusals = Counter[str]()
    for _ in range(5):  # the third round has the last of three batches
        for leased in await still.lease_queued_calls("git", limit=len(calls)):
            refusals[leased.id] += 1
            await run_execution(still.make_execution(leased, ScriptedUpstreams(ProtectedTool(tokens_version=1))))
        await janitor.run_once()

    assert refusals == dict.fromkeys([call.id for call in calls], 1)
    assert {(await still.read_call(call)).input_round for call in calls} == {2}
    assert await still.store.read(lambda tx: tx.login_waits.find_next_resumption()) is None


# -- after a change of the configuration --


@pytest.mark.parametrize("credentials", [CredentialsScope.SHARED, None])
async def test_a_call_that_waits_for_a_login_that_is_not_used_any_more_is_queued_once(
    engine: Engine, credentials: CredentialsScope | None
) -> None:
    call = await lease_new_call(engine)
    await run_execution(engine.make_execution(call, OwnedUpstreams(ProtectedTool())))
    await engine.store.write(lambda tx: resume_orphans(tx, "git", credentials))
    assert await engine.store.write(continue_resumption)
    assert (await engine.read_call(call)).phase is CallPhase.QUEUED

    (leased,) = await engine.lease_queued_calls("git", limit=1)
    await run_execution(engine.make_execution(leased, OwnedUpstreams(ProtectedTool())))  # by a node before its reload
    assert not await engine.store.write(continue_resumption)
    assert (await engine.read_call(call)).phase is CallPhase.PARKED


async def test_a_call_whose_shared_login_is_not_used_any_more_is_queued(engine: Engine) -> None:
    call = await run_until_parked(engine)
    await engine.store.write(lambda tx: resume_orphans(tx, "git", CredentialsScope.PRINCIPAL))
    await engine.store.write(continue_resumption)

    assert (await engine.read_call(call)).phase is CallPhase.QUEUED


@pytest.mark.parametrize(
    ("upstreams", "credentials"),
    [(ScriptedUpstreams, CredentialsScope.SHARED), (OwnedUpstreams, CredentialsScope.PRINCIPAL)],
)
async def test_a_call_whose_login_is_still_used_goes_on_waiting(
    engine: Engine, upstreams: type[ScriptedUpstreams], credentials: CredentialsScope
) -> None:
    await run_execution(engine.make_execution(await lease_new_call(engine), upstreams(ProtectedTool())))
    await engine.store.write(lambda tx: resume_orphans(tx, "git", credentials))

    assert not await engine.store.write(continue_resumption)


# -- how the wait ends without a login --


async def answer(engine: Engine, call: Call, action: str) -> Call:
    answers = InputAnswers(engine.store, engine.recorder, RequestedSchemas(), SchemaCheckLimiter(clock=SystemClock()))
    return (await answers.answer_input(CALLER, call.id, {LOGIN_REQUEST_KEY: {"action": action}})).call


async def test_an_accepted_request_goes_on_waiting_for_the_login(engine: Engine) -> None:
    call = await run_until_parked(engine)

    assert await answer(engine, call, "accept") == call
    assert await engine.read_call(call) == call


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_refused_request_ends_the_call(engine: Engine, action: str) -> None:
    call = await run_until_parked(engine)
    ended = await answer(engine, call, action)

    assert (ended.outcome, (ended.error or {})["message"]) == (
        CallOutcome.REJECTED,
        "The user refused to sign in to upstream 'git'. The tool did not run.",
    )
    assert not await read_waiting(engine.store)
    await sign_in(engine.store, engine.login_waits)
    assert await engine.read_call(call) == ended


async def test_a_refusal_of_a_call_whose_tool_runs_says_that_it_may_have_done_its_work(engine: Engine) -> None:
    leased = await lease_call_with_handle(engine, "task", deadline_in=3600)
    await run_execution(engine.make_execution(leased, ScriptedUpstreams(ProtectedTool())))

    assert (await answer(engine, leased, "decline")).outcome is CallOutcome.UNKNOWN


@pytest.mark.parametrize("has_handle", [False, True])
async def test_a_cancellation_ends_a_waiting_call_at_once(engine: Engine, *, has_handle: bool) -> None:
    leased = (
        await lease_call_with_handle(engine, "task", deadline_in=3600) if has_handle else await lease_new_call(engine)
    )
    await run_execution(engine.make_execution(leased, ScriptedUpstreams(ProtectedTool())))

    async def cancel(tx: Transaction) -> Call:
        return await cancel_open_call(tx, engine.recorder, (await tx.calls.get_many([leased.id]))[0])

    assert (await engine.store.write(cancel)).outcome is CallOutcome.CANCELLED
    assert not await read_waiting(engine.store)
    await sign_in(engine.store, engine.login_waits)
    assert (await engine.read_call(leased)).outcome is CallOutcome.CANCELLED


async def test_a_call_whose_deadline_passes_while_it_waits_has_timed_out(still: Engine, fake_clock: FakeClock) -> None:
    call = await run_until_parked(still)
    fake_clock.advance(3601)
    await still.run_recovery(still.make_janitor())
    ended = await still.read_call(call)

    assert (ended.outcome, (ended.error or {})["message"]) == (
        CallOutcome.TIMED_OUT,
        "The call's deadline passed before the user signed in to upstream 'git'. The tool did not run.",
    )
    assert not await read_waiting(still.store)


async def test_a_call_that_is_cancelled_while_it_is_refused_ends_as_cancelled(engine: Engine) -> None:
    leased = await lease_new_call(engine)
    refusing = asyncio.Event()

    async def refuse(call: Call, on_progress: OnProgress) -> CallCompletion:
        found = await engine.store.read(lambda tx: tx.calls.get(call.id))
        assert found is not None
        await engine.store.write(
            lambda tx: tx.calls.update(
                replace(found, cancel_requested=True), CallChange.CANCELLING, expected=found.status, lease_token=None
            )
        )
        refusing.set()
        raise LoginRequired("The upstream requires a login.")

    await run_execution(engine.make_execution(leased, ScriptedUpstreams(refuse)))
    assert refusing.is_set()
    assert (await engine.read_call(leased)).outcome is CallOutcome.CANCELLED
