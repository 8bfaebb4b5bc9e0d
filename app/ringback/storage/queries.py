"""Named SQL: every statement lives in a .sql file, under the name that the code calls it by.

A file is a list of blocks, each opened by a line `-- name: lease` and reaching to the next. Other comments stay where they are.
"""

import re
from collections.abc import Mapping
from importlib import resources
from types import MappingProxyType
from typing import Final

_NAME_MARKER: Final = "-- name: "

_PARAMETER: Final = re.compile(r"(?<![:\w]):([a-z_][a-z0-9_]*)")


def load_statements(package: str, file: str) -> Mapping[str, str]:
    """The statements of one .sql file inside a package, by name; raises ValueError when a name comes twice."""
    text = resources.files(package).joinpath(file).read_text(encoding="utf-8")
    return MappingProxyType(parse_statements(text))


def parse_statements(text: str) -> dict[str, str]:
    statements: dict[str, str] = {}
    for block in f"\n{text}".split(f"\n{_NAME_MARKER}")[1:]:
        name, _, statement = block.partition("\n")
        name = name.strip()
        if name in statements:
            raise ValueError(f"Two statements are named '{name}'.")
        statements[name] = statement.strip()
    return statements


def parameters(statement: str) -> frozenset[str]:
    """The names of what a statement asks for as `:name`."""
    return frozenset(_PARAMETER.findall(statement))
