"""`ringback calls`, and portal links, times and refusals, with a mocked service: requests, output and exit codes."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
import respx
from typer.testing import Result

from ringback.domain.call_outcome import UNSUCCESSFUL_OUTCOMES
from ringback.schemas import administration_examples, examples
from tests.support.mocked_requests import get_last_request, parse_body, parse_query

Run = Callable[..., Result]

CALL = examples.FINISHED_CALL
CALL_ID = str(CALL["id"])


def page(*ids: str, cursor: str | None = None, **changes: Any) -> httpx.Response:
    return httpx.Response(200, json={"calls": [{**CALL, "id": each, **changes} for each in ids], "next_cursor": cursor})


def test_calls_are_listed_with_their_filters(run: Run, service: respx.MockRouter) -> None:
    route = service.get("/v1/calls").mock(return_value=page(CALL_ID))

    ran = run(
        *("calls", "--session", "s1", "--correlation", "c1", "--status", "completed"),
        *("--upstream", "git", "--tool", "git_log"),
    )

    assert ran.exit_code == 0
    assert CALL_ID in ran.stdout
    assert parse_query(get_last_request(route)) == {
        "client_session_id": "s1",
        "correlation_id": "c1",
        "status": "completed",
        "upstream": "git",
        "tool": "git_log",
    }


def test_a_call_that_waits_for_its_start_is_told_from_one_that_runs(run: Run, service: respx.MockRouter) -> None:
    service.get("/v1/calls").mock(return_value=page("call_1", status="working", outcome=None, dispatched_at=None))
    waiting = run("calls").stdout
    service.get("/v1/calls").mock(return_value=page("call_1", status="working", outcome=None))

    assert "working (not started)" in waiting
    assert "not started" not in run("calls").stdout


@pytest.mark.parametrize(
    ("waits_for", "shown"),
    [
        ("not_before", "working (starts later)"),
        ("queue", "working (queued)"),
        ("upstream", "working (waits for its upstream)"),
        ("something_new", "working (not started)"),
    ],
)
def test_the_list_says_what_a_call_waits_for(run: Run, service: respx.MockRouter, waits_for: str, shown: str) -> None:
    waiting = {"status": "working", "outcome": None, "dispatched_at": None, "waits_for": waits_for}
    service.get("/v1/calls").mock(return_value=page("call_1", **waiting))

    assert shown in run("calls").stdout


def test_queued_calls_are_working_calls_that_have_not_started(run: Run, service: respx.MockRouter) -> None:
    route = service.get("/v1/calls").mock(
        return_value=page("call_1", status="working", outcome=None, dispatched_at=None)
    )

    ran = run("calls", "--queued", "--upstream", "git")

    assert "working (not started)" in ran.stdout
    assert parse_query(get_last_request(route)) == {"status": "working", "started": "false", "upstream": "git"}
    for other in (("--status", "failed"), ("--outcome", "result"), ("--failed",)):
        assert run("calls", "--queued", *other).exit_code == 2


def test_calls_are_found_by_outcome_over_all_pages_up_to_the_limit(run: Run, service: respx.MockRouter) -> None:
    route = service.get("/v1/calls", params__contains={"outcome": "tool_error"})
    route.side_effect = [page(cursor="b"), page("call_2", "call_3", cursor="c"), page("call_4", "call_5", cursor="d")]

    ran = run("calls", "--outcome", "tool_error", "--limit", "3", "--json")

    assert [each["id"] for each in json.loads(ran.stdout)] == ["call_2", "call_3", "call_4"]


def test_failed_calls_are_those_of_every_outcome_but_a_result(run: Run, service: respx.MockRouter) -> None:
    route = service.get("/v1/calls").mock(return_value=page("call_1", cursor=None))

    run("calls", "--failed", "--since", "2026-11-20T12:00:00+0100", "--id", "call_01", "--json")

    sent = route.calls.last.request.url.params
    assert set(sent.get_list("outcome")) == UNSUCCESSFUL_OUTCOMES
    assert (sent["since"], sent["id_prefix"]) == ("2026-11-20T12:00:00+01:00", "call_01")
    assert run("calls", "--failed", "--outcome", "result").exit_code == 2


def test_a_misspelt_status_lists_the_possible_ones(run: Run) -> None:
    ran = run("calls", "--status", "done")

    assert ran.exit_code == 2
    assert "completed" in ran.stderr


def test_no_calls_say_how_to_start_one(run: Run, service: respx.MockRouter) -> None:
    service.get("/v1/calls").mock(return_value=page())

    assert "ringback call UPSTREAM TOOL" in run("calls").stderr
    assert run("calls", "--principal", "nobody").stderr == "There are no such calls.\n"


def test_a_call_is_shown_and_cancelled(run: Run, service: respx.MockRouter) -> None:
    service.get("/v1/calls/call_1").respond(json=CALL)
    cancel = service.post("/v1/calls/call_1/cancel")
    cancel.side_effect = [
        httpx.Response(200, json={**CALL, "status": "cancelled", "outcome": "cancelled"}),
        httpx.Response(200, json={**examples.WORKING_CALL, "cancel_requested": True}),
        httpx.Response(200, json=CALL),
        httpx.Response(200, json=CALL),
    ]

    assert json.loads(run("calls", "show", "call_1").stdout)["id"] == CALL_ID
    assert json.loads(run("calls", "show", "call_1", "--json").stdout)["id"] == CALL_ID
    assert run("calls", "cancel", "call_1").stdout == "status: cancelled\n"
    assert "asked to stop" in run("calls", "cancel", "call_1").stderr
    assert "already ended (result)" in run("calls", "cancel", "call_1").stderr
    assert json.loads(run("calls", "cancel", "call_1", "--json").stdout)["status"] == "completed"


@pytest.mark.parametrize(
    ("options", "response"),
    [
        (("--accept", '{"branch": "main"}'), {"action": "accept", "content": {"branch": "main"}}),
        (("--arg", "branch=main"), {"action": "accept", "content": {"branch": "main"}}),
        (
            ("--accept", '{"branch": "main", "depth": 1}', "--arg", "depth=3"),
            {"action": "accept", "content": {"branch": "main", "depth": 3}},
        ),
        (("--decline",), {"action": "decline"}),
    ],
)
def test_the_only_question_of_a_tool_is_answered_without_its_key(
    run: Run, service: respx.MockRouter, options: tuple[str, ...], response: dict[str, Any]
) -> None:
    service.get("/v1/calls/call_1").respond(json=examples.INPUT_REQUIRED_CALL)
    route = service.post("/v1/calls/call_1/input").respond(json=examples.ANSWERED)

    ran = run("calls", "answer", "call_1", *options)

    assert (ran.exit_code, ran.stdout) == (0, "status: working\n")
    assert parse_body(get_last_request(route)) == {"responses": {"r1.1": response}}


@pytest.mark.parametrize("options", [(), ("--key", "r1.1")])
def test_a_value_of_an_answer_is_a_string_if_the_form_of_the_question_says_so(
    run: Run, service: respx.MockRouter, options: tuple[str, ...]
) -> None:
    """As with `ringback call --arg`."""
    properties = {"branch": {"type": "string"}, "depth": {"type": "integer"}}
    request = {"method": "elicitation/create", "params": {"requestedSchema": {"properties": properties}}}
    service.get("/v1/calls/call_1").respond(json={**examples.INPUT_REQUIRED_CALL, "input_requests": {"r1.1": request}})
    route = service.post("/v1/calls/call_1/input").respond(json=examples.ANSWERED)

    run("calls", "answer", "call_1", *options, "--arg", "branch=3", "--arg", "depth=3")

    content = {"branch": "3", "depth": 3}
    assert parse_body(get_last_request(route)) == {"responses": {"r1.1": {"action": "accept", "content": content}}}


def test_values_for_a_request_that_is_not_open_are_refused(run: Run, service: respx.MockRouter) -> None:
    service.get("/v1/calls/call_1").respond(json=examples.INPUT_REQUIRED_CALL)

    ran = run("calls", "answer", "call_1", "--key", "r9", "--arg", "branch=main")

    assert ran.exit_code == 2
    assert "has no open request 'r9'" in ran.stderr


def test_an_answer_without_an_open_question_says_so(run: Run, service: respx.MockRouter) -> None:
    service.get("/v1/calls/call_1").respond(json=CALL)
    service.post("/v1/calls/call_1/input").respond(json={**examples.ANSWERED, "accepted": [], "ignored": ["r9"]})

    unasked = run("calls", "answer", "call_1", "--decline").stderr
    assert f"has no open request: it is {CALL['status']}. See it: ringback calls show {CALL['id']}" in unasked
    assert "has no open request 'r9'" in run("calls", "answer", "call_1", "--decline", "--key", "r9").stderr


def test_an_answer_that_does_not_match_its_question_shows_what_is_requested(
    run: Run, service: respx.MockRouter
) -> None:
    detail = (
        "The answer does not match the requestedSchema of its question: #/responses/r1.1/content/age: not an integer."
    )
    schema = {"type": "object", "properties": {"age": {"type": "integer", "title": "\x1b[2J"}}}
    problem = {"title": "Invalid request.", "detail": detail, "requested_schemas": {"r1.1": schema}}
    media_type = {"content-type": "application/problem+json"}
    service.get("/v1/calls/call_1").respond(json=examples.INPUT_REQUIRED_CALL)
    service.post("/v1/calls/call_1/input").respond(422, json=problem, headers=media_type)

    ran = run("calls", "answer", "call_1", "--accept", '{"age": "old"}')

    assert (ran.exit_code, ran.stdout) == (2, "")
    assert ran.stderr == f"Requested: {json.dumps(schema)}\nError: {detail}\n"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "either"),
        (("--accept", "{}", "--decline"), "either"),
        (("--arg", "a=1", "--decline"), "either"),
        (("--arg", "a"), "write it as NAME=VALUE"),
        (("--accept", "["), """such as '{"name": "value"}'"""),
    ],
)
def test_an_invalid_answer_is_refused_before_any_request(run: Run, options: tuple[str, ...], words: str) -> None:
    ran = run("calls", "answer", "call_1", *options)

    assert ran.exit_code == 2
    assert words in ran.stderr


def test_deliveries_of_an_unknown_webhook_say_that_it_is_unknown(run: Run, service: respx.MockRouter) -> None:
    service.get("/v1/deliveries").respond(json={"deliveries": [], "next_cursor": None})
    service.get("/v1/webhooks/wh_nope").respond(
        404, json={"detail": "Unknown."}, headers={"content-type": "application/problem+json"}
    )

    assert "wh_nope is unknown" in run("deliveries", "list", "--webhook", "wh_nope").stderr


@pytest.mark.parametrize(
    ("arguments", "path", "detail", "options"),
    [
        (
            ("webhooks", "replay", "wh_1"),
            "/v1/webhooks/wh_1/replay",
            "Send exactly one of these: since, cursor, or dead: true.",
            "--since, --cursor or --dead.",
        ),
        (
            ("calls", "cancel-all"),
            "/v1/calls/cancel",
            "Send at least one filter: client_session_id, correlation_id, upstream, tool or status. Nothing was cancelled.",
            "--session, --correlation, --upstream, --tool or --status.",
        ),
    ],
)
def test_a_refusal_names_the_options(
    run: Run, service: respx.MockRouter, arguments: tuple[str, ...], path: str, detail: str, options: str
) -> None:
    problem_json = {"content-type": "application/problem+json"}
    service.post(path).respond(422, json={"detail": detail}, headers=problem_json)

    assert options in run(*arguments).stderr


def test_a_new_portal_link_says_which_session_it_shows(run: Run, service: respx.MockRouter) -> None:
    link = {
        **administration_examples.PORTAL_LINK,
        "client_session_id": "session-7",
        "url": administration_examples.PORTAL_URL,
    }
    service.post("/v1/portal-links").respond(201, json=link)

    shown = run("portal-link", "create", "--session", "session-7")

    assert shown.stdout == f"{administration_examples.PORTAL_URL}\n"
    assert "shows the session 'session-7' of " in shown.stderr


def test_times_are_shown_as_people_write_them(run: Run) -> None:
    assert "YYYY-MM-DD[THH:MM" in run("calls", "--help").stdout


def test_portal_links_are_listed_whatever_their_session_is_called(run: Run, service: respx.MockRouter) -> None:
    link = {**administration_examples.PORTAL_LINK, "client_session_id": "[/x] \x1b[2J"}
    service.get("/v1/portal-links").respond(json={"portal_links": [link]})

    listed = run("portal-link", "list")

    assert listed.exit_code == 0
    assert "[/x] \N{REPLACEMENT CHARACTER}[2J" in listed.stdout


def test_a_portal_link_of_two_days_is_refused_with_its_option(run: Run) -> None:
    refused = run("portal-link", "create", "--expires", "2d")

    assert (refused.exit_code, "--expires" in refused.stderr) == (2, True)


def test_an_empty_id_as_of_an_unset_variable_is_one_message(run: Run) -> None:
    shown = run("calls", "show", "")

    assert (shown.exit_code, shown.stdout) == (2, "")
    assert shown.stderr.startswith("Error: `call_id` must be")
