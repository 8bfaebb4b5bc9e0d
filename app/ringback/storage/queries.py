"""Named SQL: every statement is in a .sql file, under the name by which the code runs it.

A file is a list of blocks. A line `-- name: lease` begins a statement, a line `-- fragment: matching` a text that statements
share; a block ends before the next such line. A line `-- include: matching` in a statement stands for the fragment of this name
in the same file, `-- include: matching of webhooks` for that of webhooks.sql. A fragment includes no other. Lists of columns
are placeholders (`codec.fill_in_columns`). Other comments stay in the statement.
"""

import re
import textwrap
from collections.abc import Callable, Mapping
from importlib import resources
from types import MappingProxyType
from typing import Any, Final

from ringback.storage.codec import RowCodec, fill_in_columns

_BLOCK: Final = re.compile(r"^-- (name|fragment): (.+)$", re.MULTILINE)
_INCLUDE: Final = re.compile(r"^([^\S\n]*)-- include: (\S+)(?: of (\S+))?[^\S\n]*$", re.MULTILINE)
_INCLUDE_LIKE: Final = re.compile(r"--[^\S\n]*include\b.*", re.IGNORECASE)
_COMMENT: Final = re.compile(r"^\s*--.*\n?", re.MULTILINE)
_PARAMETER: Final = re.compile(r"(?<![:\w]):([a-z_][a-z0-9_]*)")


def load_statements(package: str, file: str, codecs: Mapping[str, RowCodec[Any]]) -> Mapping[str, str]:
    """The statements of one .sql file inside a package, by name, with their fragments and columns.

    Raises ValueError for a repeated name and for a fragment that does not exist.
    """
    folder = resources.files(package).joinpath(file.rpartition("/")[0])

    def read_sibling(noun: str) -> str:
        return folder.joinpath(f"{noun}.sql").read_text(encoding="utf-8")

    statements = parse_statements(resources.files(package).joinpath(file).read_text(encoding="utf-8"), read_sibling)
    return MappingProxyType({name: fill_in_columns(statement, codecs) for name, statement in statements.items()})


def _refuse_sibling(noun: str) -> str:
    raise ValueError(f"The text alone has no fragments of '{noun}'.")


def parse_statements(text: str, read_sibling: Callable[[str], str] = _refuse_sibling) -> dict[str, str]:
    """The statements of a file's text, by name, with their fragments. `read_sibling` reads the file of another noun.

    Raises ValueError for a repeated name and for a fragment that does not exist.
    """
    return {name: _include(block, text, read_sibling) for name, block in _parse_blocks(text, "name").items()}


def _parse_blocks(text: str, kind: str) -> dict[str, str]:
    blocks: dict[str, str] = {}
    _, *parts = _BLOCK.split(text)
    for found, name, block in zip(parts[::3], map(str.strip, parts[1::3]), parts[2::3], strict=True):
        if found == kind:
            if name in blocks:
                raise ValueError(f"Two {'statements' if kind == 'name' else 'fragments'} are named '{name}'.")
            blocks[name] = block.strip()
    return blocks


def _include(statement: str, text: str, read_sibling: Callable[[str], str]) -> str:
    def read_fragment(found: re.Match[str]) -> str:
        indent, name, noun = found.groups()
        fragments = _parse_blocks(text if noun is None else read_sibling(noun), "fragment")
        if name not in fragments:
            raise ValueError(f"No fragment is named '{name}'.")
        return textwrap.indent(fragments[name], indent)

    included = _INCLUDE.sub(read_fragment, statement)
    if (
        left := _INCLUDE_LIKE.search(included)
    ) is not None:  # a comment now: the filter that it stands for would be missing
        raise ValueError(f"'{left[0].strip()}' is not a line of a statement that includes a fragment.")
    return included


def replace_parameters(statement: str, replacement: Callable[[str], str]) -> str:
    """The statement without its comments, and with other text in the place of its `:name` parameters."""
    return _PARAMETER.sub(lambda found: replacement(found[1]), _COMMENT.sub("", statement)).strip()


def parameters(statement: str) -> frozenset[str]:
    """The names of a statement's `:name` parameters."""
    return frozenset(_PARAMETER.findall(statement))
