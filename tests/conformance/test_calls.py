"""Calls: written, read, listed and changed."""

from dataclasses import replace
from datetime import timedelta

import pytest

from ringback.domain.call import (
    Call,
    CallPhase,
    CallStatus,
    Handle,
    InputRequest,
    Progress,
    RerunPolicy,
    ServerFingerprint,
    apply_completion,
)
from ringback.domain.call_outcome import CallOutcome, completion_from_result, failed_completion
from ringback.domain.call_rows import CallChange, CallFilter
from ringback.domain.ids import CallId
from ringback.domain.ports import Store, Transaction
from tests.support.builders import make_call
from tests.support.clock import START
from tests.support.examples import ALICE, BOB

HANDLE = Handle(driver="task", data={"task_id": "1", "deep": [{"a": None}]})
QUESTION = InputRequest(name="their key", method="elicitation/create", params={"message": "\N{SNOWMAN}", "n": 1.5})
LATER = START + timedelta(minutes=1, milliseconds=7)


async def insert_calls(store: Store, *calls: Call) -> None:
    async def work(tx: Transaction) -> None:
        for call in calls:
            await tx.calls.insert(call)

    await store.write(work)


async def get_call(store: Store, call: Call) -> Call | None:
    return await store.read(lambda tx: tx.calls.get(call.id))


@pytest.mark.parametrize(
    "fingerprint", [None, ServerFingerprint("http:0f3a"), ServerFingerprint("http:0f3a", "billing-1")], ids=str
)
async def test_a_handle_is_read_back_with_the_server_that_it_belongs_to(
    store: Store, fingerprint: ServerFingerprint | None
) -> None:
    call = make_call(handle=replace(HANDLE, server_fingerprint=fingerprint))
    await insert_calls(store, call)

    found = await get_call(store, call)

    assert found is not None
    assert found.handle is not None
    assert (found.handle, found.handle.server_fingerprint) == (HANDLE, fingerprint)


async def test_a_call_is_read_back_as_it_was_written(store: Store) -> None:
    call = make_call(
        arguments={"text": "ünïcode \N{SNOWMAN} \u0000", "deep": [{"a": None}], "big": 2**53, "float": 1.5},
        meta={"vendor/key": [1, True]},
        idempotency_key="key-1",
        rerun_policy=RerunPolicy.IF_SAFE,
        rerun_allowed=True,
        status=CallStatus.INPUT_REQUIRED,
        phase=CallPhase.RUNNING,
        handle=HANDLE,
        input_requests={"r1.1": QUESTION, "r2.1": QUESTION},
        input_responses={"their key": {"action": "accept", "content": {"ü": [1.5, None]}}},
        input_round=2,
        accepts_input=True,
        progress=Progress(progress=0.5, total=2, message="half"),
        cancel_requested=True,
        lease_owner="runner-1",
        lease_token="lease_1",
        lease_until=LATER,
        dispatched_at=START,
        runs=2,
        token_version=3,
        updated_at=LATER,
    )

    await insert_calls(store, call)

    whole = await store.read(lambda tx: tx.calls.get_whole(call.id))
    assert whole is not None
    assert (whole, whole.arguments, whole.meta) == (call, call.arguments, call.meta)
    assert await get_call(store, call) == call


@pytest.mark.requirement("R34")
async def test_calls_are_read_without_their_arguments(store: Store) -> None:
    """A page of calls with megabytes of arguments each took seconds, and a gigabyte of memory, to show none of them."""
    call = make_call(idempotency_key="key-1", meta={"vendor/key": 1}, handle=HANDLE)
    await insert_calls(store, call)

    async def read_calls(tx: Transaction) -> list[Call | None]:
        page = await tx.calls.list_page(call.principal, CallFilter(), position=None, limit=10)
        return [
            *page,
            *await tx.calls.get_many([call.id]),
            await tx.calls.get(call.id),
            await tx.calls.get(call.id, lock=False),
            await tx.calls.find_by_idempotency_key(call.principal, "key-1"),
            await tx.call_queue.find_by_task(call.upstream, "1"),
        ]

    found = await store.read(read_calls)
    assert found == [call] * 6
    assert [None if each is None else (each.arguments, each.meta) for each in found] == [(None, {})] * 6


async def test_a_finished_call_is_read_back_with_its_outcome_and_error(store: Store) -> None:
    call = apply_completion(
        make_call(), failed_completion(CallOutcome.REJECTED, "no"), now=LATER, result_retention_seconds=60
    )

    await insert_calls(store, call)

    assert await get_call(store, call) == call


async def test_an_unknown_call_is_none(store: Store) -> None:
    assert await get_call(store, make_call()) is None


async def test_an_idempotency_key_finds_the_call_of_its_own_principal_only(store: Store) -> None:
    call = make_call(idempotency_key="key-1")
    await insert_calls(store, call, make_call(principal=BOB, idempotency_key="key-1"), make_call())

    assert await store.read(lambda tx: tx.calls.find_by_idempotency_key(ALICE, "key-1")) == call
    assert await store.read(lambda tx: tx.calls.find_by_idempotency_key(ALICE, "key-2")) is None


async def test_pages_lead_from_the_newest_call_to_the_oldest_without_foreign_ones(store: Store) -> None:
    calls = [make_call() for _ in range(5)]
    await insert_calls(store, *calls, make_call(principal=BOB))
    seen: list[CallId] = []
    before: str | None = None

    while page := await store.read(
        lambda tx, before=before: tx.calls.list_page(ALICE, CallFilter(), position=before, limit=2)
    ):
        assert len(page) <= 2
        seen += [call.id for call in page]
        before = page[-1].id

    assert seen == [call.id for call in reversed(calls)]


@pytest.mark.parametrize(
    "where",
    [
        CallFilter(client_session_id="s"),
        CallFilter(correlation_id="c"),
        CallFilter(status=CallStatus.INPUT_REQUIRED),
        CallFilter(upstream="time"),
        CallFilter(tool="now"),
        CallFilter(client_session_id="s", correlation_id="c"),
        CallFilter(
            client_session_id="s", correlation_id="c", status=CallStatus.INPUT_REQUIRED, upstream="time", tool="now"
        ),
        CallFilter(correlation_id="c", status=CallStatus.INPUT_REQUIRED, upstream="time", tool="now"),
    ],
)
async def test_a_list_is_narrowed_by_each_filter_and_by_all_together(store: Store, where: CallFilter) -> None:
    wanted = make_call(
        client_session_id="s", correlation_id="c", status=CallStatus.INPUT_REQUIRED, upstream="time", tool="now"
    )
    await insert_calls(
        store,
        wanted,
        make_call(client_session_id=None, correlation_id=None),
        replace(wanted, id="call_0", principal=BOB),
    )

    page = await store.read(lambda tx: tx.calls.list_page(ALICE, where, position=None, limit=10))

    assert page == [wanted]


LEASE = frozenset({"lease_owner", "lease_token", "lease_until"})
INPUTS = frozenset({"status", "phase", "input_requests", "input_responses", "input_round", "updated_at"})
DECIDED = {
    CallChange.DISPATCHED: {"dispatched_at", "runs", "updated_at"},
    CallChange.HANDLE: {"handle", "updated_at"},
    CallChange.PROGRESS: {"progress", "updated_at"},
    CallChange.INPUTS: INPUTS,
    CallChange.PARKED: INPUTS | LEASE | {"handle", "progress", "dispatched_at", "runs"},
    CallChange.QUEUED: (INPUTS - {"input_round"}) | LEASE | {"handle", "dispatched_at", "runs"},
    CallChange.CANCELLING: {"cancel_requested", "updated_at"},
    CallChange.UNATTENDED: {"attended_until"},
    CallChange.ENDED: {
        *(INPUTS - {"input_round"} | LEASE),
        *("outcome", "progress", "error", "result_bytes", "result_sha256", "handle", "cancel_requested"),
        *("finished_at", "expires_at"),
    },
}
"""What each kind of change writes. Nothing writes `token_version`, which only `revoke_tokens` does."""


@pytest.mark.parametrize("change", CallChange)
async def test_an_update_writes_what_its_change_decides_and_nothing_else(store: Store, change: CallChange) -> None:
    call = make_call(lease_owner="runner-1", lease_token="lease_1", lease_until=LATER, attended_until=START)
    await insert_calls(store, call)
    other = replace(
        apply_completion(call, completion_from_result(b"{}", is_error=True), now=LATER, result_retention_seconds=60),
        handle=HANDLE,
        input_requests={"r1.1": QUESTION},
        input_responses={"a": {}},
        input_round=1,
        progress=Progress(progress=1),
        cancel_requested=True,
        dispatched_at=LATER,
        runs=1,
        token_version=2,
        deadline_at=LATER,
        attended_until=LATER,
    )

    updated = await store.write(
        lambda tx: tx.calls.update(other, change, expected=CallStatus.WORKING, lease_token="lease_1")
    )

    decided = {name: getattr(other, name) for name in DECIDED[change]}
    assert updated
    assert await get_call(store, call) == replace(call, **decided)


async def test_a_cancellation_request_is_kept_when_the_call_ends_otherwise(store: Store) -> None:
    call = make_call()
    await insert_calls(store, call)
    requested = replace(call, cancel_requested=True)
    await store.write(
        lambda tx: tx.calls.update(requested, CallChange.CANCELLING, expected=call.status, lease_token=None)
    )
    ended = apply_completion(
        call, completion_from_result(b"{}", is_error=False), now=LATER, result_retention_seconds=60
    )

    await store.write(lambda tx: tx.calls.update(ended, CallChange.ENDED, expected=call.status, lease_token=None))

    assert await get_call(store, call) == replace(ended, cancel_requested=True)


async def test_revoking_raises_the_version_that_the_row_has_now(store: Store) -> None:
    call = make_call()
    await insert_calls(store, call)

    versions = [await store.write(lambda tx: tx.calls.revoke_tokens(call.id, now=LATER)) for _ in range(2)]

    assert versions == [2, 3]
    assert await get_call(store, call) == replace(call, token_version=3, updated_at=LATER)
    assert await store.write(lambda tx: tx.calls.revoke_tokens(CallId("call_0"), now=LATER)) is None


@pytest.mark.parametrize(
    ("expected", "lease_token"), [(CallStatus.INPUT_REQUIRED, None), (CallStatus.WORKING, "lease_2")]
)
async def test_an_update_that_comes_too_late_writes_nothing(
    store: Store, expected: CallStatus, lease_token: str | None
) -> None:
    call = make_call(lease_owner="runner-1", lease_token="lease_1", lease_until=LATER)
    await insert_calls(store, call)

    updated = await store.write(
        lambda tx: tx.calls.update(
            replace(call, runs=9), CallChange.DISPATCHED, expected=expected, lease_token=lease_token
        )
    )

    assert not updated
    assert await get_call(store, call) == call


async def test_a_result_is_kept_byte_for_byte(store: Store) -> None:
    call = make_call()
    result = b'{"content":[]}\n\x00\xff' * 100_000
    await insert_calls(store, call)

    before = await store.read(lambda tx: tx.call_completions.get_result(call.id))
    await store.write(lambda tx: tx.call_completions.put_results({call.id: result}))

    assert before is None
    assert await store.read(lambda tx: tx.call_completions.get_result(call.id)) == result
