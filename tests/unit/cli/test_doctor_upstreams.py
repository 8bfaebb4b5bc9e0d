"""The doctor says whose arguments are not checked, and why."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest

from ringback.cli.installation_checks.upstreams import TOOLS_SHOWN_MAX, check_upstreams, describe_unchecked
from ringback.domain.call import RerunPolicy
from ringback.domain.clock import SystemClock
from ringback.settings import Settings
from ringback.upstreams.catalog import tool_catalog
from ringback.upstreams.config import UpstreamConfig, UpstreamTransport
from tests.support.upstreams import ControlledUpstream, make_http_config, serving

EXTERNAL: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"$ref": "https://u:pa55word@a.example/s.json?k=pa55word"}},
}


async def test_tools_whose_arguments_are_not_checked_are_counted_with_the_reason() -> None:
    odd = ControlledUpstream()
    odd.tools = [
        types.Tool(name="good", input_schema={"type": "object"}),
        types.Tool(name="extref", input_schema=EXTERNAL),
    ]

    async def read_detail(config: UpstreamConfig) -> str:
        (finding,) = await check_upstreams([config], Settings(), clock=SystemClock())
        assert finding.ok
        return finding.detail

    async with serving(odd.app()) as server:
        config = make_http_config(server.url)

        assert await read_detail(config) == (
            "2 tools. Arguments of 1 tool are not checked, because the inputSchema is unusable: "
            "'extref' (the reference 'https://a.example/s.json' has no target in the schema)"
        )
        assert await read_detail(replace(config, checks_arguments=False)) == "2 tools"


async def test_settings_of_a_tool_that_the_upstream_does_not_list_are_reported() -> None:
    """A misspelt name leaves the tool with the settings of the upstream: it may run again, for example."""
    payments = ControlledUpstream()
    payments.tools = [types.Tool(name="charge_card", input_schema={"type": "object"})]

    async with serving(payments.app()) as server:
        config = replace(make_http_config(server.url), rerun_policy=RerunPolicy.ALWAYS)
        right = replace(config, tool_rerun_policy={"charge_card": RerunPolicy.NEVER})
        wrong = replace(config, tool_rerun_policy={"charge_crad": RerunPolicy.NEVER}, task_only_tools=frozenset({"z"}))
        (fine,) = await check_upstreams([right], Settings(), clock=SystemClock())
        (faulty,) = await check_upstreams([wrong], Settings(), clock=SystemClock())

    assert (fine.ok, fine.detail) == (True, "1 tools")
    assert not faulty.ok
    assert faulty.detail == (
        "1 tools. 'ringback.tools' of its entry names tools that it does not list: 'charge_crad' (did you mean "
        "'charge_card'?), 'z'. Correct the names."
    )


async def test_an_upstream_that_does_not_respond_is_shown_with_its_command_and_without_its_arguments(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The advice was to run it by hand. Arguments may be secret, and findings are sent to others."""
    monkeypatch.setattr(tool_catalog, "LIST_TOOLS_TIMEOUT_SECONDS", 0.01)
    silent = UpstreamConfig(
        name="silent",
        transport=UpstreamTransport.STDIO,
        command=sys.executable,
        args=("-c", "import sys; sys.stdin.read()", "pa55word"),
        cwd=str(tmp_path),
        max_concurrent=1,
    )

    (finding,) = await check_upstreams([silent], Settings(connect_patience_seconds=0.01), clock=SystemClock())

    assert not finding.ok
    assert "see the log of its server, or run its command by hand, to see why it does not respond." in finding.detail
    assert (
        f"The command: {sys.executable} with the 'args' and 'env' of its configuration, in the folder {tmp_path}."
        in (finding.detail)
    )
    assert "pa55word" not in finding.detail


def test_of_many_such_tools_the_first_are_named() -> None:
    detail = describe_unchecked({f"tool-{number}": "odd" for number in range(100)})

    assert "Arguments of 100 tools" in detail
    assert detail.count("(odd)") == TOOLS_SHOWN_MAX
    assert detail.endswith(", …")
