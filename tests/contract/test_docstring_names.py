"""A docstring that names a class, a constant or an error names one that exists, in the module that it says."""

import ast
import builtins
import re
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Final

import ringback

ROOT: Final = Path(ringback.__file__).parent
DOTTED: Final = re.compile(r"`((?:[a-z]\w*\.)+[A-Z]\w*(?:\.\w+)*)`")
"""`module.Class` or `module.CONSTANT`, also with a member."""
NOT_MODULES: Final = frozenset({"asyncpg", "httpx", "httpx2", "json", "mcp", "ringback"})
"""Libraries, and names as a user imports them."""
RAISED: Final = re.compile(r"\bRaises ([^.;:]*)")
DOCSTRING: Final = re.compile(r'^ *r?"""(.*?)"""', re.DOTALL | re.MULTILINE)
"""Docstrings, those of constants and members included. To parse all modules takes a second."""
HANDLING: Final = re.compile(r"^ *(?:raise|except) .*$", re.MULTILINE)


@cache
def read_modules() -> dict[str, str]:
    modules = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in sorted(ROOT.rglob("*.py"))}
    return {name.removesuffix(".__init__"): path.read_text("utf-8") for name, path in modules.items()}


@cache
def parse_module(name: str) -> ast.Module:
    """Parsing all modules takes two seconds, so only those are parsed that a name leads to."""
    return ast.parse(read_modules()[name])


def find_definitions(node: ast.Module | ast.ClassDef, prefix: str = "") -> Iterator[str]:
    for child in node.body:
        match child:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield f"{prefix}{name}"
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                yield f"{prefix}{name}"
            case _:
                pass
        if isinstance(child, ast.ClassDef):
            yield from find_definitions(child, f"{prefix}{child.name}.")


def find_in_docstrings(pattern: re.Pattern[str]) -> set[tuple[str, str]]:
    """What matches, with the module's name."""
    return {
        (name, found)
        for name, text in read_modules().items()
        if pattern.search(text)
        for docstring in DOCSTRING.findall(text)
        for found in pattern.findall(docstring)
    }


def is_defined(name: str) -> bool:
    """Whether a module whose dotted path ends as the name says defines it."""
    module, member = re.split(r"\.(?=[A-Z])", name, maxsplit=1)
    owners = [each for each in read_modules() if f".{each}".endswith(f".{module}")]
    return any(member in find_definitions(parse_module(owner)) for owner in owners)


@cache
def list_handled_names() -> frozenset[str]:
    """The names in statements that raise or handle an error."""
    statements = chain.from_iterable(HANDLING.findall(text) for text in read_modules().values())
    return frozenset(chain.from_iterable(re.findall(r"\w+", statement) for statement in statements))


def is_used(name: str, module: str) -> bool:
    """Whether the code of a module has the name. The module whose docstring has it is the first that is looked at."""
    if name in list_handled_names():
        return True
    others = (each for each, text in read_modules().items() if each != module and name in text)
    trees = (parse_module(each) for each in chain([module], others))
    return any(isinstance(node, ast.Name) and node.id == name for tree in trees for node in ast.walk(tree))


def test_what_a_docstring_names_with_its_module_is_defined_there() -> None:
    named = find_in_docstrings(DOTTED)

    assert {
        (at, name) for at, name in named if name.partition(".")[0] not in NOT_MODULES and not is_defined(name)
    } == set()


def test_an_error_that_a_docstring_says_to_be_raised_exists() -> None:
    phrases = find_in_docstrings(RAISED)
    raised = {(where, name) for where, phrase in phrases for name in re.findall(r"`([A-Z]\w+)`", phrase)}

    assert {(at, name) for at, name in raised if name not in dir(builtins) and not is_used(name, at)} == set()
