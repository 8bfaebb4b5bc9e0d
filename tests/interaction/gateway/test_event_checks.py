"""The gateway against the checks of `ringback check-server`, at an upstream's endpoint and at the joined one, in both eras."""

import json
from collections.abc import Mapping
from typing import Any, Final

import pytest

from ringback.cli.check_report import CheckResult, CheckVerdict
from ringback.cli.server_checks.connection import Era
from ringback.cli.server_checks.run import RunOptions, run_checks, select_cases
from ringback.cli.server_checks.subject import EventChoice
from ringback.mcp_server import event_backend
from tests.interaction.events_checks.test_check_server import LONG_TIMEOUTS, NEEDS_ANOTHER_SERVER, NEEDS_FIXTURE
from tests.interaction.gateway.conftest import GatewayHarness
from tests.interaction.gateway.test_event_polls import call_echo, poll

UPSTREAMS: Final = ("plain",)

ALL_MODES_EVERYWHERE: Final = frozenset({"poll-mode-unsupported", "stream-mode-unsupported", "error-unsupported"})
"""Every event type of the gateway offers every mode, so these cases need an event type of another server."""
ONE_PAGE: Final = frozenset({"list-pagination"})
UNTESTABLE: Final = NEEDS_FIXTURE | NEEDS_ANOTHER_SERVER | ALL_MODES_EVERYWHERE | ONE_PAGE


@pytest.fixture
def frequent_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_backend, "HEARTBEAT_SECONDS", 0.1)


async def check_gateway(
    gate: GatewayHarness, path: str, era: Era, *, tool: str, only: tuple[str, ...] = ()
) -> list[CheckResult]:
    principal = f"checked-{era}-{tool}"
    arguments: Mapping[str, Any] = {"upstream": "plain"} if path == "/mcp" else {}
    options = RunOptions(
        url=f"{gate.url}{path}",
        credentials={"authorization": f"Bearer {await gate.get_api_key(principal)}"},
        other_credentials={"authorization": f"Bearer {await gate.get_api_key(f'{principal}-other')}"},
        era=era,
        choice=EventChoice(name="call.finished", arguments=arguments),
        emit_tool=tool,
        emit_arguments={"text": "checked"},
        timeouts=LONG_TIMEOUTS,
    )
    return await run_checks(options, select_cases(only))


@pytest.mark.usefixtures("frequent_heartbeats")
@pytest.mark.parametrize(
    ("path", "era", "tool"),
    [("/mcp/plain", Era.MODERN, "echo"), ("/mcp/plain", Era.LEGACY, "echo"), ("/mcp", Era.MODERN, "plain__echo")],
)
async def test_the_gateway_passes_every_check_of_a_server_with_events(
    gate: GatewayHarness, path: str, era: Era, tool: str
) -> None:
    results = await check_gateway(gate, path, era, tool=tool)

    others = {
        each.case.id: (each.verdict, each.observed) for each in results if each.verdict is not CheckVerdict.PASSED
    }
    assert {name: seen for name, seen in others.items() if seen[0] is not CheckVerdict.UNTESTABLE} == {}
    assert set(others) == UNTESTABLE


async def test_an_event_names_its_call_and_does_not_carry_the_result(gate: GatewayHarness) -> None:
    client = await gate.make_modern_client("plain", principal="minimal")
    before = await poll(client)
    call_id = await call_echo(client, text="a long result")
    page = await poll(client, cursor=before["cursor"])

    [event] = page["events"]
    assert event["data"]["call_id"] == call_id
    assert "a long result" not in json.dumps(page)
