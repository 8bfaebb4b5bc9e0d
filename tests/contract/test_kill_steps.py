"""Kills at a unit of work name it by its qualified name, and a kill at a name that does not exist never happens."""

import ast
import re
from collections.abc import Collection, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
UNIT_NAME = re.compile(r'"([A-Z]\w+\.\w+)(?:\.<locals>)?"')
CLASS_NAME = re.compile(r"^\s*class (\w+)", re.MULTILINE)


def _methods(source: Path, classes: Collection[str]) -> Iterator[str]:
    """The methods of the classes that the module defines. Only a module with one of these classes is parsed."""
    text = source.read_text(encoding="utf-8")
    if not any(name in classes for name in CLASS_NAME.findall(text)):
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef):
            yield from (
                f"{node.name}.{each.name}"
                for each in node.body
                if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
            )


def test_each_unit_of_work_at_which_a_process_is_killed_is_a_method_of_the_service() -> None:
    sources = [*ROOT.glob("tests/crash/test_*.py"), ROOT / "scripts/chaos_runs/plan.py"]
    named = {name for source in sources for name in UNIT_NAME.findall(source.read_text())}
    classes = {name.partition(".")[0] for name in named}
    known = {method for module in ROOT.glob("app/ringback/**/*.py") for method in _methods(module, classes)}
    assert named
    assert named <= known
