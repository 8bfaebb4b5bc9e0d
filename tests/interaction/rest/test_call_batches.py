"""A batch of calls: all of them are started, or none."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from ringback.domain.clock import format_iso
from ringback.domain.ports import Transaction
from ringback.domain.principal import Principal, Scope
from ringback.domain.upstreams import CheckWork
from ringback.services.limits.quotas import QuotaOverrides, Quotas
from ringback.upstreams.catalog.tool_catalog import UpstreamToolCatalog
from tests.support.service import CALL_BODY, CALLBACK_URL, ServiceUnderTest, running_service

pytestmark = pytest.mark.requirement("R11")

OTHER_CALL = CALL_BODY | {"tool": "git_status"}


async def start_batch(client: httpx.AsyncClient, *calls: dict[str, Any]) -> httpx.Response:
    return await client.post("/v1/calls/batch", json={"calls": calls})


async def test_a_batch_returns_its_calls_in_their_order(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    answer = await start_batch(alice, *([CALL_BODY, OTHER_CALL] * 20))

    started = answer.json()["calls"]
    assert answer.status_code == 202
    assert [each["call"]["tool"] for each in started] == ["git_log", "git_status"] * 20
    assert {(each["call"]["status"], each["replayed"], each["resume_token"] != "") for each in started} == {
        ("working", False, True)
    }
    assert [each["call_id"] for each in started] == [each["call"]["id"] for each in started]
    assert service.count_rows()["calls"] == 40


@pytest.mark.usefixtures("shared_service")
async def test_a_key_for_the_whole_batch_is_refused(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    """Ignored, it would let a client that repeats its request start every call again."""
    before = service.count_rows()

    answer = await alice.post("/v1/calls/batch", json={"calls": [CALL_BODY]}, headers={"Idempotency-Key": "b1"})

    assert answer.status_code == 422
    assert "Give each of its calls an `idempotency_key`" in answer.json()["detail"]
    assert service.count_rows() == before


@pytest.mark.requirement("R13")
async def test_a_repeated_batch_returns_the_same_calls(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    batch = [CALL_BODY | {"idempotency_key": "a"}, OTHER_CALL | {"idempotency_key": "b"}]
    first = (await start_batch(alice, *batch)).json()["calls"]
    again = (await start_batch(alice, *batch, CALL_BODY | {"idempotency_key": "c"})).json()["calls"]
    single = await alice.post("/v1/calls", json=CALL_BODY, headers={"Idempotency-Key": "a"})

    assert [each["call_id"] for each in again[:2]] == [each["call_id"] for each in first]
    assert [each["replayed"] for each in again] == [True, True, False]
    assert single.json()["call_id"] == first[0]["call_id"]
    assert service.count_rows()["calls"] == 3


async def test_a_key_that_repeats_within_a_batch_is_one_call(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    twice = [CALL_BODY | {"idempotency_key": "a"}] * 2

    started = (await start_batch(alice, *twice)).json()["calls"]

    assert started[0]["call_id"] == started[1]["call_id"]
    assert service.count_rows()["calls"] == 1


@pytest.mark.usefixtures("shared_service")
@pytest.mark.parametrize(
    ("refused", "status", "slug"),
    [
        ({"tool": "git_lgo"}, 422, "unknown-tool"),
        ({"upstream": "none"}, 422, "unknown-upstream"),
        ({"arguments": {}}, 422, "invalid-arguments"),
        ({"callback": {"url": "https://10.0.0.1/"}}, 422, "invalid-callback-url"),
        ({"not_before": "2100-01-01T00:00:00Z"}, 422, "invalid-request"),
        ({"idempotency_key": "used"}, 409, "idempotency-conflict"),
        ({"idempotency_key": "first", "tool": "git_status"}, 409, "idempotency-conflict"),
    ],
)
async def test_one_refused_call_refuses_the_batch_and_is_named(
    service: ServiceUnderTest, alice: httpx.AsyncClient, refused: dict[str, Any], status: int, slug: str
) -> None:
    await alice.post("/v1/calls", json=OTHER_CALL, headers={"Idempotency-Key": "used"})
    before = service.count_rows()

    first = CALL_BODY | {"callback": {"url": CALLBACK_URL}, "idempotency_key": "first"}
    answer = await start_batch(alice, first, CALL_BODY, CALL_BODY | refused)

    problem = answer.json()
    assert (answer.status_code, problem["type"], problem["index"]) == (status, f"/problems/{slug}", 2)
    assert problem["detail"].startswith("calls[2]: ")
    assert problem["detail"].endswith(". No call of the batch was started.")
    assert service.count_rows() == before


@pytest.mark.usefixtures("shared_service")
async def test_a_batch_needs_the_scopes_of_its_calls(service: ServiceUnderTest) -> None:
    caller = await service.create_client("alice", scopes=frozenset({Scope.CALLS}))
    before = service.count_rows()

    answer = await start_batch(caller, CALL_BODY, CALL_BODY | {"callback": {"url": CALLBACK_URL}})

    assert (answer.status_code, answer.json()["scope"]) == (403, "webhooks")
    assert service.count_rows() == before


@pytest.mark.usefixtures("shared_service")
@pytest.mark.parametrize("count", [0, 101])
async def test_a_batch_has_one_to_a_hundred_calls(
    service: ServiceUnderTest, alice: httpx.AsyncClient, count: int
) -> None:
    before = service.count_rows()

    assert (await start_batch(alice, *([CALL_BODY] * count))).status_code == 422
    assert service.count_rows() == before


async def test_the_quota_of_calls_is_checked_once_for_a_batch(
    service: ServiceUnderTest, alice: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each check is a query: on PostgreSQL a round trip."""
    counts, check = list[int](), service.quotas.require_call_quota

    async def note_check(tx: Transaction, principal: Principal, *, count: int = 1, argument_bytes: int) -> None:
        counts.append(count)
        await check(tx, principal, count=count, argument_bytes=argument_bytes)

    monkeypatch.setattr(service.quotas, "require_call_quota", note_check)

    assert (await start_batch(alice, *[CALL_BODY] * 5)).status_code == 202
    assert (await alice.post("/v1/calls", json=CALL_BODY)).status_code == 202

    assert counts == [5, 1]


async def test_the_quotas_of_a_batch_are_counted_before_anything_is_stored(tmp_path: Path) -> None:
    async with running_service(tmp_path, quotas=Quotas(open_calls=3, starts_per_minute=8)) as service:
        alice = await service.create_client("alice")
        too_many_open = await start_batch(alice, *([CALL_BODY] * 4))
        fitting = await start_batch(alice, *([CALL_BODY | {"idempotency_key": "a"}] * 3))
        too_many_starts = await start_batch(alice, *([CALL_BODY] * 2))

        assert (too_many_open.status_code, too_many_open.json()["quota"]) == (429, "open_calls")
        assert fitting.status_code == 202
        assert (too_many_starts.status_code, too_many_starts.json()["quota"]) == (429, "starts_per_minute")
        assert (await start_batch(alice, CALL_BODY | {"idempotency_key": "a"})).status_code == 202
        assert service.count_rows()["calls"] == 1


async def test_a_batch_that_is_repeated_after_the_quota_was_lowered_returns_its_calls(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    batch = [CALL_BODY | {"idempotency_key": key} for key in ("a", "b")]
    first = await start_batch(alice, *batch)
    service.quotas.replace_overrides(QuotaOverrides(principals={Principal("alice"): Quotas(open_calls=1)}))

    again = await start_batch(alice, *batch)
    longer = await start_batch(alice, *batch, CALL_BODY)

    assert again.status_code == 202, again.text
    assert [each["call_id"] for each in again.json()["calls"]] == [each["call_id"] for each in first.json()["calls"]]
    assert (longer.status_code, longer.json()["quota"]) == (429, "open_calls")


async def test_a_batch_that_is_sent_twice_at_once_uses_the_quota_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both_are_new, check = asyncio.Barrier(2), UpstreamToolCatalog.check_call

    async def check_when_both_are_new(*arguments: Any, **options: Any) -> None:
        await both_are_new.wait()
        await check(*arguments, **options)

    async with running_service(tmp_path, quotas=Quotas(open_calls=1)) as service:
        alice = await service.create_client("alice")
        monkeypatch.setattr(UpstreamToolCatalog, "check_call", check_when_both_are_new)
        batch = CALL_BODY | {"idempotency_key": "a"}
        first, second = await asyncio.gather(start_batch(alice, batch), start_batch(alice, batch))

    assert (first.status_code, second.status_code) == (202, 202), first.text + second.text
    assert first.json()["calls"][0]["call_id"] == second.json()["calls"][0]["call_id"]


async def test_each_call_of_a_batch_has_its_own_callback(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    own = [
        CALL_BODY | {"client_session_id": None, "callback": {"url": f"{CALLBACK_URL}/{number}"}} for number in (1, 2)
    ]

    started = (await start_batch(alice, *own)).json()["calls"]
    await service.finish_call(started[1]["call_id"])

    (delivery,) = await service.read_deliveries("alice")
    assert [len(each["webhooks"]) for each in started] == [1, 1]
    assert all(each["callback_secret"].startswith("whsec_") for each in started)
    assert delivery.webhook_id == started[1]["webhooks"][0]["id"]


async def test_the_calls_of_a_batch_may_start_later(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    not_before = format_iso(service.clock.now() + timedelta(hours=1))

    (started,) = (await start_batch(alice, CALL_BODY | {"not_before": not_before})).json()["calls"]

    assert started["call"]["not_before"] == not_before


async def test_the_checks_of_a_batch_share_their_limit_and_other_tasks_run_between_them(
    alice: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_call, works, turns = UpstreamToolCatalog.check_call, list[CheckWork](), list[int]()

    async def check(*args: Any, work: CheckWork, **options: Any) -> None:
        works.append(work)
        asyncio.get_running_loop().call_soon(turns.append, len(works))
        assert turns == list(range(1, len(works))), "another task ran after each check"
        await check_call(*args, work=work, **options)

    monkeypatch.setattr(UpstreamToolCatalog, "check_call", check)
    assert (await start_batch(alice, *([CALL_BODY] * 5))).status_code == 202

    assert len(works) == 5
    assert len(set(map(id, works))) == 1
