"""Calls that wait to start: the filter that finds them."""

import httpx

from tests.support.service import CALL_BODY, ServiceUnderTest


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
