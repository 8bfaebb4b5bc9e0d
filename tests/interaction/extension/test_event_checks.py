"""`ringback.extension.Events` against the checks of `ringback check-server`, with the SDK and with FastMCP."""

from collections.abc import Callable
from typing import Any, Final

import pytest

from ringback.cli.check_report import CheckVerdict
from ringback.cli.server_checks.connection import Era
from ringback.cli.server_checks.run import RunOptions, run_checks, select_cases
from ringback.extension import Events
from ringback.extension.events import log_backend
from tests.interaction.events_checks.test_check_server import LONG_TIMEOUTS, NEEDS_ANOTHER_SERVER, NEEDS_FIXTURE
from tests.support.event_servers import FastmcpEvents, make_fastmcp_order_server, make_order_server, serving_orders
from tests.support.extension_servers import LOCAL_RECEIVER_SETTINGS

ONE_TYPE: Final = frozenset(
    {
        "list-pagination",  # its list is one page
        "poll-mode-unsupported",  # its event types offer all modes
        "stream-mode-unsupported",
        "error-unsupported",
        "subscribe-key-immutable",  # one argument, which is optional
        "subscribe-key-canonical",
    }
)


def make_sdk_server(**options: Any) -> Any:
    return make_order_server(Events.in_memory(**options), authenticates=True)


def make_fastmcp_server(**options: Any) -> Any:
    return make_fastmcp_order_server(FastmcpEvents.in_memory(**options), authenticates=True)


@pytest.fixture(autouse=True)
def frequent_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_backend, "HEARTBEAT_SECONDS", 0.1)


@pytest.mark.parametrize("make_server", [make_sdk_server, make_fastmcp_server])
async def test_a_users_server_passes_every_check_of_a_server_with_events(make_server: Callable[..., Any]) -> None:
    async with serving_orders(make_server(settings=LOCAL_RECEIVER_SETTINGS)) as (_, url):
        options = RunOptions(
            url=url,
            credentials={"authorization": "Bearer token-alice"},
            other_credentials={"authorization": "Bearer token-bob"},
            era=Era.MODERN,
            emit_tool="ship",
            emit_arguments={"order_id": "checked"},
            timeouts=LONG_TIMEOUTS,
        )
        results = await run_checks(options, select_cases([]))

    others = {
        each.case.id: (each.verdict, each.observed) for each in results if each.verdict is not CheckVerdict.PASSED
    }
    assert {name: seen for name, seen in others.items() if seen[0] is not CheckVerdict.UNTESTABLE} == {}
    assert others.keys() - NEEDS_FIXTURE - NEEDS_ANOTHER_SERVER - ONE_TYPE == set()
