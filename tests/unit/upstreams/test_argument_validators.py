"""Compiled validators are discarded with the list of tools that they belong to."""

from collections.abc import Mapping
from typing import Any, cast
from weakref import WeakSet

import pytest

from ringback.domain.errors import InvalidArguments, UnknownTool
from ringback.domain.upstreams import CheckWork, ToolConfig, ToolInfo
from ringback.upstreams.catalog import tool_catalog as catalog_module
from ringback.upstreams.catalog.argument_validation import ArgumentValidator
from ringback.upstreams.catalog.tool_catalog import UpstreamToolCatalog
from ringback.upstreams.connection import UpstreamConnection
from ringback.upstreams.connection_directory import ConnectionDirectory
from ringback.upstreams.json_schema.steps import STEPS_MAX
from tests.support.examples import ALICE
from tests.support.fixed_upstreams import FakeUpstreamConnection

SCHEMA: dict[str, Any] = {"type": "object", "required": ["n"]}


class RenamingConnection(FakeUpstreamConnection):
    """Lists one tool, of whatever name."""

    def __init__(self) -> None:
        super().__init__("git")
        self.rename("first")

    def rename(self, tool: str) -> None:
        self._tools = {tool: ToolInfo(name=tool, description=None, input_schema=SCHEMA, raw={})}

    async def wait_until_settled(self, timeout_seconds: float) -> None:
        """It is known at once."""

    def list_cached_tools(self) -> Mapping[str, ToolInfo]:
        return self._tools


async def test_an_upstream_that_keeps_renaming_its_tools_leaves_no_checkers_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alive = WeakSet[ArgumentValidator]()

    class Counted(ArgumentValidator):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            alive.add(self)

    monkeypatch.setattr(catalog_module, "ArgumentValidator", Counted)
    renaming = RenamingConnection()
    connections = ConnectionDirectory(
        {"git": cast("UpstreamConnection", renaming), "gone": cast("UpstreamConnection", RenamingConnection())}
    )
    catalog = UpstreamToolCatalog(connections)
    await catalog.check_call("gone", "first", {"n": 1}, visible_upstreams=None, principal=ALICE)
    del connections.shared["gone"]
    for number in range(5):
        renaming.rename(f"tool-{number}")
        await catalog.check_call("git", f"tool-{number}", {"n": 1}, visible_upstreams=None, principal=ALICE)
        with pytest.raises(InvalidArguments):
            await catalog.check_call("git", f"tool-{number}", {}, visible_upstreams=None, principal=ALICE)

    assert len(alive) == 1


async def test_the_checks_of_one_request_share_the_steps_of_one_check() -> None:
    catalog = UpstreamToolCatalog(ConnectionDirectory({"git": cast("UpstreamConnection", RenamingConnection())}))
    work = CheckWork()

    async def check(arguments: Mapping[str, Any], work: CheckWork | None) -> None:
        await catalog.check_call("git", "first", arguments, visible_upstreams=None, principal=ALICE, work=work)

    with pytest.raises(InvalidArguments):
        await check({}, work)
    assert 0 < work.steps < STEPS_MAX
    work.steps = STEPS_MAX
    await check({}, work)
    with pytest.raises(InvalidArguments):
        await check({}, None)


class LaxConnection(RenamingConnection):
    """Its server converts arguments itself."""

    def get_tool_config(self, tool: str) -> ToolConfig:
        del tool
        return ToolConfig(checks_arguments=False)


async def test_arguments_of_an_upstream_that_checks_them_itself_are_accepted_but_an_unknown_tool_is_not() -> None:
    connections = {"git": RenamingConnection(), "lax": LaxConnection()}
    catalog = UpstreamToolCatalog(
        ConnectionDirectory({name: cast("UpstreamConnection", each) for name, each in connections.items()})
    )
    with pytest.raises(InvalidArguments, match='"check_arguments": false'):
        await catalog.check_call("git", "first", {}, visible_upstreams=None, principal=ALICE)

    await catalog.check_call("lax", "first", {}, visible_upstreams=None, principal=ALICE)
    with pytest.raises(UnknownTool):
        await catalog.check_call("lax", "second", {}, visible_upstreams=None, principal=ALICE)
