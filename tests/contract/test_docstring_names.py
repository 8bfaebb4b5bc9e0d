"""A docstring that names a class, a constant or an error names one that exists, in the module that it says."""

import ast
import builtins
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import ringback

ROOT: Final = Path(ringback.__file__).parent
DOTTED: Final = re.compile(r"`((?:[a-z]\w*\.)+[A-Z]\w*(?:\.\w+)*)`")
"""`module.Class` or `module.CONSTANT`, also with a member."""
NOT_MODULES: Final = frozenset({"asyncpg", "httpx", "httpx2", "json", "mcp", "ringback"})
"""Libraries, and names as a user imports them."""
RAISED: Final = re.compile(r"\bRaises ([^.;:]*)")


@cache
def parse_modules() -> dict[str, ast.Module]:
    modules = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in sorted(ROOT.rglob("*.py"))}
    return {name.removesuffix(".__init__"): ast.parse(path.read_text("utf-8")) for name, path in modules.items()}


def find_definitions(prefix: str, node: ast.Module | ast.ClassDef) -> Iterator[str]:
    for child in node.body:
        match child:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield f"{prefix}.{name}"
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                yield f"{prefix}.{name}"
            case _:
                pass
        if isinstance(child, ast.ClassDef):
            yield from find_definitions(f"{prefix}.{child.name}", child)


def list_docstrings() -> Iterator[tuple[str, str]]:
    for name, tree in parse_modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield name, ast.get_docstring(node) or ""


def test_what_a_docstring_names_with_its_module_is_defined_there() -> None:
    defined = {each for name, tree in parse_modules().items() for each in find_definitions(f".{name}", tree)}
    suffixes = {each[at.end() :] for each in defined for at in re.finditer(r"\.", each)}
    named = {(where, each) for where, text in list_docstrings() for each in DOTTED.findall(text)}

    assert {
        (at, name) for at, name in named if name.partition(".")[0] not in NOT_MODULES and name not in suffixes
    } == set()


def test_an_error_that_a_docstring_says_to_be_raised_exists() -> None:
    known = {each.id for tree in parse_modules().values() for each in ast.walk(tree) if isinstance(each, ast.Name)}
    phrases = {(where, each) for where, text in list_docstrings() for each in RAISED.findall(text)}
    raised = {(where, name) for where, phrase in phrases for name in re.findall(r"`([A-Z]\w+)`", phrase)}

    assert {(where, name) for where, name in raised if name not in known | set(dir(builtins))} == set()
