"""A faster constructor for frozen records that are built often."""

from dataclasses import MISSING, Field, fields
from typing import Any, Final, TypeVar

T = TypeVar("T")

_CLASS: Final = object.__dict__["__class__"]
_SETTERS: Final = {"__setattr__": object.__setattr__, "__delattr__": object.__delattr__}
"""Instead of those of a frozen base class."""


def fast_constructor(record: type[T]) -> type[T]:
    """For a frozen dataclass with slots: its constructor takes a third of the time (measured with calls).

    `dataclasses` calls `object.__setattr__` for each field of a frozen record. Here the new object has a class with the same
    slots, whose attributes may be set, until its last field is.
    """
    if "__slots__" not in vars(record) or hasattr(record, "__post_init__"):
        raise TypeError(f"{record.__name__} needs slots, and nothing to do after its construction.")
    mutable = type(record.__name__, record.__bases__, {"__slots__": vars(record)["__slots__"], **_SETTERS})
    names: dict[str, Any] = {"lend_class": _CLASS.__set__, "mutable": mutable, "record": record, "missing": MISSING}
    parameters = ["self"]
    lines = ["lend_class(self, mutable)"]
    for field in sorted(fields(record), key=_is_keyword):  # pyright: ignore[reportArgumentType] - a dataclass, as above
        if field.kw_only and "*" not in parameters:
            parameters.append("*")
        parameters.append(_parameter(field, names))
        lines.append(f"self.{field.name} = {_value(field, names)}")
    source = f"def __init__({', '.join(parameters)}):\n " + "\n ".join([*lines, "self.__class__ = record"])
    namespace: dict[str, Any] = {}
    exec(source, names, namespace)  # noqa: S102 - the text holds names of fields, and nothing that comes from outside
    record.__init__ = namespace["__init__"]
    return record


def _is_keyword(field: Field[Any]) -> bool:
    return field.kw_only is True


def _parameter(field: Field[Any], names: dict[str, Any]) -> str:
    if field.default is not MISSING:
        names[f"default_{field.name}"] = field.default
        return f"{field.name}=default_{field.name}"
    return field.name if field.default_factory is MISSING else f"{field.name}=missing"


def _value(field: Field[Any], names: dict[str, Any]) -> str:
    if field.default_factory is MISSING:
        return field.name
    names[f"make_{field.name}"] = field.default_factory
    return f"make_{field.name}() if {field.name} is missing else {field.name}"
