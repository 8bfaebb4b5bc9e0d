"""`ringback top`, with scripted responses of the service."""

import json
from typing import Any

import httpx
import pytest
import respx
from rich.console import Console

from ringback.cli.commands import top
from ringback.client import Insights
from ringback.schemas import administration_examples, examples
from tests.unit.cli.conftest import Run

HOSTILE = {**examples.WEBHOOK, "url": "https://agent.example/\x1b[2J", "last_error": "http_5xx"}


def script(service: respx.MockRouter, insights: dict[str, Any] | None = None) -> None:
    service.get("/v1/insights").respond(json=insights or administration_examples.INSIGHTS)
    service.get("/v1/webhooks", params={"health": "failing"}).respond(json={"webhooks": [HOSTILE], "next_cursor": None})


def test_it_prints_once_what_is_open_how_calls_ended_and_what_fails(run: Run, service: respx.MockRouter) -> None:
    script(service)

    printed = run("top", "--once").output

    for shown in ("calls ended: result", "attempts: http_5xx", "≤ 6.31 s", "git", "https://agent.example/\ufffd[2J"):
        assert shown in printed
    assert "\x1b[2J" not in printed


def test_on_a_narrow_terminal_ids_stay_whole(
    run: Run, service: respx.MockRouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(top, "create_console", lambda: Console(width=80))
    monkeypatch.setitem(HOSTILE, "url", f"https://agent.example/{'a' * 100}")
    script(service)

    assert examples.WEBHOOK_ID in run("top", "--once").output


def test_it_names_the_upstreams_that_an_operator_has_paused(run: Run, service: respx.MockRouter) -> None:
    script(service, {**administration_examples.INSIGHTS, "paused_upstreams": ["git", "paint"]})

    assert "Paused upstreams, whose calls wait: git, paint." in run("top", "--once").output


def test_an_operator_without_an_option_reads_that_only_its_own_principal_is_counted(
    run: Run, service: respx.MockRouter
) -> None:
    script(service, {**administration_examples.INSIGHTS, "leaves_out_others": True})

    assert "key's own principal only. Of all: ringback top --all-principals" in run("top", "--once").output


def test_as_json_it_prints_the_response_and_the_newest_failing_webhooks(run: Run, service: respx.MockRouter) -> None:
    script(service)

    printed = json.loads(run("top", "--json").output)

    assert Insights.model_validate(printed) == Insights.model_validate(administration_examples.INSIGHTS)
    assert [webhook["id"] for webhook in printed["newest_failing_webhooks"]] == [HOSTILE["id"]]


def test_on_a_terminal_it_is_drawn_again_until_the_service_refuses(
    run: Run, service: respx.MockRouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[float] = []

    async def refuse_later(seconds: float) -> None:
        shown.append(seconds)
        if len(shown) == 2:
            service.get("/v1/insights").mock(return_value=httpx.Response(401))

    script(service)
    monkeypatch.setattr("ringback.cli.commands.top.asyncio.sleep", refuse_later)

    result = run("top", "--every", "3", env={"FORCE_COLOR": "1", "TERM": "xterm"})

    assert (result.exit_code, shown) == (2, [3.0, 3.0])
