"""`ringback webhooks` with a mocked service: its requests and output."""

import json
from collections.abc import Callable

import httpx
import pytest
import respx
from typer.testing import Result

from ringback.schemas import examples, schema_examples
from tests.support.mocked_requests import get_last_request, list_requests, parse_body

Run = Callable[..., Result]

HOOK = "/v1/webhooks/wh_1"
PROBLEM_JSON = {"content-type": "application/problem+json"}


def test_webhooks_are_listed_whole_or_as_json(run: Run, service: respx.MockRouter) -> None:
    service.get("/v1/webhooks").respond(json={"webhooks": [examples.WEBHOOK], "next_cursor": None})

    table, listed = run("webhooks", "list"), run("webhooks", "list", "--json", "--api-key", "rbk_x")

    assert (table.exit_code, listed.exit_code) == (0, 0)
    assert examples.WEBHOOK_ID in table.stdout
    assert json.loads(listed.stdout)[0]["id"] == examples.WEBHOOK_ID
    assert "expires_at" in table.stdout


def test_a_list_says_which_calls_each_webhook_is_limited_to(run: Run, service: respx.MockRouter) -> None:
    limits = {"client_session_id": "s9", "tool": "git_log", "outcomes": ["unknown"]}
    service.get("/v1/webhooks").respond(json={"webhooks": [{**examples.WEBHOOK, **limits}], "next_cursor": None})

    shown = run("webhooks", "list", env={"COLUMNS": "240"})

    for limit in ("tool=git_log", "client_session_id=s9", "outcomes=unknown"):
        assert limit in shown.stdout


def test_a_list_shows_texts_as_they_are_and_whole_ids(run: Run, service: respx.MockRouter) -> None:
    odd = {**examples.WEBHOOK, "description": "[/red] [bold]x \x1b[2J"}
    service.get("/v1/webhooks").respond(json={"webhooks": [odd], "next_cursor": None})

    shown = run("webhooks", "list", env={"COLUMNS": "40"})

    assert shown.exit_code == 0
    assert examples.WEBHOOK_ID in shown.stdout
    assert "[/red] [bold]x \N{REPLACEMENT CHARACTER}[2J" in shown.stdout


def test_an_empty_list_says_how_to_begin(run: Run, service: respx.MockRouter) -> None:
    service.get("/v1/webhooks").respond(json={"webhooks": [], "next_cursor": None})
    service.get("/v1/deliveries").respond(json={"deliveries": [], "next_cursor": None})

    assert "ringback webhooks add" in run("webhooks", "list").stderr
    assert json.loads(run("webhooks", "list", "--json").stdout) == []
    assert run("deliveries", "list").stdout == ""


def test_a_webhook_is_added_with_its_options_and_its_secret_is_printed(run: Run, service: respx.MockRouter) -> None:
    route = service.post("/v1/webhooks").respond(201, json=examples.REGISTERED_WEBHOOK)

    ran = run(
        *("webhooks", "add", "https://agent.example/callback", "--event", "call.finished", "--event", "call.progress"),
        *("--upstream", "git", "--tool", "git_log", "--session", "s1", "--correlation", "c1", "--include-result"),
        *("--ordered", "--rate-per-second", "2.5"),
    )

    assert (ran.exit_code, ran.stdout.splitlines()[-1]) == (0, f"secret: {examples.SECRET}")
    assert "Receives" in ran.stderr
    assert parse_body(get_last_request(route)) == {
        "url": "https://agent.example/callback",
        "events": ["call.finished", "call.progress"],
        "upstream": "git",
        "tool": "git_log",
        "client_session_id": "s1",
        "correlation_id": "c1",
        "include_result": True,
        "ordered": True,
        "rate_per_second": 2.5,
    }


def test_a_correlation_id_is_a_label_and_filters_only_if_that_is_said(run: Run, service: respx.MockRouter) -> None:
    """The option filters in every other command, and there was no way to filter by it."""
    route = service.post("/v1/webhooks").respond(201, json=examples.REGISTERED_WEBHOOK)
    add = ("webhooks", "add", "https://agent.example/", "--correlation-id", "c1")

    labelled, filtered = run(*add), run(*add, "--match-correlation")

    bodies = [parse_body(request) for request in list_requests(route)]
    assert [(body["correlation_id"], body.get("match_correlation")) for body in bodies] == [("c1", None), ("c1", True)]
    advice = "The correlation_id is a label. To receive only the calls that have it: --match-correlation"
    assert [advice in ran.stderr for ran in (labelled, filtered)] == [True, False]


def test_a_filter_by_correlation_needs_a_correlation_id(run: Run) -> None:
    ran = run("webhooks", "add", "https://agent.example/", "--match-correlation")

    assert ran.exit_code == 2
    assert "give --correlation" in ran.stderr


def test_a_webhook_with_a_name_is_put_under_it(run: Run, service: respx.MockRouter) -> None:
    route = service.put("/v1/webhooks/by-name/my%20inbox").respond(json={**examples.WEBHOOK, "hears": "Receives all."})

    ran = run(
        *("webhooks", "add", "https://agent.example/", "--name", "my inbox"),
        *("--outcome", "tool_error", "--outcome", "unknown"),
    )

    assert (ran.exit_code, ran.stdout) == (0, f"id: {examples.WEBHOOK_ID}\nstate: active\n")
    assert parse_body(get_last_request(route)) == {
        "url": "https://agent.example/",
        "outcomes": ["tool_error", "unknown"],
    }


def test_a_webhook_with_its_own_secret_does_not_print_it(run: Run, service: respx.MockRouter) -> None:
    answer = {name: value for name, value in examples.REGISTERED_WEBHOOK.items() if name != "secret"}
    service.post("/v1/webhooks").respond(201, json=answer)

    assert "secret" not in run("webhooks", "add", "https://agent.example/", "--secret", examples.SECRET).stdout


def test_a_webhook_is_shown_removed_and_switched(run: Run, service: respx.MockRouter) -> None:
    service.get(HOOK).respond(json=examples.WEBHOOK)
    service.delete(HOOK).respond(204)
    patch = service.patch(HOOK)
    patch.side_effect = [
        httpx.Response(200, json={**examples.WEBHOOK, "state": state}) for state in ("disabled", "active")
    ]

    assert json.loads(run("webhooks", "show", "wh_1").stdout)["id"] == examples.WEBHOOK_ID
    assert run("webhooks", "remove", "wh_1").stderr == "wh_1 is removed.\n"
    assert "is disabled." in run("webhooks", "disable", "wh_1").stderr
    assert "is active." in run("webhooks", "enable", "wh_1").stderr
    assert [parse_body(request) for request in list_requests(patch)] == [{"state": "disabled"}, {"state": "active"}]


def test_a_disabled_webhook_is_printed_with_what_it_holds_and_what_it_misses(
    run: Run, service: respx.MockRouter
) -> None:
    held = {"due_now": 0, "held": 300, "in_flight": 0, "next_attempt_at": None}
    service.patch(HOOK).respond(json={**examples.WEBHOOK, "state": "disabled", **held})

    state, callbacks, events = run("webhooks", "disable", "wh_1").stderr.splitlines()

    assert (state, callbacks) == (f"{examples.WEBHOOK_ID} is disabled.", "Callbacks: 300 held")
    assert events.startswith("What happens until it is enabled is in `ringback events` only: no replay sends it.")
    assert events.endswith(f"ringback webhooks pause {examples.WEBHOOK_ID}")


def test_a_test_prints_the_id_of_its_delivery(run: Run, service: respx.MockRouter) -> None:
    service.post(f"{HOOK}/test").respond(202, json={**examples.DELIVERY, "call_id": None})

    ran = run("webhooks", "test", "wh_1")

    assert ran.stdout == f"{examples.DELIVERY_ID}\n"
    assert f"ringback deliveries show {examples.DELIVERY_ID}" in ran.stderr


def test_a_new_secret_is_printed_alone(run: Run, service: respx.MockRouter) -> None:
    (answer,) = schema_examples.EXAMPLES_BY_SCHEMA["RotatedWebhookView"]
    route = service.post(f"{HOOK}/rotate-secret").respond(json=answer)

    ran = run("webhooks", "rotate-secret", "wh_1", "--overlap-seconds", "60")

    assert ran.stdout == f"{examples.SECRET}\n"
    assert "2026-11-20 18:00:00 UTC" in ran.stderr
    assert parse_body(get_last_request(route)) == {"overlap_seconds": 60}


@pytest.mark.parametrize(
    ("state", "last_error", "hint"),
    [("active", None, ""), ("pending_verification", "challenge_failed", "challenge_failed")],
)
def test_a_verification_prints_its_outcome(
    run: Run, service: respx.MockRouter, state: str, last_error: str | None, hint: str
) -> None:
    (answer,) = schema_examples.EXAMPLES_BY_SCHEMA["WebhookView"]
    service.post(f"{HOOK}/verify").respond(json={**answer, "state": state, "last_error": last_error})

    ran = run("webhooks", "verify", "wh_1")

    assert ran.stdout == f"state: {state}\n"
    assert hint in ran.stderr


def test_every_command_prints_json(run: Run, service: respx.MockRouter) -> None:
    (rotated,) = schema_examples.EXAMPLES_BY_SCHEMA["RotatedWebhookView"]
    service.post("/v1/webhooks").respond(201, json=examples.REGISTERED_WEBHOOK)
    service.get(HOOK).respond(json=examples.WEBHOOK)
    service.patch(HOOK).respond(json=examples.WEBHOOK)
    service.delete(HOOK).respond(204)
    service.post(f"{HOOK}/verify").respond(json=examples.WEBHOOK)
    service.post(f"{HOOK}/test").respond(202, json=examples.DELIVERY)
    service.post(f"{HOOK}/rotate-secret").respond(json=rotated)
    service.post(f"{HOOK}/replay").respond(202, json={"replayed": 3})
    service.post("/v1/deliveries/dlv_1/redeliver").respond(202, json=examples.DELIVERY)
    commands = ("show", "enable", "disable", "remove", "verify", "test", "rotate-secret", "replay")

    added = json.loads(run("webhooks", "add", "https://agent.example/", "--json").stdout)
    printed = {name: json.loads(run("webhooks", name, "wh_1", "--json").stdout) for name in commands}
    again = json.loads(run("deliveries", "redeliver", "dlv_1", "--json").stdout)

    assert (added["id"], added["secret"]) == (examples.WEBHOOK_ID, examples.SECRET)
    assert printed["remove"] == {"id": "wh_1", "removed": True}
    assert printed["rotate-secret"]["secret"] == examples.SECRET
    assert printed["replay"]["replayed"] == 3
    assert {printed[name]["id"] for name in ("show", "enable", "disable", "verify")} == {examples.WEBHOOK_ID}
    assert (printed["test"]["id"], again["id"]) == (examples.DELIVERY_ID, examples.DELIVERY_ID)


def test_a_rotation_without_overlap_says_that_the_earlier_secrets_sign_nothing_more(
    run: Run, service: respx.MockRouter
) -> None:
    (rotated,) = schema_examples.EXAMPLES_BY_SCHEMA["RotatedWebhookView"]
    nothing_open = {"due_now": 0, "held": 0, "in_flight": 0, "next_attempt_at": None}
    service.post(f"{HOOK}/rotate-secret").respond(json=rotated | nothing_open)

    ran = run("webhooks", "rotate-secret", "wh_1", "--overlap-seconds", "0")

    assert ran.stdout == f"{rotated['secret']}\n"
    assert ran.stderr.splitlines() == ["Earlier secrets sign nothing from now on.", "Callbacks: none is waiting"]


def test_a_problem_is_one_line_that_says_what_to_do(run: Run, service: respx.MockRouter) -> None:
    detail = "The webhook is disabled, so nothing is sent to it."
    service.post(f"{HOOK}/test").respond(409, json={"detail": detail}, headers=PROBLEM_JSON)

    ran = run("webhooks", "test", "wh_1")

    assert (ran.exit_code, ran.stdout, ran.stderr) == (2, "", f"Error: {detail}\n")


@pytest.mark.parametrize(
    ("command", "method", "path"),
    [
        (("webhooks", "show"), "GET", ""),
        (("webhooks", "pause"), "PATCH", ""),
        (("webhooks", "remove"), "DELETE", ""),
        (("webhooks", "verify"), "POST", "/verify"),
        (("webhooks", "rotate-secret"), "POST", "/rotate-secret"),
        (("trigger",), "POST", "/test"),
    ],
)
def test_a_webhook_is_found_by_its_name(
    run: Run, service: respx.MockRouter, command: tuple[str, ...], method: str, path: str
) -> None:
    service.get("/v1/webhooks/by-name/inbox").respond(json=examples.WEBHOOK)
    route = service.route(method=method, path=f"/v1/webhooks/{examples.WEBHOOK_ID}{path}").respond(409)

    run(*command, "inbox")

    assert route.called
