"""Calls that wait to start: the filter that finds them, how many there are, and what they wait for."""

from dataclasses import replace
from datetime import timedelta

import httpx
import pytest

from ringback.domain.call import MRTR_DRIVER, CallPhase, Handle, WaitCause
from ringback.domain.clock import format_iso
from ringback.domain.principal import Scope
from tests.support.builders import make_call
from tests.support.clock import START
from tests.support.service import CALL_BODY, ServiceUnderTest
from tests.support.viewer_browser import sign_in

OPERATOR = frozenset({Scope.ADMIN, Scope.READ})


async def start(client: httpx.AsyncClient, **over: object) -> str:
    answer = await client.post("/v1/calls", json=CALL_BODY | over)
    assert answer.status_code == 202, answer.text
    return answer.json()["call"]["id"]


async def test_the_list_separates_calls_that_wait_to_start_from_those_that_were_sent(
    service: ServiceUnderTest, alice: httpx.AsyncClient, bob: httpx.AsyncClient
) -> None:
    waiting, running, given_up = [await start(alice) for _ in range(3)]
    await start(bob)
    await service.mark_dispatched(running)
    await alice.post(f"/v1/calls/{given_up}/cancel")

    async def list_ids(**where: str) -> list[str]:
        return [each["id"] for each in (await alice.get("/v1/calls", params=where)).json()["calls"]]

    assert await list_ids(status="working", started="false") == [waiting]
    assert await list_ids(started="false") == [given_up, waiting]
    assert await list_ids(started="true") == [running]
    assert await list_ids(started="false", upstream="other") == []


async def count_queued(client: httpx.AsyncClient) -> dict[str, int]:
    return {each["name"]: each["queued_calls"] for each in (await client.get("/v1/upstreams")).json()["upstreams"]}


async def test_an_upstream_shows_how_many_of_the_callers_calls_are_queued_and_none_of_others(
    service: ServiceUnderTest, alice: httpx.AsyncClient, bob: httpx.AsyncClient
) -> None:
    operator = await service.create_client("operator", scopes=OPERATOR)
    _, running, _ = [await start(alice) for _ in range(3)]
    await start(bob)
    await start(bob, not_before=format_iso(service.clock.now() + timedelta(hours=1)))
    await service.mark_dispatched(running)

    of_alice, of_bob, of_all = await count_queued(alice), await count_queued(bob), await count_queued(operator)

    assert (of_alice["git"], of_bob["git"], of_all["git"]) == (2, 1, 3)
    assert {name for name, count in of_all.items() if count} == {"git"}


async def test_metrics_count_queued_calls_by_upstream(
    service: ServiceUnderTest, alice: httpx.AsyncClient, bob: httpx.AsyncClient
) -> None:
    scraper = await service.create_client("prometheus", scopes=frozenset({Scope.METRICS}))
    idle = (await scraper.get("/metrics")).text
    await start(alice)
    await start(bob)
    removed = make_call(upstream="removed")
    await service.store.write(lambda tx: tx.calls.insert(removed))

    busy = (await scraper.get("/metrics")).text

    assert 'ringback_queued_calls{upstream="git"} 0.0' in idle
    assert 'ringback_queued_calls{upstream="git"} 2.0' in busy
    assert 'ringback_queued_calls{upstream="removed"} 1.0' in busy


async def test_the_pages_of_upstreams_show_the_viewers_queued_calls(
    service: ServiceUnderTest, alice: httpx.AsyncClient, bob: httpx.AsyncClient
) -> None:
    await start(alice)
    await start(bob)
    reader, operator = (await sign_in(service, "alice"), await sign_in(service, "operator", scopes=OPERATOR))

    own, of_all = [(await each.open("/upstreams/git")).text for each in (reader, operator)]

    assert 'started=false&amp;upstream=git">1</a> <span class="muted">(your own)' in own
    assert 'started=false&amp;upstream=git">2</a> <span class="muted">(of all principals)' in of_all
    assert '<td class="number">1</td>' in (await reader.open("/upstreams")).text


async def test_a_call_that_does_not_run_says_what_it_waits_for(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    scheduled = await start(alice, not_before=format_iso(service.clock.now() + timedelta(hours=1)))
    queued, running, ended, parked = [await start(alice) for _ in range(4)]
    await service.mark_dispatched(running)
    await service.finish_call(ended)
    await service.request_input(parked, "name")

    async def read_cause(call_id: str) -> str | None:
        return (await alice.get(f"/v1/calls/{call_id}")).json()["waits_for"]

    assert [await read_cause(each) for each in (scheduled, queued)] == ["not_before", "queue"]
    assert [await read_cause(each) for each in (running, ended, parked)] == [None, None, None]


def test_a_call_that_a_runner_has_not_sent_yet_waits_for_its_upstream() -> None:
    leased = make_call(phase=CallPhase.RUNNING)

    assert leased.waits_for is WaitCause.UPSTREAM
    assert replace(leased, dispatched_at=leased.created_at).waits_for is None


@pytest.mark.parametrize(("driver", "waits_for"), [(MRTR_DRIVER, WaitCause.QUEUE), ("task", None)])
def test_a_queued_call_that_was_sent_waits_unless_its_upstream_runs_it(
    driver: str, waits_for: WaitCause | None
) -> None:
    """Between two rounds nothing runs. The task of a node that died, or that was adopted, runs without a runner."""
    call = make_call(dispatched_at=START, handle=Handle(driver=driver, data={}))

    assert call.waits_for is waits_for
