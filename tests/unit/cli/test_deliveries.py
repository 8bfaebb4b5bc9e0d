"""`ringback deliveries` and `ringback webhooks replay` with a mocked service: their requests and output."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
import respx
from typer.testing import Result

from ringback.schemas import examples
from tests.support.mocked_requests import get_last_request, list_requests, parse_body, parse_query

Run = Callable[..., Result]

HOOK = "/v1/webhooks/wh_1"


@pytest.mark.parametrize(
    ("command", "path", "count"),
    [
        (("webhooks", "replay", "wh_1"), f"{HOOK}/replay", "replayed"),
        (("deliveries", "redeliver"), "/v1/deliveries/redeliver", "redelivered"),
    ],
    ids=["replay", "redeliver"],
)
def test_a_dry_run_says_that_its_callbacks_are_not_due_yet(
    run: Run, service: respx.MockRouter, command: tuple[str, ...], path: str, count: str
) -> None:
    planned = {"due_now": 300, "held": 2, "in_flight": 0, "next_attempt_at": None}
    service.post(path).respond(202, json={count: 300, **planned})

    dry, real = run(*command, "--dry-run").stderr, run(*command).stderr

    assert (dry, real) == ("Callbacks without --dry-run: 300 due now, 2 held\n", "Callbacks: 300 due now, 2 held\n")


def test_a_dry_run_of_a_redelivery_says_what_would_be_done(run: Run, service: respx.MockRouter) -> None:
    service.post("/v1/deliveries/redeliver").respond(202, json={"redelivered": 3})

    ran = run("deliveries", "redeliver", "--dry-run"), run("deliveries", "redeliver")

    assert [each.stdout.splitlines()[0] for each in ran] == ["would be redelivered: 3", "redelivered: 3"]


def test_a_dry_run_of_a_replay_says_what_would_be_done(run: Run, service: respx.MockRouter) -> None:
    service.post(f"{HOOK}/replay").respond(202, json={"replayed": 3})

    ran = run("webhooks", "replay", "wh_1", "--dry-run"), run("webhooks", "replay", "wh_1")

    assert [each.stdout.splitlines()[0] for each in ran] == ["would be replayed: 3", "replayed: 3"]


REPLAYS: list[tuple[tuple[str, ...], dict[str, Any]]] = [
    (("--dead",), {"dead": True}),
    (("--cursor", "a"), {"cursor": "a"}),
    (("--since", "2026-11-20T17:00:00+0100"), {"since": "2026-11-20T17:00:00+01:00"}),
    ((), {}),
]


@pytest.mark.parametrize(("options", "body"), REPLAYS)
def test_a_replay_sends_the_given_filters(
    run: Run, service: respx.MockRouter, options: tuple[str, ...], body: dict[str, Any]
) -> None:
    route = service.post(f"{HOOK}/replay").respond(202, json={"replayed": 3, "still_open": 1, "more": False})

    ran = run("webhooks", "replay", "wh_1", *options)

    assert ran.stdout == "replayed: 3\nstill_open: 1\n"
    assert parse_body(get_last_request(route)) == body


@pytest.mark.parametrize(("cursor", "words"), [("b", "--cursor b"), (None, "run the command again")])
def test_an_incomplete_replay_says_how_to_continue(
    run: Run, service: respx.MockRouter, cursor: str | None, words: str
) -> None:
    answer = {"replayed": 10_000, "still_open": 0, "more": True, "cursor": cursor}
    service.post(f"{HOOK}/replay").respond(202, json=answer)

    assert words in run("webhooks", "replay", "wh_1", "--dead").stderr


def test_a_day_without_a_time_is_one_of_this_machine(run: Run, service: respx.MockRouter) -> None:
    route = service.post(f"{HOOK}/replay").respond(202, json={"replayed": 0})

    run("webhooks", "replay", "wh_1", "--since", "2026-11-20")

    assert parse_body(get_last_request(route))["since"].startswith("2026-11-20T00:00:00")
    assert len(parse_body(get_last_request(route))["since"]) > len("2026-11-20T00:00:00")


def test_deliveries_are_listed_up_to_the_given_limit(run: Run, service: respx.MockRouter) -> None:
    first = {**examples.DELIVERY, "id": "dlv_1", "call_id": None}
    pages = [
        httpx.Response(200, json={"deliveries": [first, {**first, "id": "dlv_2"}], "next_cursor": "n"}),
        httpx.Response(200, json={"deliveries": [{**first, "id": "dlv_3"}], "next_cursor": None}),
    ]
    route = service.get("/v1/deliveries")
    route.side_effect = [*pages, pages[0]]

    table = run("deliveries", "list", "--state", "dead", "--webhook", "wh_1", "--call", "call_1")
    two = run("deliveries", "list", "--limit", "2", "--json")

    assert all(name in table.stdout for name in ("dlv_1", "dlv_2", "dlv_3"))
    assert [delivery["id"] for delivery in json.loads(two.stdout)] == ["dlv_1", "dlv_2"]
    assert parse_query(list_requests(route)[0]) == {"state": "dead", "webhook_id": "wh_1", "call_id": "call_1"}
    assert len(list_requests(route)) == 3


def test_a_delivery_is_shown_with_its_attempts_and_sent_again(run: Run, service: respx.MockRouter) -> None:
    service.get("/v1/deliveries/dlv_1").respond(json={**examples.DELIVERY, "attempts": [examples.ATTEMPT]})
    service.post("/v1/deliveries/dlv_1/redeliver").respond(
        202, json={**examples.DELIVERY, **examples.DUE_NOW, "generation": 2}
    )

    shown, again = run("deliveries", "show", "dlv_1"), run("deliveries", "redeliver", "dlv_1")

    assert json.loads(shown.stdout)["attempts"][0]["category"] == "http_5xx"
    assert again.stdout == f"{examples.DELIVERY_ID}\n"
    assert again.stderr.splitlines()[0] == "Callbacks: 3 due now, next attempt 17:02:11 UTC"


def test_deliveries_are_found_by_the_name_of_their_webhook(run: Run, service: respx.MockRouter) -> None:
    service.get("/v1/webhooks/by-name/inbox").respond(json=examples.WEBHOOK)
    listed = service.get("/v1/deliveries").respond(json={"deliveries": [], "next_cursor": None})
    service.get(f"/v1/webhooks/{examples.WEBHOOK_ID}").respond(json=examples.WEBHOOK)
    sent = service.post("/v1/deliveries/redeliver").respond(409)

    run("deliveries", "list", "--webhook", "inbox")
    run("deliveries", "redeliver", "--webhook", "inbox")

    assert get_last_request(listed).url.params["webhook_id"] == examples.WEBHOOK_ID
    assert parse_body(get_last_request(sent))["webhook_id"] == examples.WEBHOOK_ID
