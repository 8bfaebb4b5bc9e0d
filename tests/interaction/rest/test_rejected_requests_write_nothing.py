"""Requests are rejected before their first write, so a rejection does not roll back a shared commit."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import httpx
import pytest

from ringback.domain.ports import Transaction
from ringback.domain.principal import DEFAULT_SCOPES, Scope
from ringback.domain.verification import CHALLENGES_PER_ORIGIN_AND_PRINCIPAL_MAX
from ringback.domain.webhook import PREVIOUS_SECRETS_MAX
from ringback.services.limits.quotas import Quotas
from ringback.services.webhooks.verification import VerificationPolicy
from ringback.storage.rows.transaction import SqlTransaction
from ringback.storage.sqlite.statements import SqliteStatements
from tests.support.service import CALL_BODY, CALLBACK_URL, ServiceUnderTest, running_service

pytestmark = pytest.mark.sqlite_only("a shared commit is SQLite's, and so is its count of changes")

T = TypeVar("T")
CALLBACK = {"callback": {"url": CALLBACK_URL}}
RESULT: dict[str, Any] = {"content": []}
REPORT: dict[str, Any] = {"key": "build-1", "upstream": "build-farm", "tool": "build"}


@pytest.fixture
async def service(tmp_path: Path) -> AsyncGenerator[ServiceUnderTest]:
    async with running_service(tmp_path, quotas=Quotas(open_calls=20, webhooks=20)) as running:
        yield running


@pytest.fixture
async def alice(service: ServiceUnderTest) -> httpx.AsyncClient:
    return await service.create_client("alice", scopes=DEFAULT_SCOPES | {Scope.ADOPT})


@pytest.fixture
def written_by_refused(service: ServiceUnderTest, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of written rows of each unit of work that raised."""
    written: list[int] = []
    write = service.store.write

    async def recording_write(work: Callable[[Transaction], Awaitable[T]]) -> T:
        async def noted(tx: Transaction) -> T:
            statements = cast("SqliteStatements", cast("SqlTransaction", tx).unit.open_statements("calls"))
            connection = statements._connection  # pyright: ignore[reportPrivateUsage]
            before = connection.total_changes
            try:
                return await work(tx)
            except Exception:
                written.append(connection.total_changes - before)
                raise

        return await write(noted)

    monkeypatch.setattr(service.store, "write", recording_write)
    return written


async def assert_rejected(answer: Awaitable[httpx.Response]) -> None:
    assert (await answer).status_code in {404, 409, 422, 429}


async def test_a_call_refused_by_its_rules_writes_nothing(
    service: ServiceUnderTest, alice: httpx.AsyncClient, written_by_refused: list[int]
) -> None:
    ended = (await alice.post("/v1/calls", json=CALL_BODY)).json()["call"]["id"]
    await service.finish_call(ended)
    await alice.post("/v1/calls/report", json=REPORT | {"result": RESULT})
    for _ in range(20):
        await alice.post("/v1/calls", json=CALL_BODY)

    await assert_rejected(alice.post("/v1/calls/call_01a/cancel"))
    await assert_rejected(alice.post(f"/v1/calls/{ended}/input", json={"responses": {"r1.1": {"action": "accept"}}}))
    await assert_rejected(alice.post("/v1/calls", json=CALL_BODY))
    await assert_rejected(alice.post("/v1/calls", json=CALL_BODY | CALLBACK))
    await assert_rejected(alice.post("/v1/calls/report", json=REPORT | {"key": "build-2"}))
    await assert_rejected(alice.post("/v1/calls/report", json=REPORT | {"result": RESULT | {"isError": True}}))

    assert len(written_by_refused) >= 5
    assert sum(written_by_refused) == 0


async def test_a_webhook_refused_by_its_rules_writes_nothing(
    service: ServiceUnderTest,
    alice: httpx.AsyncClient,
    written_by_refused: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def register(path: str) -> httpx.Response:
        return await alice.post("/v1/webhooks", json={"url": CALLBACK_URL + path, "events": ["call.finished"]})

    webhook: dict[str, Any] = (await register("")).json()
    path = f"/v1/webhooks/{webhook['id']}"
    for _ in range(PREVIOUS_SECRETS_MAX):
        await alice.post(f"{path}/rotate-secret")
    await assert_rejected(alice.post(f"{path}/rotate-secret"))
    monkeypatch.setattr(
        service.services.registrations._verification,  # pyright: ignore[reportPrivateUsage] - as an operator's setting
        "_policy",
        VerificationPolicy(mode="always", first_challenge_wait_seconds=0.0),
    )
    for number in range(CHALLENGES_PER_ORIGIN_AND_PRINCIPAL_MAX):
        await register(f"/{number}")

    await assert_rejected(register("/one-more"))
    await assert_rejected(alice.patch(path, json={"url": f"{CALLBACK_URL}/moved"}))
    await assert_rejected(alice.post("/v1/calls", json=CALL_BODY | CALLBACK))
    await assert_rejected(alice.post("/v1/calls/report", json=REPORT | CALLBACK))

    assert len(written_by_refused) >= 5
    assert sum(written_by_refused) == 0
