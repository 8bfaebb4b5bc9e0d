"""Checks against the schemas of upstreams have a limited part of each second for one principal, so that others are served."""

from typing import Any

import httpx
import pytest

from ringback.domain.rate_limiter import RateLimit
from ringback.services.limits import schema_checks
from tests.support.service import CALL_BODY, ServiceUnderTest

WRONG: dict[str, Any] = {**CALL_BODY, "arguments": {"repo_path": 7}}
NAME_SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}}
ACCEPTED = {"responses": {"r1.1": {"action": "accept", "content": {"name": 7}}}}


def allow_one_check(service: ServiceUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on, each check takes longer than a principal has."""
    service.clock.advance(1)  # nothing is left of earlier checks
    monkeypatch.setattr(schema_checks, "CHECK_RATE", RateLimit(per_second=0.001, burst=1))


def assert_refused(answer: httpx.Response) -> None:
    assert (answer.status_code, answer.json()["quota"]) == (429, "schema_checks")
    assert int(answer.headers["retry-after"]) > 0


@pytest.mark.parametrize("first", [CALL_BODY, WRONG])
async def test_starts_are_refused_while_the_arguments_of_earlier_ones_took_too_long_to_check(
    service: ServiceUnderTest,
    alice: httpx.AsyncClient,
    bob: httpx.AsyncClient,
    monkeypatch: pytest.MonkeyPatch,
    first: dict[str, Any],
) -> None:
    allow_one_check(service, monkeypatch)
    await alice.post("/v1/calls", json=first)
    before = service.count_rows()

    assert_refused(await alice.post("/v1/calls", json=CALL_BODY))
    assert_refused(await alice.post("/v1/calls/batch", json={"calls": [CALL_BODY]}))

    assert service.count_rows() == before
    assert (await bob.post("/v1/calls", json=CALL_BODY)).status_code == 202


async def test_answers_are_refused_while_earlier_ones_took_too_long_to_check(
    service: ServiceUnderTest, alice: httpx.AsyncClient, bob: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths: list[str] = []
    for client in (alice, bob):
        call_id = (await client.post("/v1/calls", json=CALL_BODY | {"accepts_input": True})).json()["call"]["id"]
        await service.request_input(call_id, "name", schema=NAME_SCHEMA)
        paths.append(f"/v1/calls/{call_id}/input")
    allow_one_check(service, monkeypatch)

    wrong = [await alice.post(paths[0], json=ACCEPTED) for _ in range(2)]

    assert wrong[0].status_code == 422
    assert_refused(wrong[1])
    assert (await bob.post(paths[1], json=ACCEPTED)).status_code == 422
