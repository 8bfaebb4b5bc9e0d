"""An operator names the principal whose data a command uses, or all."""

from collections.abc import Callable
from typing import Any

import pytest
import respx
from typer.testing import Result

from ringback.schemas import administration_examples, examples
from tests.support.mocked_requests import get_last_request, parse_query

Run = Callable[..., Result]

HOOK = "/v1/webhooks/wh_1"


@pytest.mark.parametrize(
    ("command", "method", "path", "answer"),
    [
        (("webhooks", "show", "wh_1"), "GET", HOOK, examples.WEBHOOK),
        (("webhooks", "remove", "wh_1"), "DELETE", HOOK, None),
        (("webhooks", "enable", "wh_1", "--json"), "PATCH", HOOK, examples.WEBHOOK),
        (("webhooks", "disable", "wh_1", "--json"), "PATCH", HOOK, examples.WEBHOOK),
        (("webhooks", "list", "--json"), "GET", "/v1/webhooks", {"webhooks": [], "next_cursor": None}),
        (("deliveries", "list", "--json"), "GET", "/v1/deliveries", {"deliveries": [], "next_cursor": None}),
        (("calls", "--json"), "GET", "/v1/calls", {"calls": [], "next_cursor": None}),
        (("calls", "show", "call_1"), "GET", "/v1/calls/call_1", examples.WORKING_CALL),
        (("calls", "cancel", "call_1", "--json"), "POST", "/v1/calls/call_1/cancel", examples.FINISHED_CALL),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, tuple) else None,  # pyright: ignore[reportUnknownArgumentType, reportUnknownLambdaType]
)
@pytest.mark.parametrize(("options", "principal"), [(["--principal", "bob"], "bob"), (["--all-principals"], "*")])
def test_an_operator_names_a_principal_or_all(
    run: Run,
    service: respx.MockRouter,
    command: tuple[str, ...],
    method: str,
    path: str,
    answer: Any,
    options: list[str],
    principal: str,
) -> None:
    route = service.route(method=method, path=path).respond(json=answer)

    ran = run(*command, *options)

    assert ran.exit_code == 0, ran.stderr
    assert parse_query(get_last_request(route))["principal"] == principal


def test_an_operator_names_one_principal_or_all_and_not_both(run: Run) -> None:
    refused = run("webhooks", "list", "--principal", "bob", "--all-principals")

    assert (refused.exit_code, "not both" in refused.stderr or "either" in refused.stderr) == (2, True)


def test_a_list_of_an_operator_shows_the_owners(run: Run, service: respx.MockRouter) -> None:
    owned = {**examples.WEBHOOK, "principal": "team-7"}
    service.get("/v1/webhooks").respond(json={"webhooks": [owned], "next_cursor": None})

    assert "team-7" in run("webhooks", "list", "--all-principals", "--failing").stdout


def test_an_operator_whose_list_is_empty_reads_that_it_was_only_its_own_principal_s(
    run: Run, service: respx.MockRouter
) -> None:
    service.get("/v1/webhooks").respond(json={"webhooks": [], "next_cursor": None})
    insights = service.get("/v1/insights")

    printed = list[list[str]]()
    for leaves_out_others in (False, True):
        insights.respond(json={**administration_examples.INSIGHTS, "leaves_out_others": leaves_out_others})
        printed.append(run("webhooks", "list", "--failing", "--api-key", "rbk_x").stderr.splitlines())

    advice = "This is of your key's own principal only. Of all: ringback webhooks list --failing --all-principals"
    assert printed == [["No webhook is failing."], ["No webhook is failing.", advice]]


def test_a_redelivery_by_filter_names_one_principal(run: Run) -> None:
    refused = run("deliveries", "redeliver", "--all-principals", "--dry-run")

    assert refused.exit_code == 2
    assert "--principal NAME" in refused.stderr
