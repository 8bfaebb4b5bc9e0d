"""The list of calls and the page of a call in the dashboard."""

import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx
import pytest

from ringback.domain.call import Progress
from ringback.domain.call_outcome import CallOutcome, completion_from_result, failed_completion
from ringback.domain.call_rows import CallChange
from ringback.domain.delivery import DeliveryState
from ringback.domain.delivery_rows import DeliveryFilter
from ringback.domain.ids import CallId, DeliveryId
from ringback.domain.ports import Transaction
from ringback.domain.principal import Principal, Scope
from ringback.ui.pages.calls import GROWTH_SECONDS, SETTLED_AFTER
from tests.support.service import CALL_BODY, CALLBACK_URL, ServiceUnderTest
from tests.support.viewer_browser import sign_in

ATTACK = "<img src=x onerror=alert(1)>\"'{{7*7}}"


async def start(client: httpx.AsyncClient, **body: Any) -> str:
    started = await client.post("/v1/calls", json=CALL_BODY | body)
    assert started.status_code == 202, started.text
    return started.json()["call"]["id"]


async def test_the_list_shows_the_calls_of_the_viewer_and_none_of_others(service: ServiceUnderTest) -> None:
    alice, bob = await service.create_client("alice"), await service.create_client("bob")
    own, foreign = await start(alice), await start(bob)

    page = (await (await sign_in(service, "alice")).open("/calls")).text

    assert own in page
    assert foreign not in page


async def test_the_list_is_filtered_paged_and_searched_without_a_script(service: ServiceUnderTest) -> None:
    alice = await service.create_client("alice")
    calls = [await start(alice, correlation_id=f"report-{number}") for number in range(52)]
    browser = await sign_in(service, "alice")

    first = (await browser.open("/calls")).text
    older = first.split('rel="next" data-key="older" href="')[1].split('"')[0].replace("&amp;", "&").removeprefix("/ui")
    second = (await browser.http.get(f"/ui{older}")).text
    one = (await browser.open("/calls", correlation_id="report-7", status="working")).text
    await service.mark_dispatched(calls[4])
    waiting = (await browser.open("/calls", status="working", started="false", id_prefix=calls[4])).text
    running = (await browser.open("/calls", status="working", started="true")).text
    none = (await browser.open("/calls", status="failed")).text
    found = await browser.open("/calls", q=calls[3])
    some = await browser.open("/calls", q=calls[3][:9])
    some_page = (await browser.http.get(some.headers["location"])).text
    await service.finish_call(calls[5], failed_completion(CallOutcome.TIMED_OUT, "Too late."))
    failed = (await browser.open("/calls", outcome="failure", since="2020-01-01T00:00")).text
    late = (await browser.open("/calls", since="2999-01-01T00:00")).text

    assert calls[51] in first
    assert calls[2] in first
    assert calls[1] not in first
    assert calls[1] in second
    assert calls[0] in second
    assert calls[7] in one
    assert calls[8] not in one
    assert "No call matches these filters." in waiting
    assert (calls[4] in running, calls[7] in running) == (True, False)
    assert "No call matches these filters." in none
    assert found.headers["location"] == f"/ui/calls/{calls[3]}"
    assert some.headers["location"] == f"/ui/calls?id_prefix={calls[3][:9]}"
    assert calls[51] in some_page
    assert calls[5] in failed
    assert calls[6] not in failed
    assert "No call matches these filters." in late


@pytest.mark.usefixtures("shared_service")
@pytest.mark.parametrize(
    "query",
    [
        {"status": "odd"},
        {"outcome": "odd"},
        {"started": "yes"},
        {"since": "yesterday"},
        {"until": "0001-01-01T00:00"},
        {"until": "9999-12-31T23:59:59-23:59"},
        {"tool": "x" * 257},
        {"upstream": "a\x00b"},
        {"id_prefix": "call_é"},
        {"min_runs": "0"},
        {"min_delivery_attempts": "1"},
        {"min_delivery_attempts": "two"},
        {"cursor": "odd"},
        {"principal": "a\nb"},
    ],
)
async def test_a_filter_that_no_call_can_have_is_refused_with_a_sentence(
    service: ServiceUnderTest, query: dict[str, str]
) -> None:
    refused = await (await sign_in(service, "alice")).open("/calls", **query)

    assert refused.status_code == 422
    assert 'role="alert"' in refused.text


async def test_calls_that_ran_again_and_calls_with_retried_callbacks_are_listed(service: ServiceUnderTest) -> None:
    alice = await service.create_client("alice")
    calls = [await start(alice, callback={"url": CALLBACK_URL}) for _ in range(3)]
    for call_id in calls:
        await service.finish_call(call_id)

    async def repeat(tx: Transaction) -> None:
        (call,) = await tx.calls.get_many([CallId(calls[0])])
        ran_again = replace(call, runs=2)
        await tx.calls.update(ran_again, CallChange.DISPATCHED, expected=ran_again.status, lease_token=None)
        (delivery,) = await tx.deliveries.list_page(
            Principal("alice"), DeliveryFilter(call_id=CallId(calls[1])), position=None, limit=9
        )
        await tx.deliveries.insert([replace(delivery, id=DeliveryId("dlv_retried"), generation=2, attempts=3)])

    await service.store.write(repeat)
    browser, found = await sign_in(service, "alice"), dict[str, list[str]]()
    for query in ("min_runs=2", "min_runs=3", "min_delivery_attempts=3", "min_delivery_attempts=4", "min_runs=1"):
        listed = (await alice.get(f"/v1/calls?{query}")).json()["calls"]
        name, value = query.split("=")
        page = (await browser.open("/calls", **{name: value})).text
        found[query] = [each["id"] for each in listed]
        assert [call_id in page for call_id in calls] == [call_id in found[query] for call_id in calls]
    refused = await alice.get("/v1/calls", params={"min_delivery_attempts": 1})

    assert found == {
        "min_runs=2": [calls[0]],
        "min_runs=3": [],
        "min_runs=1": [calls[0]],
        "min_delivery_attempts=3": [calls[1]],
        "min_delivery_attempts=4": [],
    }
    assert "ran 2 times" in (await browser.open("/calls")).text
    assert refused.status_code == 422


async def test_the_page_of_a_call_shows_its_way_from_the_start_to_the_return_of_the_client(
    service: ServiceUnderTest,
) -> None:
    alice = await service.create_client("alice")
    started = await alice.post(
        "/v1/calls",
        json=CALL_BODY
        | {"arguments": {"repo_path": ATTACK}, "correlation_id": "c/1", "callback": {"url": CALLBACK_URL}},
    )
    call_id, token = started.json()["call"]["id"], started.json()["resume_token"]
    await service.mark_dispatched(call_id)
    await service.record_progress(call_id, Progress(progress=3, total=10, message=ATTACK))
    browser = await sign_in(service, "alice")
    running = (await browser.open(f"/calls/{call_id}")).text
    await service.finish_call(call_id)
    await service.settle_deliveries(await service.read_deliveries("alice"), DeliveryState.DELIVERED)
    await alice.post("/v1/resume", json={"resume_token": token})
    await service.services.call_resumes.write_pending()

    ended = (await browser.open(f"/calls/{call_id}")).text
    state = await browser.open(f"/calls/{call_id}/state", status="working")
    refresh = ended.split('hx-get="')[1].split('"')[0].replace("&amp;", "&")
    unchanged = await browser.http.get(refresh)
    await alice.post("/v1/resume", json={"resume_token": token})
    await service.services.call_resumes.write_pending()
    changed = await browser.http.get(refresh)

    assert "Progress: 3 of 10" in running
    assert "Cancel the call" in running
    assert ATTACK not in running
    assert "&lt;img src=x onerror=alert(1)&gt;" in running
    assert "{{7*7}}" in running
    for text in ("Call stored", "Ended: result", "Callback to agent.example", "Client returned with a resume token"):
        assert text in ended, text
    assert "<svg" in ended
    assert 'hx-trigger="every 5s' in ended
    assert "Cancel the call" not in ended
    assert state.headers["hx-refresh"] == "true"
    assert (unchanged.status_code, unchanged.content) == (204, b"")
    assert (changed.status_code, "2 times" in changed.text) == (200, True)
    assert "style=" not in ended


async def test_an_open_page_of_a_call_draws_its_time_and_asks_no_more_once_it_is_settled(
    service: ServiceUnderTest,
) -> None:
    alice = await service.create_client("alice")
    call_id = await start(alice)
    browser = await sign_in(service, "alice")

    async def refresh(page: str) -> httpx.Response:
        (path,) = re.findall(r'hx-get="([^"]+)"', page)
        return await browser.http.get(path.replace("&amp;", "&"))

    running = (await browser.open(f"/calls/{call_id}")).text
    service.clock.advance(GROWTH_SECONDS)
    grown = await refresh(running)
    await service.finish_call(call_id)
    ended = (await browser.open(f"/calls/{call_id}")).text
    service.clock.advance(GROWTH_SECONDS)
    unchanged = await refresh(ended)
    service.clock.advance(SETTLED_AFTER.total_seconds())
    settled = await refresh(ended)

    assert (grown.status_code, "<svg" in grown.text) == (200, True)
    assert all(words in grown.text for words in ("Grey: not started", "<title>Queued"))
    assert unchanged.status_code == 204
    assert (settled.status_code, "hx-get" in settled.text) == (200, False)


@pytest.mark.usefixtures("shared_service")
async def test_the_open_page_of_a_call_that_is_erased_is_reloaded(service: ServiceUnderTest) -> None:
    """The page would keep the arguments and the result, and ask for them again and again."""
    alice = await service.create_client("alice")
    call = (await alice.post("/v1/calls", json=CALL_BODY)).json()["call"]["id"]
    await service.finish_call(call)
    browser = await sign_in(service, "alice")
    await alice.delete(f"/v1/calls/{call}")

    refreshed = await browser.http.get(f"/ui/calls/{call}/state", headers={"HX-Request": "true"})

    assert (refreshed.status_code, refreshed.headers["hx-refresh"], refreshed.content) == (204, "true", b"")
    assert (await browser.open(f"/calls/{call}")).status_code == 410


@pytest.mark.usefixtures("shared_service")
async def test_a_call_is_cancelled_by_its_button_which_a_reader_does_not_have(service: ServiceUnderTest) -> None:
    alice = await service.create_client("alice")
    call_id = await start(alice)
    reader = await sign_in(service, "alice", scopes=frozenset({Scope.READ}))
    browser = await sign_in(service, "alice")

    assert "Cancel the call" not in (await reader.open(f"/calls/{call_id}")).text
    refused = await reader.send(f"/calls/{call_id}/cancel", on=f"/calls/{call_id}")
    cancelled = await browser.send(f"/calls/{call_id}/cancel", on=f"/calls/{call_id}")

    assert refused.status_code == 403
    assert cancelled.headers["location"] == f"/ui/calls/{call_id}?done=call-cancelled"
    assert "The end of the call was requested." in (await browser.http.get(cancelled.headers["location"])).text
    assert (await service.read_call(call_id)).status == "cancelled"


async def test_foreign_and_unknown_calls_look_alike_and_an_expired_one_says_so(service: ServiceUnderTest) -> None:
    alice, bob = await service.create_client("alice"), await service.create_client("bob")
    foreign, own = await start(bob), await start(alice)
    await service.finish_call(own)
    browser = await sign_in(service, "alice")
    unknown = f"call_{'0' * 26}"

    pages = [await browser.open(f"/calls/{call_id}") for call_id in (foreign, unknown, "odd%00", "call_é")]
    service.clock.advance(8 * 86400)
    await service.run_janitor()
    browser = await sign_in(service, "alice")
    expired = await browser.open(f"/calls/{own}")

    assert [page.status_code for page in pages] == [404] * 4
    assert len({page.text.replace(foreign, "").replace(unknown, "") for page in pages[:2]}) == 1
    assert expired.status_code == 410


async def test_an_open_call_names_the_webhooks_that_its_end_reaches_and_no_others(service: ServiceUnderTest) -> None:
    alice = await service.create_client("alice")
    webhooks = [
        (await alice.post("/v1/webhooks", json={"url": CALLBACK_URL} | more)).json()["id"]
        for more in ({}, {"tool": "other"})
    ]
    call_id = await start(alice)
    browser = await sign_in(service, "alice")

    open_page = (await browser.open(f"/calls/{call_id}")).text
    await alice.delete(f"/v1/webhooks/{webhooks[0]}")
    alone = (await browser.open(f"/calls/{call_id}")).text
    await service.finish_call(call_id)
    ended = (await browser.open(f"/calls/{call_id}")).text

    assert f'/ui/webhooks/{webhooks[0]}"' in open_page
    assert f"agent.example (…{webhooks[0][-6:]})" in open_page
    assert webhooks[1] not in open_page
    assert "No webhook receive" not in open_page
    assert "No webhook receives a callback when this call ends." in alone
    assert "No webhook received a callback of this call" in ended


async def test_a_client_that_waited_for_the_end_was_answered_directly(service: ServiceUnderTest) -> None:
    alice = await service.create_client("alice")
    call_id = await start(alice, client_session_id="s-1")

    async def attend(tx: Transaction) -> None:
        call = await tx.calls.get(CallId(call_id))
        assert call is not None
        attended = replace(call, attended_until=service.clock.now() + timedelta(seconds=60))
        await tx.calls.update(attended, CallChange.UNATTENDED, expected=call.status, lease_token=None)

    await service.store.write(attend)
    await service.finish_call(call_id)
    browser = await sign_in(service, "alice")

    for path in (f"/calls/{call_id}", "/sessions/s-1", ""):
        page = (await browser.open(path)).text
        assert "answered directly" in page, path
        assert "not yet" not in page, path
    assert "for 0 calls, answered directly: 1" in (await browser.open("/sessions/s-1")).text


@pytest.mark.usefixtures("shared_service")
async def test_the_page_of_a_failed_call_says_its_reason_once(service: ServiceUnderTest) -> None:
    alice = await service.create_client("alice")
    rejected, failed = await start(alice), await start(alice)
    await service.finish_call(rejected, failed_completion(CallOutcome.REJECTED, "The upstream git is unknown."))
    answer = b'{"content":[{"type":"text","text":"no such branch"}],"isError":true}'
    await service.finish_call(failed, completion_from_result(answer, is_error=True))
    browser = await sign_in(service, "alice")

    rejection = (await browser.open(f"/calls/{rejected}")).text
    error = (await browser.open(f"/calls/{failed}")).text

    assert rejection.count("The upstream git is unknown.") == 1
    assert "The call has the reason" not in rejection
    assert error.count("The tool returned an error.") == 1
    assert re.search(r"<details[^>]* open>\s*<summary>Result", error)


async def test_the_numbers_of_a_session_add_up_and_the_list_has_them_too(service: ServiceUnderTest) -> None:
    alice = await service.create_client("alice")
    calls = [await start(alice, client_session_id="s-1") for _ in range(3)]
    await service.finish_call(calls[0])
    browser = await sign_in(service, "alice")

    page, listed = (await browser.open("/sessions/s-1")).text, (await browser.open("/sessions")).text

    assert "<dd>3, result: 1, working: 2</dd>" in page
    assert '<td class="number">3</td>' in listed


@pytest.mark.usefixtures("shared_service")
@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("/calls", {"since": "yesterday", "tool": "git_log"}),
        ("/deliveries", {"since": "yesterday", "call_id": "git_log"}),
        ("/events", {"name": "odd name", "correlation_id": "git_log"}),
    ],
)
async def test_a_refused_filter_stays_in_the_form_beside_its_reason(
    service: ServiceUnderTest, path: str, query: dict[str, str]
) -> None:
    refused = await (await sign_in(service, "alice")).open(path, **query)

    assert refused.status_code == 422
    assert 'role="alert"' in refused.text
    for value in query.values():
        assert f'value="{value}"' in refused.text
