"""The doctor says whose arguments are not checked, and why."""

from dataclasses import replace
from typing import Any

import mcp_types as types

from ringback.cli.installation_checks.upstreams import TOOLS_SHOWN_MAX, check_upstreams, describe_unchecked
from ringback.domain.clock import SystemClock
from ringback.settings import Settings
from ringback.upstreams.config import UpstreamConfig
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


def test_of_many_such_tools_the_first_are_named() -> None:
    detail = describe_unchecked({f"tool-{number}": "odd" for number in range(100)})

    assert "Arguments of 100 tools" in detail
    assert detail.count("(odd)") == TOOLS_SHOWN_MAX
    assert detail.endswith(", …")
