"""A built-in tool whose client lost the stream of its request and waits again."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ringback.mcp_server.builtin_tools import call_tools
from ringback.mcp_server.gateway import Gateway
from ringback.mcp_server.request_context import RequestContext
from ringback.mcp_server.wait_windows import WaitWindows


@dataclass(slots=True)
class FakeWaitWindows:
    observed: int = 0
    forgotten: int = 0

    @contextmanager
    def observe_wait(self, _context: RequestContext) -> Generator[None]:
        self.observed += 1
        yield

    def forget_give_up(self, _context: RequestContext) -> None:
        self.forgotten += 1


@dataclass(slots=True)
class FakeContext:
    is_resumed: bool
    asgi_state: dict[str, Any] = field(default_factory=dict[str, Any])
    caller: Any = field(default_factory=lambda: SimpleNamespace(principal="alice"))


@pytest.mark.parametrize(
    ("name", "is_resumed", "expected"),
    [
        ("ringback_wait_for_call", False, (1, 0)),
        ("ringback_wait_for_call", True, (0, 1)),
        ("ringback_resume", True, (0, 1)),
        ("ringback_get_call", True, (0, 0)),
    ],
)
async def test_a_client_that_lost_the_stream_of_a_waiting_tool_has_not_given_up(
    *, name: str, is_resumed: bool, expected: tuple[int, int]
) -> None:
    windows, service = (
        FakeWaitWindows(),
        SimpleNamespace(
            calls=None,
            input_answers=None,
            call_resumption=None,
            call_resumes=None,
            upstream_controls=SimpleNamespace(is_paused=None),
        ),
    )
    feature = call_tools.build_feature(cast("Gateway", service), wait_windows=cast("WaitWindows", windows))
    (tool,) = (each for each in feature.builtin_tools if each.definition["name"] == name)

    await tool.handler(cast("RequestContext", FakeContext(is_resumed)), {})  # without its arguments, so it does nothing

    assert (windows.observed, windows.forgotten) == expected
