"""The docstring of a package names what is in the package: it is the first page that a newcomer reads."""

import ast
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Final

import ringback

ROOT: Final = Path(ringback.__file__).parent
GENERATED: Final = frozenset({"client.sync"})
"""Packages whose modules a script generates, one for each module of another package."""
FOREIGN_WORDS: Final = frozenset({"snake_case", "order_id", "json_response"})
"""Words of examples and of other libraries."""
MODULES_MIN: Final = 2
"""A package with one module needs no list."""


def list_modules(package: Path) -> set[str]:
    files = {path.stem for path in package.glob("*.py")}
    return (files | {path.parent.name for path in package.glob("*/__init__.py")}) - {"__init__", "__main__"}


def read_docstring(package: Path) -> str:
    return ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8"))) or ""


def find_packages() -> dict[str, Path]:
    folders = {path.parent for path in ROOT.rglob("__init__.py")}
    packages = {".".join(folder.relative_to(ROOT).parts) or "ringback": folder for folder in sorted(folders)}
    return {name: folder for name, folder in packages.items() if len(list_modules(folder)) >= MODULES_MIN}


PACKAGES: Final = find_packages()


@cache
def find_known_words() -> set[str]:
    """Every word of the code and the statements, and the names of all modules."""
    files = [path for path in ROOT.rglob("*") if path.suffix in {".py", ".sql"} and path.name != "__init__.py"]
    words = {word for path in files for word in re.findall(r"\w+", path.read_text(encoding="utf-8"))}
    return words.union(FOREIGN_WORDS, *(list_modules(package) for package in PACKAGES.values()))


def test_a_package_names_each_of_its_modules() -> None:
    unnamed = {
        name: list_modules(package) - set(re.findall(r"\w+", read_docstring(package)))
        for name, package in PACKAGES.items()
        if name not in GENERATED
    }

    assert {name: modules for name, modules in unnamed.items() if modules} == {}


def test_a_package_names_no_identifier_that_is_gone() -> None:
    """Words with an underscore are names of modules, classes or functions."""
    named = {
        name: set(re.findall(r"\b[A-Za-z]+(?:_[A-Za-z]+)+\b", read_docstring(package)))
        for name, package in PACKAGES.items()
    }

    assert {name: words - find_known_words() for name, words in named.items() if words - find_known_words()} == {}


def test_the_first_docstring_shows_the_layers_that_the_imports_are_checked_against() -> None:
    contracts = tomllib.loads((ROOT.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    layers: list[str] = next(each for each in contracts["contracts"] if each.get("containers") == ["ringback"])[
        "layers"
    ]
    drawn = " ".join((ringback.__doc__ or "").partition("Imports point down only")[2].split())

    assert drawn.endswith(" > ".join(layers))
