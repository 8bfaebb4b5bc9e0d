"""`ringback events publish` and `ringback events declare`: events of one's own."""

from collections.abc import Callable
from pathlib import Path

import pytest
import respx
from typer.testing import Result

from tests.support.mocked_requests import get_last_request, parse_body

Run = Callable[..., Result]

ORDER_PAID = {
    "name": "order.paid",
    "description": "An order was paid.",
    "input_schema": {"type": "object"},
    "payload_schema": {"type": "object"},
}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(("nodata",), "NAME=VALUE"), (("--json-data", "[1]"), "--json-data")],
)
def test_invalid_data_is_refused_with_the_options_of_this_command(
    run: Run, arguments: tuple[str, ...], words: str
) -> None:
    refused = run("events", "publish", "order.paid", *arguments)

    assert (refused.exit_code, words in refused.stderr) == (2, True)
    assert "--arg" not in refused.stderr
    assert "--json-args" not in refused.stderr


def test_an_event_type_is_declared_before_its_first_event(run: Run, service: respx.MockRouter) -> None:
    route = service.put("/v1/event-types/order.paid").respond(json=ORDER_PAID)

    declared = run(
        *("events", "declare", "order.paid", "--description", "An order was paid."),
        *("--payload", '{"type": "object"}'),
    )

    assert (declared.exit_code, declared.stdout) == (0, "order.paid is declared.\n")
    assert parse_body(get_last_request(route)) == {
        "description": "An order was paid.",
        "payload_schema": {"type": "object"},
    }


def test_a_schema_may_be_in_a_file_and_a_change_that_is_no_addition_is_shown(
    run: Run, service: respx.MockRouter, tmp_path: Path
) -> None:
    route = service.put("/v1/event-types/order.paid").respond(
        json=ORDER_PAID | {"warning": "payload_schema has changed"}
    )
    file = tmp_path / "schema.json"
    file.write_text('{"type": "object", "required": ["order"]}', encoding="utf-8")

    declared = run("events", "declare", "order.paid", "--payload", f"@{file}")
    missing = run("events", "declare", "order.paid", "--payload", "@none.json")

    assert parse_body(get_last_request(route))["payload_schema"] == {"type": "object", "required": ["order"]}
    assert (declared.exit_code, declared.stderr) == (0, "Warning: payload_schema has changed\n")
    assert (missing.exit_code, "none.json cannot be read" in missing.stderr) == (2, True)


def test_a_schema_that_is_no_object_is_refused_before_any_request(run: Run) -> None:
    refused = run("events", "declare", "order.paid", "--payload", "[1]")

    assert (refused.exit_code, "--payload" in refused.stderr) == (2, True)


def test_the_advice_of_a_registration_for_an_unknown_type_names_the_command(
    run: Run, service: respx.MockRouter
) -> None:
    detail = "events: you have no event type 'order.paid'. Declare it: PUT /v1/event-types/order.paid"
    problem_json = {"content-type": "application/problem+json"}
    service.post("/v1/webhooks").respond(422, json={"detail": detail}, headers=problem_json)

    refused = run("webhooks", "add", "https://agent.example/", "--event", "order.paid")

    assert "Declare it: ringback events declare order.paid" in refused.stderr
