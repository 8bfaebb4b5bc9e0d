"""`ringback upstreams` and `ringback tools` with a mocked service, and advice that names commands."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
import respx
from typer.testing import Result

from ringback.cli.hints import name_commands
from ringback.schemas import examples

Run = Callable[..., Result]

TOOL: dict[str, Any] = {"name": "git_log", "description": "Show commits", "inputSchema": {"type": "object"}}


def respond_problem(detail: str) -> httpx.Response:
    document = {"type": "/problems/unknown-tool", "title": "Unknown", "status": 422, "detail": detail}
    return httpx.Response(422, json=document, headers={"content-type": "application/problem+json"})


def test_upstreams_are_listed_with_their_state(run: Run, service: respx.MockRouter) -> None:
    service.get("/v1/upstreams").respond(json={"upstreams": [examples.UPSTREAM]})

    shown, as_json = run("upstreams"), run("upstreams", "list", "--json")

    assert (shown.exit_code, as_json.exit_code) == (0, 0)
    assert "git" in shown.stdout
    assert "ready" in shown.stdout
    assert [each["name"] for each in json.loads(as_json.stdout)] == ["git"]


def test_a_reload_prints_what_changed_and_what_is_skipped(run: Run, service: respx.MockRouter) -> None:
    skipped = {"name": "odd", "configured_name": "odd", "reason": "invalid_entry", "advice": "Repair it."}
    answer = {
        "added": ["new"],
        "changed": [],
        "removed": ["one", "two"],
        "unchanged": ["git", "web"],
        "skipped": [skipped],
        "kept": [],
        "queued_calls": {"one": 1, "two": 2},
        "quotas_changed": True,
    }
    service.post("/v1/upstreams/reload").respond(json=answer)

    shown, as_json = run("upstreams", "reload"), run("upstreams", "reload", "--json")

    assert shown.stdout.splitlines() == [
        "Added: new.",
        "Removed: one, two.",
        "Unchanged: git, web.",
        "Skipped: odd (invalid_entry): Repair it.",
        "1 call of one is queued: it waits until its deadline, unless the entry comes back or the call is cancelled.",
        "2 calls of two are queued: they wait until their deadlines, unless the entry comes back or the calls are cancelled.",
        "Quotas changed.",
    ]
    assert json.loads(as_json.stdout) == answer
    assert (shown.exit_code, as_json.exit_code) == (0, 0)


def test_a_reload_that_keeps_an_upstream_with_an_invalid_entry_exits_with_1(
    run: Run, service: respx.MockRouter
) -> None:
    kept = {"name": "odd", "configured_name": "odd", "reason": "invalid_entry", "advice": "Repair it."}
    answer = {"added": [], "changed": [], "removed": [], "unchanged": [], "skipped": [], "kept": [kept]}
    service.post("/v1/upstreams/reload").respond(json=answer | {"queued_calls": {}})

    shown, as_json = run("upstreams", "reload"), run("upstreams", "reload", "--json")

    assert shown.stdout == "Kept as it was: odd (its new entry is not valid: invalid_entry): Repair it.\n"
    assert json.loads(as_json.stdout)["kept"] == [kept]
    assert (shown.exit_code, as_json.exit_code) == (1, 1)


def test_a_restart_prints_what_ran_and_how_to_see_its_end(run: Run, service: respx.MockRouter) -> None:
    service.post("/v1/upstreams/git/restart").respond(json={"name": "git", "connections": 1, "calls": 1})

    shown, as_json = run("upstreams", "restart", "git"), run("upstreams", "restart", "git", "--json")

    assert shown.stdout == (
        "git is restarted on the node that answered. Running on it: 1 call. "
        "Calls that wait for its response end as unknown, unless they can be resumed. "
        "See how they ended: ringback calls list --upstream git\n"
    )
    assert json.loads(as_json.stdout) == {"name": "git", "connections": 1, "calls": 1}


def test_resuming_a_skipped_upstream_does_not_promise_that_calls_begin(run: Run, service: respx.MockRouter) -> None:
    skipped = {"name": "odd", "configured_name": "odd", "reason": "invalid_entry", "advice": "Repair it."}
    service.post("/v1/upstreams/odd/resume").respond(json={"name": "odd", "intake": "open", "skipped": skipped})

    shown = run("upstreams", "resume", "odd").stdout

    assert "odd is open. No call of it runs" in shown
    assert "skipped (invalid_entry): Repair it." in shown
    assert "begin" not in shown


def test_the_tools_of_an_upstream_are_listed_with_their_schemas_in_json(run: Run, service: respx.MockRouter) -> None:
    service.get("/v1/upstreams/git/tools").respond(json={"tools": [TOOL]})

    shown, as_json = run("tools", "git"), run("tools", "git", "--json")

    assert "Show commits" in shown.stdout
    assert [(each["name"], each["inputSchema"]) for each in json.loads(as_json.stdout)] == [
        ("git_log", {"type": "object"})
    ]


def test_empty_lists_say_so(run: Run, service: respx.MockRouter) -> None:
    service.get("/v1/upstreams").respond(json={"upstreams": []})
    service.get("/v1/upstreams/git/tools").respond(json={"tools": []})

    assert "ringback serve --upstream" in run("upstreams").stderr
    assert "lists no tools. See how it is doing: ringback upstreams\n" in run("tools", "git").stderr
    assert json.loads(run("upstreams", "--json").stdout) == []


def test_the_service_s_advice_names_a_command(run: Run, service: respx.MockRouter) -> None:
    detail = "Upstream 'git' has no tool 'git_lgo'. Did you mean 'git_log'? List them: GET /v1/upstreams/git/tools"
    service.get("/v1/upstreams/gti/tools").mock(return_value=respond_problem(detail))

    refused = run("tools", "gti")

    assert refused.exit_code == 2
    assert "List them: ringback tools git\n" in refused.stderr
    assert "/v1/" not in refused.stderr


@pytest.mark.parametrize(
    ("advice", "named"),
    [
        ("List them: GET /v1/upstreams", "List them: ringback upstreams"),
        ("Wait: GET /v1/calls/call_1?wait_seconds=60", "Wait: ringback join call_1"),
        ("Its error is in GET /v1/calls/call_1", "Its error is in ringback calls show call_1"),
        ("It is stored: GET /v1/calls/call_1/result", "It is stored: ringback join call_1"),
        ("List yours: GET /v1/calls", "List yours: ringback calls"),
        ("Erase it: DELETE /v1/calls/call_1?cancel=true", "Erase it: ringback calls erase call_1 --cancel"),
        ("One by one: DELETE /v1/calls/{id}", "One by one: ringback calls erase CALL_ID"),
        ("Wait, or send the same request with ?cancel=true", "Wait, or repeat the command with --cancel"),
        (
            "Name one principal instead of '*': names",
            "Name one principal with --principal instead of --all-principals: names",
        ),
        ("List yours: GET /v1/webhooks", "List yours: ringback webhooks list"),
        ("Poll: GET /v1/events", "Poll: ringback events"),
        ("List yours: GET /v1/deliveries", "List yours: ringback deliveries list"),
        ("Remove webhooks: DELETE /v1/webhooks/{id}", "Remove webhooks: ringback webhooks remove WEBHOOK_ID"),
        ("Request: POST /v1/webhooks/wh_1/verify. If", "Request: ringback webhooks verify wh_1. If"),
        ('Use PATCH /v1/webhooks/wh_1 {"state": "active"}', "Use ringback webhooks enable wh_1"),
        ("Register it: PUT /v1/webhooks/by-name/agent", "Register it: ringback webhooks add URL --name agent"),
        ("See it: GET /v1/upstreams/git/tools", "See it: ringback tools git --json"),
        ("No command has this: GET /problems/gone", "No command has this: GET /problems/gone"),
        (
            "Send your API key: 'Authorization: Bearer rbk_…'. Create one: ringback keys create PRINCIPAL",
            "Set your API key: RINGBACK_API_KEY or --api-key. Create one: ringback keys create PRINCIPAL",
        ),
        ("Register a webhook for it: POST /v1/webhooks {", "Register a webhook for it: ringback webhooks add URL {"),
        (
            "No portal link has this id. List them: GET /v1/portal-links",
            "No portal link has this id. List them: ringback portal-link list",
        ),
        ("Delete some (DELETE /v1/portal-links/{id})", "Delete some (ringback portal-link delete LINK_ID)"),
    ],
)
def test_requests_become_commands(advice: str, named: str) -> None:
    assert name_commands(advice) == named
