"""The list of MUSTs and the tests say the same, in both directions."""

import ast
from pathlib import Path

from tests.interaction.gateway_tasks.task_requirements import TASK_REQUIREMENTS

TESTS = Path(__file__).parents[2]


def test_every_must_is_shown_by_a_test() -> None:
    shown = _shown()
    assert [must.id for must in TASK_REQUIREMENTS if must.id not in shown] == []


def test_no_test_shows_a_must_that_is_not_listed() -> None:
    assert _shown() - {must.id for must in TASK_REQUIREMENTS} == set()


def test_every_must_is_listed_once() -> None:
    assert len({must.id for must in TASK_REQUIREMENTS}) == len(TASK_REQUIREMENTS)


def _shown() -> set[str]:
    return {
        str(argument.value)
        for folder in ("interaction/gateway_tasks", "unit/mcp_server_tasks")
        for path in (TESTS / folder).glob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "must"
        for argument in node.args
        if isinstance(argument, ast.Constant)
    }
