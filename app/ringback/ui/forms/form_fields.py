"""The fields of a form, as its page draws them and as `form_values` reads them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

ROOT_NAME: Final = "arguments"
"""The name of the textarea for all arguments, and the beginning of the names of all fields."""


class FieldKind(StrEnum):
    TEXT = "text"
    LONG_TEXT = "long_text"
    INTEGER = "integer"
    NUMBER = "number"
    CHOICE = "choice"
    """One of `choices`."""
    CONSTANT = "constant"
    """The only value; there is nothing to type."""
    CHOICES = "choices"
    """Any of `choices`, as checkboxes."""
    LINES = "lines"
    """A list, one item a line."""
    GROUP = "group"
    JSON = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    text: str
    """The value as JSON: what the form sends."""
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaField:
    """One field of the form, or a group of fields."""

    name: str
    """What the form sends: the place among the arguments, `arguments/options/depth`."""
    key: str
    """The name of the property."""
    number: int
    """Unique within the form, for the ids of elements."""
    kind: FieldKind
    is_required: bool = False
    is_nullable: bool = False
    title: str = ""
    description: str = ""
    hint: str = ""
    """The limits of the value, in words."""
    choices: Sequence[Choice] = ()
    item_kind: FieldKind = FieldKind.TEXT
    """Of `LINES`: TEXT, INTEGER or NUMBER."""
    fields: Sequence["SchemaField"] = ()
    """Of a group."""
    default: Any = field(default=None, repr=False)
    """None without one."""
    is_prefilled: bool = False
    """Whether a new form shows the default. Within an optional group it would make the whole group an argument."""

    @property
    def element_id(self) -> str:
        return f"field-{self.number}"


def iterate_fields(root: SchemaField) -> Iterator[SchemaField]:
    """The field and all fields below it."""
    yield root
    for each in root.fields:
        yield from iterate_fields(each)
