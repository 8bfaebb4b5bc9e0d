"""An example says in its first lines which packages it needs."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

EXAMPLES: Final = Path(__file__).parents[2] / "scripts" / "examples"
OF_RINGBACK: Final = frozenset({"httpx", "pydantic", "ringback"})
"""What `pip install ringback` brings, which the README asks for first."""
JAVASCRIPT_IMPORT: Final = re.compile(r"""^import .*["']([^"'.:][^"':]*)["'];""", re.MULTILINE)
"""Neither a file beside the example nor a module of Node."""


def list_examples(pattern: str) -> list[Path]:
    return sorted(EXAMPLES.rglob(pattern))


def find_imported_packages(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        match node:
            case ast.Import(names=names):
                yield from (alias.name.partition(".")[0] for alias in names)
            case ast.ImportFrom(module=str() as name, level=0):
                yield name.partition(".")[0]
            case _:
                pass


@pytest.mark.parametrize("example", list_examples("*.py"), ids=lambda example: example.stem)
def test_an_example_in_python_names_what_to_install(example: Path) -> None:
    module = ast.parse(example.read_text(encoding="utf-8"))
    needed = set(find_imported_packages(module)) - sys.stdlib_module_names - OF_RINGBACK

    assert not needed or "\npip install " in (ast.get_docstring(module) or "").replace("\n    ", "\n")


@pytest.mark.parametrize("example", list_examples("*.mjs"), ids=lambda example: example.stem)
def test_an_example_in_javascript_names_what_to_install(example: Path) -> None:
    text = example.read_text(encoding="utf-8")
    head = text.partition("\nimport ")[0]

    assert all(f" {package}" in head for package in JAVASCRIPT_IMPORT.findall(text))
    assert not JAVASCRIPT_IMPORT.search(text) or "//   npm install " in head
