"""Every MUST in the list has a test, and every test of a MUST names one in the list."""

import ast
from pathlib import Path

from tests.interaction.gateway_tasks.task_requirements import TASK_REQUIREMENTS

TESTS = Path(__file__).parents[2]


def test_every_listed_must_has_a_test() -> None:
    tested = _tested_ids()
    assert [must.id for must in TASK_REQUIREMENTS if must.id not in tested] == []


def test_every_tested_must_is_listed() -> None:
    assert _tested_ids() - {must.id for must in TASK_REQUIREMENTS} == set()


def test_every_must_is_listed_once() -> None:
    assert len({must.id for must in TASK_REQUIREMENTS}) == len(TASK_REQUIREMENTS)


def _tested_ids() -> set[str]:
    return {
        str(argument.value)
        for folder in ("interaction/gateway", "interaction/gateway_tasks", "unit/mcp_server")
        for path in (TESTS / folder).glob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "must"
        for argument in node.args
        if isinstance(argument, ast.Constant)
    }
