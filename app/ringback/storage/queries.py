"""Named SQL: every statement is in a .sql file, under the name by which the code runs it.

A file is a list of blocks. A line `-- name: lease` begins a block, which ends before the next such line. Lists of columns are
placeholders (`codec.fill_in_columns`). Other comments stay in the statement.
"""

import re
from collections.abc import Callable, Mapping
from importlib import resources
from types import MappingProxyType
from typing import Any, Final

from ringback.storage.codec import RowCodec, fill_in_columns

_NAME_MARKER: Final = "-- name: "
_NO_CODECS: Final[Mapping[str, RowCodec[Any]]] = MappingProxyType({})
_COMMENT: Final = re.compile(r"^\s*--.*\n?", re.MULTILINE)
_PARAMETER: Final = re.compile(r"(?<![:\w]):([a-z_][a-z0-9_]*)")


def load_statements(package: str, file: str, codecs: Mapping[str, RowCodec[Any]] = _NO_CODECS) -> Mapping[str, str]:
    """The statements of one .sql file inside a package, by name, with their columns. Raises ValueError for a repeated name."""
    text = resources.files(package).joinpath(file).read_text(encoding="utf-8")
    statements = parse_statements(text)
    return MappingProxyType({name: fill_in_columns(statement, codecs) for name, statement in statements.items()})


def parse_statements(text: str) -> dict[str, str]:
    """The statements of a file's text, by name. Raises ValueError for a repeated name."""
    statements: dict[str, str] = {}
    for block in f"\n{text}".split(f"\n{_NAME_MARKER}")[1:]:
        name, _, statement = block.partition("\n")
        name = name.strip()
        if name in statements:
            raise ValueError(f"Two statements are named '{name}'.")
        statements[name] = statement.strip()
    return statements


def replace_parameters(statement: str, replacement: Callable[[str], str]) -> str:
    """The statement without its comments, and with other text in the place of its `:name` parameters."""
    return _PARAMETER.sub(lambda found: replacement(found[1]), _COMMENT.sub("", statement)).strip()


def parameters(statement: str) -> frozenset[str]:
    """The names of a statement's `:name` parameters."""
    return frozenset(_PARAMETER.findall(statement))
