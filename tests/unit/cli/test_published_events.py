"""`ringback events publish` and `ringback events declare`: events of one's own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

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
ORDER_SHIPPED: dict[str, Any] = ORDER_PAID | {
    "name": "order.shipped",
    "payload_schema": {"type": "object", "properties": {"order_id": {"type": "string"}, "boxes": {"type": "integer"}}},
}
PUBLISHED = {"eventId": "order-1", "created": True}


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


@pytest.mark.parametrize(
    ("types", "sent"),
    [({"json": {"event_types": [ORDER_SHIPPED]}}, "12"), ({"status_code": 403, "json": {"detail": "no scope"}}, 12)],
)
def test_members_are_read_by_the_declared_schema_unless_it_cannot_be_read(
    run: Run, service: respx.MockRouter, types: Any, sent: object
) -> None:
    service.get("/v1/event-types").respond(**types)
    route = service.post("/v1/events").respond(json=PUBLISHED)

    published = run("events", "publish", "order.shipped", "order_id=12", "boxes=2")

    assert (published.exit_code, published.stderr) == (0, "")
    assert parse_body(get_last_request(route))["data"] == {"order_id": sent, "boxes": 2}


@pytest.mark.parametrize(
    ("declared", "note"),
    [
        (ORDER_SHIPPED, "Note: order.shiped is not declared; did you mean 'order.shipped'?\n"),
        (ORDER_PAID | {"name": "disk.full"}, ""),
        (ORDER_SHIPPED | {"upstream": "shop"}, ""),
    ],
)
def test_a_note_follows_the_publication_of_a_name_that_resembles_a_declared_one(
    run: Run, service: respx.MockRouter, declared: dict[str, Any], note: str
) -> None:
    service.get("/v1/event-types").respond(json={"event_types": [declared]})
    service.post("/v1/events").respond(json=PUBLISHED)

    published = run("events", "publish", "order.shiped")

    assert (published.exit_code, published.stdout, published.stderr) == (0, "order-1 published\n", note)


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
