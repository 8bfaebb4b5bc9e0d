"""`ringback wait` with a mocked service: its requests, output and exit codes."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
import respx
from typer.testing import Result

from ringback.schemas import examples
from tests.support.mocked_requests import list_requests, parse_body, parse_query

Run = Callable[..., Result]

WORKING = examples.WORKING_CALL
CALL_ID = str(WORKING["id"])
FINISHED = {**examples.FINISHED_CALL, "id": CALL_ID}
PROBLEM_JSON = {"content-type": "application/problem+json"}

AWAY = httpx.Response(503, json={"detail": "Stopping."}, headers=PROBLEM_JSON)


@pytest.mark.parametrize(("option", "mode"), [((), "all"), (("--all",), "all"), (("--any",), "any")])
def test_several_calls_are_waited_for(run: Run, service: respx.MockRouter, option: tuple[str, ...], mode: str) -> None:
    route = service.post("/v1/calls/wait")
    route.side_effect = [
        httpx.Response(200, json={"calls": [WORKING, {**WORKING, "id": "call_2"}], "done": False}),
        httpx.Response(200, json={"calls": [FINISHED, {**FINISHED, "id": "call_2"}], "done": True}),
    ]

    ran = run("wait", CALL_ID, "call_2", *option)

    assert (ran.exit_code, ran.stdout) == (0, f"{CALL_ID} completed (result)\ncall_2 completed (result)\n")
    assert parse_body(list_requests(route)[1])["mode"] == mode


def test_a_wait_that_ends_too_early_counts_what_continues(run: Run, service: respx.MockRouter) -> None:
    working = {**WORKING, "id": "call_2"}
    service.post("/v1/calls/wait").respond(json={"calls": [FINISHED, working], "done": False})

    ran = run("wait", CALL_ID, "call_2", "--wait-seconds", "0")

    assert (ran.exit_code, ran.stdout) == (75, f"{CALL_ID} completed (result)\ncall_2 working\n")
    assert "1 of 2 calls continue." in ran.stderr


def test_a_wait_outlives_an_outage(run: Run, service: respx.MockRouter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringback.client.http_transport.RETRY_DELAYS_SECONDS", ())
    service.post("/v1/calls/wait").side_effect = [
        AWAY,
        httpx.Response(200, json={"calls": [WORKING], "done": False}),
        AWAY,
        httpx.ConnectError("refused"),
        httpx.Response(200, json={"calls": [FINISHED], "done": True}),
    ]

    ran = run("wait", CALL_ID)

    assert (ran.exit_code, ran.stdout) == (0, f"{CALL_ID} completed (result)\n")
    assert ran.stderr.count("The next attempt follows.") == 3


def test_a_wait_for_calls_says_how_many_request_input(run: Run, service: respx.MockRouter) -> None:
    """Else a script waits for a person who knows of no question."""
    asking = {**examples.INPUT_REQUIRED_CALL, "id": "call_2"}
    service.post("/v1/calls/wait").side_effect = [
        httpx.Response(200, json={"calls": [FINISHED, asking], "done": False}),
        httpx.Response(200, json={"calls": [{**FINISHED, "id": "call_2"}], "done": True}),
    ]

    ran = run("wait", CALL_ID, "call_2")

    assert (ran.exit_code, ran.stdout) == (0, f"{CALL_ID} completed (result)\ncall_2 completed (result)\n")
    assert ran.stderr.splitlines() == [
        "1 of 2 calls have ended, and 1 waits for input: ringback calls --status input_required",
        "2 of 2 calls have ended.",
    ]


def test_a_call_that_is_erased_during_the_wait_does_not_hide_the_others(run: Run, service: respx.MockRouter) -> None:
    working = {**WORKING, "id": "call_2"}
    erased = {"detail": "call_ids[0]: The call was erased on request.", "index": 0, "call_id": "call_2"}
    service.post("/v1/calls/wait").side_effect = [
        httpx.Response(200, json={"calls": [FINISHED, working], "done": False}),
        httpx.Response(410, json=erased, headers=PROBLEM_JSON),
    ]

    ran = run("wait", CALL_ID, "call_2")

    assert (ran.exit_code, ran.stdout) == (1, f"{CALL_ID} completed (result)\n")
    assert ran.stderr.splitlines()[-1] == "call_2 was erased during the wait."


def test_a_wait_for_any_is_over_when_one_has_ended(run: Run, service: respx.MockRouter) -> None:
    working = {**WORKING, "id": "call_2"}
    service.post("/v1/calls/wait").respond(json={"calls": [FINISHED, working], "done": True})

    assert run("wait", CALL_ID, "call_2", "--any").exit_code == 0


@pytest.mark.parametrize(
    ("last_response", "exit_code"),
    [
        (httpx.Response(200, json={"calls": [FINISHED], "done": True}), 0),
        (
            httpx.Response(410, json={"detail": "call_ids[0]: Erased.", "index": 0}, headers=PROBLEM_JSON),
            1,
        ),
    ],
    ids=["another one ends", "all are erased"],
)
def test_a_wait_for_any_continues_without_a_call_that_is_erased(
    run: Run, service: respx.MockRouter, last_response: httpx.Response, exit_code: int
) -> None:
    working = {**WORKING, "id": "call_2"}
    erased = {"detail": "call_ids[1]: Erased.", "index": 1}
    service.post("/v1/calls/wait").side_effect = [
        httpx.Response(200, json={"calls": [working, WORKING], "done": False}),
        httpx.Response(410, json=erased, headers=PROBLEM_JSON),
        last_response,
    ]

    ran = run("wait", "call_2", CALL_ID, "--any")

    assert ran.exit_code == exit_code
    assert "call_2 was erased during the wait." in ran.stderr


def test_a_wait_says_which_calls_have_no_result(run: Run, service: respx.MockRouter) -> None:
    lost = {
        **FINISHED,
        "id": "call_2",
        "status": "failed",
        "outcome": "unknown",
        "error": {"code": "unknown", "message": "lost"},
    }
    service.post("/v1/calls/wait").respond(json={"calls": [FINISHED, lost], "done": True})

    ran = run("wait", CALL_ID, "call_2", "--json")

    assert ran.exit_code == 1
    assert ran.stderr == "call_2 ended as failed (unknown): lost\n"
    assert [each["id"] for each in json.loads(ran.stdout)] == [CALL_ID, "call_2"]


def respond_with_pages(service: respx.MockRouter, *pages: list[dict[str, Any]]) -> respx.Route:
    """The matching calls. The command reads them once to see whether the service is there, and once to wait for them."""
    route = service.get("/v1/calls")
    cursors = [*map(str, range(1, len(pages))), None]
    route.side_effect = [
        httpx.Response(200, json={"calls": page, "next_cursor": cursor})
        for page, cursor in zip(pages, cursors, strict=True)
    ] * 2
    return route


def test_all_calls_that_match_are_waited_for(run: Run, service: respx.MockRouter) -> None:
    """The ids of two hundred calls had to be collected, and given a hundred at a time."""
    working = [{**WORKING, "id": f"call_{number}"} for number in range(150)]
    asking = {**examples.INPUT_REQUIRED_CALL, "id": "call_149"}
    ended = [{**FINISHED, "id": each["id"]} for each in working]
    listing = respond_with_pages(service, [{**FINISHED, "id": "call_early"}, *working[:99]], [*working[99:149], asking])
    waiting = service.post("/v1/calls/wait")
    waiting.side_effect = [
        httpx.Response(200, json={"calls": ended[50:], "done": True}),
        httpx.Response(200, json={"calls": ended[:50], "done": True}),
    ]
    filters = ("--session", "s1", "--correlation", "batch-7", "--upstream", "git", "--tool", "git_log")

    ran = run("wait", *filters, "--since", "2026-11-20T17:00:00Z")

    assert ran.exit_code == 0
    assert ran.stdout.splitlines() == [f"call_{each} completed (result)" for each in ("early", *range(150))]
    assert ran.stderr.splitlines() == [
        "1 of 151 calls have ended, and 1 waits for input: ringback calls --status input_required",
        "101 of 151 calls have ended.",
        "151 of 151 calls have ended.",
    ]
    assert [len(parse_body(request)["call_ids"]) for request in list_requests(waiting)] == [100, 50]
    assert parse_query(list_requests(listing)[0]) == {
        "client_session_id": "s1",
        "correlation_id": "batch-7",
        "upstream": "git",
        "tool": "git_log",
        "since": "2026-11-20T17:00:00+00:00",
    }


def test_a_matching_call_that_ended_before_the_wait_decides_its_exit_code(run: Run, service: respx.MockRouter) -> None:
    """Else the code of a batch would depend on how fast its calls fail."""
    lost = {**FINISHED, "id": "call_2", "status": "failed", "outcome": "rejected", "error": None}
    service.get("/v1/calls").respond(json={"calls": [FINISHED, lost], "next_cursor": None})

    ran = run("wait", "--correlation-id", "batch-7", "--json")

    assert ran.exit_code == 1
    assert ran.stderr == "call_2 ended as failed (rejected).\n"
    assert [each["id"] for each in json.loads(ran.stdout)] == [CALL_ID, "call_2"]


def test_a_wait_for_calls_that_match_ends_at_its_time(run: Run, service: respx.MockRouter) -> None:
    service.get("/v1/calls").respond(json={"calls": [FINISHED, {**WORKING, "id": "call_2"}], "next_cursor": None})

    ran = run("wait", "--session", "s1", "--wait-seconds", "0")

    assert (ran.exit_code, ran.stdout) == (75, f"{CALL_ID} completed (result)\ncall_2 working\n")
    assert "1 of 2 calls continue." in ran.stderr


def test_a_wait_outlives_an_outage_with_the_calls_that_matched_before(
    run: Run, service: respx.MockRouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would wait for calls that started during it, and with a busy session for ever."""
    monkeypatch.setattr("ringback.client.http_transport.RETRY_DELAYS_SECONDS", ())
    listing = respond_with_pages(service, [WORKING])
    service.post("/v1/calls/wait").side_effect = [
        AWAY,
        httpx.Response(200, json={"calls": [FINISHED], "done": True}),
    ]

    ran = run("wait", "--session", "s1")

    assert (ran.exit_code, ran.stdout) == (0, f"{CALL_ID} completed (result)\n")
    assert ran.stderr.count("The next attempt follows.") == 1
    assert len(list_requests(listing)) == 1


def test_a_wait_for_calls_that_match_keeps_what_it_read_when_the_service_stays_away(
    run: Run, service: respx.MockRouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringback.client.http_transport.RETRY_DELAYS_SECONDS", ())
    service.get("/v1/calls").respond(json={"calls": [FINISHED, {**WORKING, "id": "call_2"}], "next_cursor": None})
    service.post("/v1/calls/wait").mock(AWAY)

    ran = run("wait", "--session", "s1", "--wait-seconds", "0.5")

    assert (ran.exit_code, ran.stdout) == (75, f"{CALL_ID} completed (result)\ncall_2 working\n")


def test_a_matching_call_that_is_erased_during_the_wait_is_named_and_has_no_result(
    run: Run, service: respx.MockRouter
) -> None:
    respond_with_pages(service, [WORKING, {**WORKING, "id": "call_2"}])
    erased = {"detail": "call_ids[0]: The call was erased on request.", "index": 0, "call_id": "call_2"}
    service.post("/v1/calls/wait").side_effect = [
        httpx.Response(410, json=erased, headers=PROBLEM_JSON),
        httpx.Response(200, json={"calls": [FINISHED], "done": True}),
    ]

    ran = run("wait", "--session", "s1")

    assert (ran.exit_code, ran.stdout) == (1, f"{CALL_ID} completed (result)\n")
    assert ran.stderr.splitlines()[-1] == "call_2 was erased during the wait."


def test_more_calls_than_a_wait_can_keep_are_refused_with_the_option_that_narrows_it(
    run: Run, service: respx.MockRouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringback.client.awaited_calls.MATCHING_CALLS_MAX", 1)
    respond_with_pages(service, [WORKING, {**WORKING, "id": "call_2"}])

    ran = run("wait", "--session", "s1")

    assert (ran.exit_code, ran.stdout) == (2, "")
    assert ran.stderr == "Error: More than 1 calls match. Narrow the filters, with --since for example.\n"


@pytest.mark.parametrize("option", ["--all", "--any"])
def test_a_wait_names_the_id_of_which_there_is_no_call(run: Run, service: respx.MockRouter, option: str) -> None:
    problem = {"status": 404, "detail": "call_ids[1]: No call of yours has this id.", "index": 1}
    service.post("/v1/calls/wait").respond(404, json=problem, headers=PROBLEM_JSON)

    ran = run("wait", CALL_ID, "call_typo", option)

    assert (ran.exit_code, ran.stderr) == (2, "Error: call_typo: No call of yours has this id.\n")


def test_a_wait_for_which_no_call_matches_is_an_error(run: Run, service: respx.MockRouter) -> None:
    """A mistyped id must not look like success."""
    service.get("/v1/calls").respond(json={"calls": [], "next_cursor": None})

    ran = run("wait", "--correlation", "batch-8")

    assert (ran.exit_code, ran.stdout, ran.stderr) == (2, "", "Error: There are no such calls.\n")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "give CALL_IDs, or --session, --correlation"),
        ((CALL_ID, "--session", "s1"), "give CALL_IDs or filters, not both"),
        (("--session", "s1", "--any"), "--any takes CALL_IDs"),
    ],
    ids=["nothing", "both", "any"],
)
def test_a_wait_is_for_ids_or_for_calls_that_match(run: Run, options: tuple[str, ...], words: str) -> None:
    ran = run("wait", *options)

    assert ran.exit_code == 2
    assert words in " ".join(ran.stderr.replace("│", "").split())
