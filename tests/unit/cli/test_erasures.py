"""`ringback calls erase`, `sessions erase`, `principals erase` and `erasure` with a mocked service."""

import json
from collections.abc import Callable

import respx
from typer.testing import Result

from ringback.schemas import administration_examples, examples
from tests.support.mocked_requests import get_last_request, parse_query

Run = Callable[..., Result]


def test_a_call_is_erased_and_the_counts_are_printed(run: Run, service: respx.MockRouter) -> None:
    route = service.delete("/v1/calls/call_1").respond(
        json={**administration_examples.ERASURE, "kind": "call", "calls": 1}
    )

    ran = run("calls", "erase", "call_1", "--cancel")

    assert (ran.exit_code, parse_query(get_last_request(route))) == (0, {"cancel": "true"})
    assert "state: finished" in ran.stdout
    assert "erased: 1 calls, 4 deliveries, 5 events, 1 webhooks" in ran.stdout


def test_an_operator_erases_for_the_owner(run: Run, service: respx.MockRouter) -> None:
    call = service.delete("/v1/calls/call_1").respond(json={**administration_examples.ERASURE, "kind": "call"})
    session = service.delete("/v1/sessions/nightly").respond(json=administration_examples.ERASURE)

    ran = [
        run("calls", "erase", "call_1", "--all-principals"),
        run("sessions", "erase", "nightly", "--principal", "alice"),
    ]

    assert [each.exit_code for each in ran] == [0, 0]
    assert parse_query(get_last_request(call)) == {"principal": "*"}
    assert parse_query(get_last_request(session)) == {"principal": "alice"}


def test_an_erasure_that_goes_on_names_the_command_that_shows_it(run: Run, service: respx.MockRouter) -> None:
    service.delete("/v1/sessions/a%2Fb").respond(
        202, json={**administration_examples.ERASURE, "state": "erasing", "finished_at": None}
    )
    service.get(f"/v1/erasures/{examples.ERASURE_ID}").respond(
        json={**administration_examples.ERASURE, "state": "waiting"}
    )

    erasing, waiting = run("sessions", "erase", "a/b"), run("erasure", examples.ERASURE_ID)

    assert f"ringback erasure {examples.ERASURE_ID}" in erasing.stderr
    assert "has not ended yet" in waiting.stderr


def test_an_erasure_that_finds_nothing_asks_to_check_the_spelling(run: Run, service: respx.MockRouter) -> None:
    nothing = {"target": "alicia", "calls": 0, "deliveries": 0, "events": 0, "webhooks": 0}
    for path in ("/v1/principals/alicia", "/v1/sessions/alicia"):
        service.delete(path).respond(json={**administration_examples.ERASURE, **nothing})
    service.delete("/v1/sessions/nightly").respond(json=administration_examples.ERASURE)

    empty = [run("principals", "erase", "alicia", "--yes"), run("sessions", "erase", "alicia")]
    found = run("sessions", "erase", "nightly")

    # An erasure does not count API keys, which may be all that the principal had.
    assert all("No calls, events or webhooks of 'alicia' were found" in each.stderr for each in empty)
    assert found.stderr == ""


def test_a_principal_is_erased_only_with_a_confirmation(run: Run, service: respx.MockRouter) -> None:
    service.delete("/v1/principals/alice").respond(
        json={**administration_examples.ERASURE, "kind": "principal", "target": "alice"}
    )

    refused, erased = run("principals", "erase", "alice"), run("principals", "erase", "alice", "--yes", "--json")

    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "--yes" in refused.stderr
    assert json.loads(erased.stdout)["target"] == "alice"
