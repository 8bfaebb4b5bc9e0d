"""How long a tool call is held: by its URL, its tool, its upstream and the setting, in this order."""

from types import SimpleNamespace
from typing import Any, Final, cast

import pytest

from ringback.domain.errors import InvalidRequest
from ringback.domain.upstreams import ToolConfig
from ringback.mcp_server.gateway import Gateway
from ringback.mcp_server.http_options import parse_wait_parameter
from ringback.mcp_server.request_context import RequestContext
from ringback.mcp_server.wait_windows import POLL_SECONDS_DEFAULT, WaitWindow, WaitWindows
from ringback.services.lifecycle import Lifecycle
from ringback.upstreams.config import UpstreamConfig, UpstreamTransport
from tests.support.clock import FakeClock

SETTING: Final = 4.0
LONGEST: Final = 45.0
CONFIG: Final = UpstreamConfig(
    name="git",
    transport=UpstreamTransport.HTTP,
    max_concurrent=1,
    inline_wait_seconds=8.0,
    tool_inline_wait_seconds={"slow": 2.0, "slowest": 60.0},
)


class FakeGateway:
    def __init__(self) -> None:
        self.config = SimpleNamespace(inline_wait_seconds=SETTING, wait_seconds_max=LONGEST)
        self.clock = FakeClock()
        self.lifecycle = Lifecycle()
        self.catalog = self

    def get_tool_config(self, upstream: str, tool: str) -> ToolConfig:
        return CONFIG.get_tool_config(tool) if upstream == CONFIG.name else ToolConfig()


def make_context(
    *,
    session_id: str = "",
    endpoint_wait: float | None = None,
    client: str = "test",
    meta: dict[str, Any] | None = None,
    principal: str = "alice",
    query: bytes = b"",
    call_id: str | None = None,
) -> RequestContext:
    """A legacy request with a session id, a modern one without."""
    return cast(
        "RequestContext",
        SimpleNamespace(
            is_modern=not session_id,
            mcp_session_id=session_id,
            caller=SimpleNamespace(principal=principal),
            meta=meta or {},
            http_headers=[],
            query_string=query,
            client_name=client,
            client_version="1",
            read_endpoint_wait_seconds=lambda: endpoint_wait,
            request_closed_at=None,
            stream_request=None if call_id is None else SimpleNamespace(call_id=call_id),
        ),
    )


@pytest.fixture
def gateway() -> FakeGateway:
    return FakeGateway()


@pytest.fixture
def windows(gateway: FakeGateway) -> WaitWindows:
    return WaitWindows(cast("Gateway", gateway))


def give_up(gateway: FakeGateway, windows: WaitWindows, context: RequestContext, after_seconds: float) -> None:
    """A wait at whose end the client disconnects."""
    with windows.observe_wait(context):
        gateway.clock.advance(after_seconds)
        cast("Any", context).request_closed_at = gateway.clock.monotonic()
        gateway.clock.advance(1)  # the service notices the disconnect only at its next step
    cast("Any", context).request_closed_at = None


# -- ?wait= ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (b"", None),
        (b"other=1", None),
        (b"wait=0", 0.0),
        (b"wait=20", 20.0),
        (b"x=1&wait=2.5", 2.5),
        (b"%77ait=7", 7.0),
        (b"wait=60", 60.0),
        (b"waiting=90", None),
    ],
)
def test_the_wait_of_a_url_is_read(query: bytes, expected: float | None) -> None:
    assert parse_wait_parameter(query) == expected


@pytest.mark.parametrize(
    "query",
    [
        b"wait",
        b"wait=",
        b"wait=-1",
        b"wait=61",
        b"wait=1e1",
        b"wait=nan",
        b"wait=0x5",
        b"wait=1&wait=2",
        b"wait=+1",
        b"wait=\xff",
    ],
)
def test_a_wait_that_is_no_number_of_seconds_is_refused_with_an_example(query: bytes) -> None:
    with pytest.raises(InvalidRequest, match="from 0 to 60, for example"):
        parse_wait_parameter(query)


# -- the order -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("endpoint_wait", "upstream", "tool", "expected"),
    [
        (None, "time", "any", SETTING),
        (None, "git", "any", 8.0),
        (None, "git", "slow", 2.0),
        (20.0, "git", "slow", 20.0),
        (0.0, "git", "slow", 0.0),
        (60.0, "git", "slow", LONGEST),
        (None, "git", "slowest", LONGEST),
    ],
)
def test_the_window_is_the_urls_or_the_tools_or_the_upstreams_or_the_settings_and_bounded(
    windows: WaitWindows, endpoint_wait: float | None, upstream: str, tool: str, expected: float
) -> None:
    window = windows.choose_tool_window(make_context(endpoint_wait=endpoint_wait), upstream, tool)

    assert window == WaitWindow(seconds=expected, seconds_max=expected)


@pytest.mark.parametrize(
    ("endpoint_wait", "requested", "expected"),
    [
        (None, None, SETTING),
        (20.0, None, 20.0),
        (0.0, None, POLL_SECONDS_DEFAULT),
        (1.0, None, 1.0),
        (2.0, 30.0, 30.0),
        (None, 60.0, LONGEST),
        (9.0, 0.0, 0.0),
    ],
)
def test_a_builtin_tool_waits_as_long_as_its_caller_asks_or_else_as_the_url_says(
    windows: WaitWindows, endpoint_wait: float | None, requested: float | None, expected: float
) -> None:
    assert windows.choose_poll_seconds(make_context(endpoint_wait=endpoint_wait), requested) == expected


# -- clients that gave up --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("session_id", ["session-1", ""])
def test_a_client_that_gave_up_gets_shorter_windows_of_every_kind(
    gateway: FakeGateway, windows: WaitWindows, session_id: str
) -> None:
    context = make_context(session_id=session_id, meta={"client_session_id": "mine"})
    give_up(gateway, windows, context, 5.0)

    assert windows.choose_tool_window(context, "time", "any").seconds == 3.0
    assert windows.choose_poll_seconds(context, 45.0) == 3.0
    assert windows.choose_grace_window(context, 10.0).seconds == 3.0
    assert windows.choose_grace_window(context, 0.5).seconds == 0.5


def test_a_window_that_a_url_or_the_configuration_of_a_tool_chooses_is_not_shortened(
    gateway: FakeGateway, windows: WaitWindows
) -> None:
    """Its user stopped a call, and the client waits as long as its URL says."""
    chosen, other = make_context(session_id="s", endpoint_wait=20.0), make_context(session_id="s")
    give_up(gateway, windows, chosen, 5.0)

    assert windows.choose_tool_window(chosen, "time", "any").seconds == 20.0
    assert windows.choose_grace_window(chosen, 10.0).seconds == 10.0
    assert [windows.choose_poll_seconds(chosen, each) for each in (None, 15.0, 45.0)] == [20.0, 15.0, 20.0]
    assert windows.choose_tool_window(other, "git", "any").seconds == 8.0
    assert windows.choose_tool_window(other, "time", "any").seconds == 3.0


def test_a_call_stopped_at_once_shortens_no_window_and_a_later_stop_only_the_next_ones(
    gateway: FakeGateway, windows: WaitWindows
) -> None:
    context, chosen = make_context(session_id="s"), list[float]()
    give_up(gateway, windows, context, 0.5)
    assert windows.choose_tool_window(context, "time", "any").seconds == SETTING
    give_up(gateway, windows, context, 3.0)
    for _ in range(3):
        chosen.append(windows.choose_tool_window(context, "time", "any").seconds)
        with windows.observe_wait(context):
            gateway.clock.advance(chosen[-1])

    assert chosen == [2.0, 3.0, SETTING]


def test_a_modern_client_without_a_session_shortens_nobodys_windows(gateway: FakeGateway, windows: WaitWindows) -> None:
    """All agents of one key and one framework look alike then."""
    give_up(gateway, windows, make_context(), 2.0)

    assert windows.choose_tool_window(make_context(), "time", "any").seconds == SETTING


def test_only_the_session_or_the_client_that_gave_up_gets_shorter_windows(
    gateway: FakeGateway, windows: WaitWindows
) -> None:
    give_up(gateway, windows, make_context(session_id="session-1"), 2.0)
    give_up(gateway, windows, make_context(meta={"client_session_id": "mine"}), 2.0)
    others = [
        make_context(session_id="session-2"),
        make_context(),
        make_context(meta={"client_session_id": "mine"}, principal="bob"),
        make_context(meta={"client_session_id": "mine"}, client="other"),
        make_context(query=b"client_session_id=another"),
    ]

    assert [windows.choose_tool_window(each, "time", "any").seconds for each in others] == [SETTING] * len(others)


def test_an_answered_wait_and_a_shutdown_are_no_signs_of_a_client_timeout(
    gateway: FakeGateway, windows: WaitWindows
) -> None:
    context = make_context(session_id="session-1")
    with windows.observe_wait(context):
        gateway.clock.advance(2)
    gateway.lifecycle.begin_shutdown()
    give_up(gateway, windows, context, 2.0)

    assert windows.choose_tool_window(context, "time", "any").seconds == SETTING


def test_an_invalid_label_is_left_to_the_start_of_the_call(windows: WaitWindows) -> None:
    assert windows.choose_poll_seconds(make_context(meta={"ringback/clientSessionId": 7}), 3.0) == 3.0


# -- progress --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("client", "meta", "expected"),
    [
        ("opencode", {"progress_token": 0}, LONGEST),
        ("claude-code", {"progress_token": "t"}, LONGEST),
        ("opencode", {}, SETTING),
        ("claude-ai", {"progress_token": "t"}, SETTING),
        ("mcp", {"progress_token": "t"}, SETTING),
    ],
)
def test_progress_extends_the_window_only_for_clients_that_then_wait_longer(
    windows: WaitWindows, client: str, meta: dict[str, Any], expected: float
) -> None:
    window = windows.choose_tool_window(make_context(client=client, meta=meta), "time", "any")

    assert window == WaitWindow(seconds=SETTING, seconds_max=expected)


def test_progress_does_not_extend_the_window_of_a_client_that_gave_up(
    gateway: FakeGateway, windows: WaitWindows
) -> None:
    context = make_context(client="opencode", meta={"progress_token": 1, "client_session_id": "mine"})
    give_up(gateway, windows, context, 5.0)

    assert windows.choose_tool_window(context, "time", "any") == WaitWindow(seconds=3.0, seconds_max=3.0)


def test_a_client_that_lost_its_stream_and_came_back_has_not_given_up(
    gateway: FakeGateway, windows: WaitWindows
) -> None:
    """It comes back while the first request still waits, or after that."""
    during, after = make_context(session_id="s", call_id="call_1"), make_context(session_id="s", call_id="call_2")
    with windows.observe_wait(during):
        gateway.clock.advance(2)
        cast("Any", during).request_closed_at = gateway.clock.monotonic()
        windows.forget_give_up(make_context(session_id="s", call_id="call_1"))
    assert windows.choose_tool_window(during, "time", "any").seconds == SETTING

    give_up(gateway, windows, after, 2)
    assert windows.choose_tool_window(after, "time", "any").seconds < SETTING
    windows.forget_give_up(make_context(session_id="s", call_id="call_2"))
    assert windows.choose_tool_window(after, "time", "any").seconds == SETTING
