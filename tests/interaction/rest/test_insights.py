"""GET /v1/insights, GET /v1/sessions and GET /v1/sessions/{id}."""

from urllib.parse import quote

import httpx

from ringback.domain.principal import Scope
from tests.support.service import CALL_BODY, ServiceUnderTest

SESSION = "runs/2026 №7"


async def start(client: httpx.AsyncClient, session: str) -> str:
    answer = await client.post("/v1/calls", json={**CALL_BODY, "client_session_id": session})
    assert answer.status_code == 202
    return answer.json()["call_id"]


async def test_insights_count_what_has_just_happened_and_what_is_open(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient
) -> None:
    call_id = await start(alice, SESSION)
    await start(alice, SESSION)
    await start(bob, SESSION)
    await alice.post(f"/v1/calls/{call_id}/cancel")

    insights = (await alice.get("/v1/insights", params={"hours": 3})).json()

    assert insights["open_calls"] == {"working": 1, "input_required": 0}
    assert insights["queued_calls"] == 1
    assert [hour["calls_started"] for hour in insights["hours"]] == [0, 0, 2]
    assert insights["hours"][-1]["calls_by_outcome"] == {"cancelled": 1}
    assert [(each["upstream"], each["calls_started"]) for each in insights["upstreams"]] == [(CALL_BODY["upstream"], 2)]


async def test_a_session_is_listed_at_its_newest_call_and_read_with_its_calls(
    service: ServiceUnderTest, alice: httpx.AsyncClient, bob: httpx.AsyncClient
) -> None:
    first = await start(alice, SESSION)
    other = await start(alice, "other")
    second = await start(alice, SESSION)
    await start(bob, SESSION)
    token = (await alice.post(f"/v1/calls/{first}/resume-token")).json()["resume_token"]
    await alice.post("/v1/resume", json={"resume_token": token})
    await service.services.call_resumes.write_pending()

    listed = (await alice.get("/v1/sessions", params={"limit": 1})).json()
    rest = (await alice.get("/v1/sessions", params={"cursor": listed["next_cursor"]})).json()
    session = (await alice.get(f"/v1/sessions/{quote(SESSION, safe='')}")).json()

    assert [(each["client_session_id"], each["last_call_id"]) for each in listed["sessions"]] == [(SESSION, second)]
    assert [(each["client_session_id"], each["last_call_id"]) for each in rest["sessions"]] == [("other", other)]
    assert rest["next_cursor"] is None
    assert (session["call_count"], session["is_complete"]) == (2, True)
    assert session["calls_by_status"] == {"working": 2}
    assert session["resumed_calls"] == 1
    assert [call["id"] for call in session["calls"]] == [second, first]
    assert (await bob.get("/v1/sessions/other")).status_code == 404


async def test_an_operator_reads_all_principals_and_names_one_for_a_session(
    service: ServiceUnderTest, alice: httpx.AsyncClient, bob: httpx.AsyncClient
) -> None:
    admin = await service.create_client("operator", scopes=frozenset({Scope.ADMIN}))
    await start(alice, SESSION)
    await start(bob, SESSION)

    overview = (await admin.get("/v1/insights", params={"principal": "*", "hours": 1})).json()
    sessions = (await admin.get("/v1/sessions", params={"principal": "*"})).json()["sessions"]
    unnamed = await admin.get(f"/v1/sessions/{quote(SESSION)}", params={"principal": "*"})
    named = await admin.get(f"/v1/sessions/{quote(SESSION)}", params={"principal": "bob"})

    assert overview["hours"][0]["calls_started"] == 2
    assert {(each["principal"], each["client_session_id"]) for each in sessions} == {
        ("alice", SESSION),
        ("bob", SESSION),
    }
    assert unnamed.status_code == 422
    assert [call["principal"] for call in named.json()["calls"]] == ["bob"]


async def test_hours_outside_the_kept_time_are_refused(alice: httpx.AsyncClient) -> None:
    for hours in ("0", "2161", "many"):
        assert (await alice.get("/v1/insights", params={"hours": hours})).status_code == 422


async def test_insights_say_that_an_operator_sees_its_own_principal_only(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    operator = await service.create_client("operator", scopes=frozenset({Scope.ADMIN, Scope.READ}))

    responses = [
        await alice.get("/v1/insights"),
        await operator.get("/v1/insights"),
        await operator.get("/v1/insights", params={"principal": "*"}),
    ]

    assert [each.json()["leaves_out_others"] for each in responses] == [False, True, False]
