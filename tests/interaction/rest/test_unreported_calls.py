"""Ending the calls of a dead reporter in pages does not undo concurrent changes."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import httpx
import pytest

from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import DEFAULT_SCOPES, Caller, Principal, Scope
from tests.support.service import ServiceUnderTest
from tests.support.stores import StoreWrapper

T = TypeVar("T")
KEY = "process-1/1"
GiveUp = Callable[[Callable[[], Awaitable[object]]], Awaitable[int]]


class Interrupted(StoreWrapper):
    """A store that runs a test's action between its user's first read and first write."""

    def __init__(self, store: Store, between: Callable[[], Awaitable[object]]) -> None:
        super().__init__(store)
        self._between = between
        self._has_read = False

    async def read(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        self._has_read = True
        return await super().read(work)

    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        if self._has_read:
            self._has_read = False
            await self._between()
        return await super().write(work)


async def reported(reporter: httpx.AsyncClient) -> tuple[str, str]:
    """The id and the resume token of a reported call without an end."""
    answer = await reporter.post("/v1/calls/report", json={"key": KEY, "upstream": "reports", "tool": "build"})
    return answer.json()["call"]["id"], answer.json()["resume_token"]


@pytest.fixture
def give_up(service: ServiceUnderTest, monkeypatch: pytest.MonkeyPatch) -> GiveUp:
    """Give up Carol's calls, with an action between the transaction that finds them and the one that ends them."""

    async def give_up(between: Callable[[], Awaitable[object]]) -> int:
        monkeypatch.setattr(service.services.reports, "_store", Interrupted(service.store, between))
        caller = Caller(principal=Principal("carol"), scopes=DEFAULT_SCOPES | {Scope.ADOPT})
        return await service.services.reports.give_up_calls(caller, key_prefix="process-1/")

    return give_up


async def test_a_token_that_is_revoked_while_its_call_is_given_up_stays_revoked(
    service: ServiceUnderTest, give_up: GiveUp
) -> None:
    carol = await service.create_client("carol", scopes=DEFAULT_SCOPES | {Scope.ADOPT})
    call_id, revoked = await reported(carol)
    fresh: list[str] = []

    async def revoke() -> None:
        answer = await carol.post(f"/v1/calls/{call_id}/resume-token", json={"revoke_older": True})
        fresh.append(answer.json()["resume_token"])

    assert await give_up(revoke) == 1

    answers = [await carol.post("/v1/resume", json={"resume_token": token}) for token in (revoked, *fresh)]
    assert [answer.status_code for answer in answers] == [404, 200]
    assert answers[1].json()["call"]["outcome"] == "unknown"


async def test_a_call_that_ends_while_it_is_given_up_keeps_its_own_end(
    service: ServiceUnderTest, give_up: GiveUp
) -> None:
    carol = await service.create_client("carol", scopes=DEFAULT_SCOPES | {Scope.ADOPT})
    call_id, _ = await reported(carol)

    assert await give_up(lambda: service.finish_call(call_id)) == 0

    assert (await carol.get(f"/v1/calls/{call_id}")).json()["outcome"] == "result"
