"""Every wait over REST is bounded by RINGBACK_WAIT_SECONDS_MAX; up to 60 s may be asked for."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from ringback.domain.ids import CallId
from ringback.settings import Settings
from tests.support.application import PUBLIC_URL, running_application
from tests.support.service import CALL_BODY, ServiceUnderTest

ASKED: Final = 60
MODULES: Final = ("calls.calls", "events.events", "calls.resume")
Requests = Callable[[str, str], list[tuple[str, str, dict[str, Any]]]]


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits that responses were held for; here they end at once."""
    waits: list[float] = []
    for name in MODULES:
        module = importlib.import_module(f"ringback.services.{name}")
        poll_until: Any = module.poll_until

        async def poll_once(*args: Any, wait_seconds: float, poll_until: Any = poll_until, **options: Any) -> Any:
            waits.append(wait_seconds)
            return await poll_until(*args, wait_seconds=0.0, **options)

        monkeypatch.setattr(module, "poll_until", poll_once)
    return waits


async def test_every_wait_ends_before_proxies_cut_it_off(alice: httpx.AsyncClient, waits: list[float]) -> None:
    started = (await alice.post("/v1/calls", json=CALL_BODY | {"wait_seconds": ASKED})).json()
    call_id, token = started["call"]["id"], started["resume_token"]
    answers = [
        await alice.get(f"/v1/calls/{call_id}", params={"wait_seconds": ASKED}),
        await alice.post("/v1/calls/wait", json={"call_ids": [call_id], "wait_seconds": ASKED}),
        await alice.post("/v1/resume", json={"resume_token": token, "wait_seconds": ASKED}),
        await alice.get("/v1/events", params={"wait_seconds": ASKED}),
    ]

    assert [answer.status_code for answer in answers] == [200] * 4
    assert waits == [45.0] * 5


async def test_a_shorter_wait_is_kept_and_a_longer_one_than_60_seconds_refused(
    alice: httpx.AsyncClient, waits: list[float]
) -> None:
    await alice.get("/v1/events", params={"wait_seconds": 7})
    refused = await alice.get("/v1/events", params={"wait_seconds": 61})

    assert waits == [7.0]
    assert refused.status_code == 422


async def test_a_client_counts_as_waiting_only_while_its_response_is_held(
    service: ServiceUnderTest, alice: httpx.AsyncClient, waits: list[float]
) -> None:
    """Otherwise the callback of a call that ends after that time would be withheld."""
    started = (await alice.post("/v1/calls", json=CALL_BODY | {"wait_seconds": ASKED})).json()

    stored = await service.store.read(lambda tx: tx.calls.get(CallId(started["call"]["id"])))

    assert waits == [45.0]
    assert stored is not None
    assert stored.attended_until is not None
    assert (stored.attended_until - stored.created_at).total_seconds() == 45


async def test_the_operator_chooses_the_longest_wait(tmp_path: Path, waits: list[float]) -> None:
    async with running_application(tmp_path, auth="off", wait_seconds_max=20) as ringback:
        api = httpx.ASGITransport(app=ringback.app.api)
        async with httpx.AsyncClient(transport=api, base_url=PUBLIC_URL) as http:
            await http.get("/v1/events", params={"wait_seconds": ASKED})

    assert waits == [20.0]


def test_the_defaults_fit_clients_that_give_up_after_5_seconds_and_proxies_that_cut_after_50() -> None:
    settings = Settings(_env_file=None)  # pyright: ignore[reportCallIssue] - pydantic-settings takes it

    assert settings.inline_wait_seconds < 5
    assert settings.wait_seconds_max < 50
