"""Column codecs: the columns of each record, from which select lists, inserts and the mapping both ways come.

A codec reads its columns off a dataclass: one for each field, with its name, in the order of the fields. The type of a field
decides how its value is stored. A field whose type has no general form (a `Handle`, say) gets a `ColumnType` of its own.

    record ── encode ──▶ {column: value}        for a statement with `:column` parameters
    record ◀─ decode ─── (value, value, …)      a row whose statement selects the codec's own select list

NULL is None both ways. A second store brings its own `ColumnTypes` and its SQL; the records stay as they are (`records.py`).
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, fields, replace
from datetime import datetime
from enum import Enum
from types import MappingProxyType, UnionType
from typing import Any, Final, Generic, TypeVar, Union, get_args, get_origin

T = TypeVar("T")

Convert = Callable[[Any], Any]

_NO_COLUMN_TYPES: Final[Mapping[str, "ColumnType"]] = MappingProxyType({})
_NOTHING_EMBEDDED: Final[Mapping[str, "RowCodec[Any]"]] = MappingProxyType({})
_PLAIN_TYPES: Final = (str, int, float, bytes)
"""Types that every database stores as they are."""
_PLACEHOLDER: Final = re.compile(r"\{(?:new (?P<new>\w+)(?: with (?P<more>\w+))?|(?P<record>\w+) in (?P<table>\w+))\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnType:
    """How one column stores a value. A direction without a function stores, or returns, the value as it is."""

    encode: Convert | None = None
    decode: Convert | None = None
    empty_is_null: bool = False
    """An empty value is stored as NULL, and NULL is read as the field's default."""

    def storing(self, to_stored: Convert, from_stored: Convert, *, empty_is_null: bool = False) -> "ColumnType":
        """A column of this type for a value that has to take another form first."""
        encode, decode = self.encode or _unchanged, self.decode or _unchanged
        return ColumnType(
            encode=lambda value: encode(to_stored(value)),
            decode=lambda column: from_stored(decode(column)),
            empty_is_null=empty_is_null,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnTypes:
    """How one kind of database stores the types that have no form in SQL which all databases share."""

    instant: ColumnType
    boolean: ColumnType
    json: ColumnType

    def column_type(self, hint: Any) -> ColumnType:
        """The column type for a field of this type; `X | None` is stored as X. Raises TypeError for a type without one."""
        hint = _without_none(hint)
        origin = get_origin(hint)
        if hint is Any or origin is dict or origin is Mapping:
            return self.json
        if origin is frozenset:
            (member,) = get_args(hint)
            to_member = _member_by_value(member)
            return self.json.storing(sorted, lambda values: frozenset(map(to_member, values)))
        return self._scalar_type(getattr(hint, "__supertype__", hint))

    def _scalar_type(self, hint: Any) -> ColumnType:
        if isinstance(hint, type):
            if issubclass(hint, Enum):
                return ColumnType(decode=_member_by_value(hint))
            if hint is datetime:
                return self.instant
            if hint is bool:
                return self.boolean
            if hint in _PLAIN_TYPES:
                return ColumnType()
        raise TypeError(f"A field of type {hint} needs a column type of its own.")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    name: str
    path: str
    """The attribute of the record: a field, or `field.field` for an embedded record."""
    type: ColumnType
    is_optional: bool
    default: Callable[[], Any]


class RowCodec(Generic[T]):
    """The columns of one record.

    Fields that are `stored_elsewhere`, in another column or table, have no column, and a decoded record has their defaults.
    `columns` are the types of fields that `ColumnTypes` does not know. The columns of an `embedded` record stand among those of
    the record that has it. Values of `sealed` columns are keyword arguments of `decode`: only the caller can unseal them.

    Both directions are functions made of source text, as `dataclasses` makes `__init__`: a loop over columns takes half as long
    again (measured with calls and deliveries).
    """

    def __init__(
        self,
        record: type[T],
        types: ColumnTypes,
        *,
        columns: Mapping[str, ColumnType] = _NO_COLUMN_TYPES,
        embedded: Mapping[str, "RowCodec[Any]"] = _NOTHING_EMBEDDED,
        sealed: Collection[str] = (),
        stored_elsewhere: Collection[str] = (),
    ) -> None:
        self.record = record
        self._embedded = embedded
        self._sealed = frozenset(sealed)
        self.columns: dict[str, _Column] = {}
        for field in fields(record):  # pyright: ignore[reportArgumentType] - every record is a dataclass
            if field.name in stored_elsewhere:
                continue
            if (inner := embedded.get(field.name)) is not None:
                self.columns |= {
                    column.name: replace(column, path=f"{field.name}.{column.path}")
                    for column in inner.columns.values()
                }
            else:
                column_type = columns.get(field.name) or types.column_type(field.type)
                self.columns[field.name] = _Column(
                    name=field.name,
                    path=field.name,
                    type=column_type,
                    is_optional=_without_none(field.type) is not field.type,
                    default=_default_of(field),
                )
        self.names: Final = tuple(self.columns)
        self.encode: Final = self.encoder(self.names)
        """The values of all columns, by name."""
        self.decode: Final = self._compile_decoder()
        """The record in a row that begins with the select list."""
        self._encoders: dict[frozenset[str], Callable[[T], dict[str, Any]]] = {}

    def encode_for(self, parameters: frozenset[str], record: T) -> dict[str, Any]:
        """The values of the columns that are parameters of a statement, by name. Converts no other."""
        encode = self._encoders.get(parameters)
        if encode is None:
            encode = self._encoders[parameters] = self.encoder([name for name in self.names if name in parameters])
        return encode(record)

    def encoder(self, names: Iterable[str]) -> Callable[[T], dict[str, Any]]:
        """A function that returns the values of these columns by name, and converts no other."""
        functions = {f"encode_{name}": self.columns[name].type.encode for name in names}
        pairs = ", ".join(f"{name!r}: {self._encoding(self.columns[name])}" for name in names)
        return _compile(f"def encode(record):\n    return {{{pairs}}}", functions)

    def select_list(self, table: str) -> str:
        """`table."column", …` in the order that `decode` expects."""
        return ", ".join(f'{table}."{name}"' for name in self.names)

    def insert_lists(self, *more: str) -> str:
        """`("column", …) VALUES (:column, …)`, with more columns than the record has."""
        names = [*self.names, *more]
        columns = ", ".join(f'"{name}"' for name in names)
        return f"({columns}) VALUES ({', '.join(f':{name}' for name in names)})"

    def _encoding(self, column: _Column) -> str:
        value = f"record.{column.path}"
        if column.type.encode is None:
            return value
        if column.type.empty_is_null:
            return f"encode_{column.name}(value) if (value := {value}) else None"
        if column.is_optional:
            return f"None if (value := {value}) is None else encode_{column.name}(value)"
        return f"encode_{column.name}({value})"

    def _compile_decoder(self) -> Callable[..., T]:
        functions: dict[str, Any] = {"record": self.record}
        for column in self.columns.values():
            functions |= {f"decode_{column.name}": column.type.decode, f"default_{column.name}": column.default}
        functions |= {f"record_{name}": inner.record for name, inner in self._embedded.items()}
        # The row's value of a sealed column is not used: the keyword argument has the column's name.
        values = ", ".join(f"_{name}" if name in self._sealed else name for name in self.names)
        keywords = "".join(f", {name}" for name in self.names if name in self._sealed)
        return _compile(
            f"def decode(row{', *' if keywords else ''}{keywords}):\n"
            f"    {values}, = row[:{len(self.names)}]\n"
            f"    return {self._construction()}",
            functions,
        )

    def _construction(self) -> str:
        own = [column for column in self.columns.values() if "." not in column.path]
        arguments = [f"{column.path}={self._decoding(column)}" for column in own]
        for name, inner in self._embedded.items():
            inner_arguments = ", ".join(f"{each.path}={self._decoding(each)}" for each in inner.columns.values())
            arguments.append(f"{name}=record_{name}({inner_arguments})")
        return f"record({', '.join(arguments)})"

    def _decoding(self, column: _Column) -> str:
        name = column.name
        value = name if column.type.decode is None else f"decode_{name}({name})"
        if column.type.empty_is_null:
            return f"default_{name}() if {name} is None else {value}"
        if column.type.decode is not None and column.is_optional:
            return f"None if {name} is None else {value}"
        return value


def fill_in_columns(statement: str, codecs: Mapping[str, RowCodec[Any]]) -> str:
    """The statement with its column lists.

    `SELECT {call in whole_calls} FROM whole_calls` selects a call, and `INSERT INTO events {new event}` inserts an event.
    `{new call with argument_bytes}` has a column that the record does not have. Raises KeyError for a record without a codec.
    """

    def column_list(found: re.Match[str]) -> str:
        if found["new"] is not None:
            more = found["more"]
            return codecs[found["new"]].insert_lists(*([] if more is None else [more]))
        return codecs[found["record"]].select_list(found["table"])

    return _PLACEHOLDER.sub(column_list, statement)


def _unchanged(value: Any) -> Any:
    return value


def _member_by_value(member: Any) -> Convert:
    """A lookup in a dict: `Enum(value)` takes four times as long."""
    if not issubclass(member, Enum):
        return _unchanged
    return _MembersByValue(member).__getitem__


class _MembersByValue(dict[Any, Any]):
    def __init__(self, enum: type[Enum]) -> None:
        super().__init__({member.value: member for member in enum})
        self._enum = enum

    def __missing__(self, value: Any) -> Any:
        return self._enum(value)  # raises ValueError, which names the enum and the value


def _without_none(hint: Any) -> Any:
    if get_origin(hint) not in {Union, UnionType}:
        return hint
    members = [member for member in get_args(hint) if member is not type(None)]
    return members[0] if len(members) == 1 else hint


def _compile(source: str, names: dict[str, Any]) -> Callable[..., Any]:
    """The one function that the text defines. The text holds names of fields, and nothing that comes from outside."""
    namespace: dict[str, Any] = {}
    exec(source, names, namespace)  # noqa: S102 - see above
    (function,) = namespace.values()
    return function


def _default_of(field: Field[Any]) -> Callable[[], Any]:
    return field.default_factory if field.default_factory is not MISSING else lambda: field.default
