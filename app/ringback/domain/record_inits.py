"""A quicker `__init__` for frozen records that each call and each delivery makes.

The one that `dataclasses` writes sets each field with `object.__setattr__`, which looks the field up by its name. This one uses
the descriptors of the slots, as `record_copies` does: 3 instead of 5 µs for the 20 fields of a delivery (measured).
"""

import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from typing import Any, TypeVar

T = TypeVar("T")


def quick_init(record: type[T]) -> type[T]:
    """The dataclass, with slots, keyword-only fields and no `__post_init__`, with a quicker `__init__` of that signature."""
    members: list[Field[Any]] = list(fields(record))  # pyright: ignore[reportArgumentType] - every record is a dataclass
    if hasattr(record, "__post_init__") or not all(each.kw_only and each.init for each in members):
        raise TypeError(f"{record.__name__} needs the __init__ of dataclasses")
    replaced: Callable[..., None] = record.__init__
    init = _compile_init(record, members)
    init.__qualname__, init.__module__, init.__doc__ = replaced.__qualname__, record.__module__, replaced.__doc__
    init.__annotations__ = replaced.__annotations__
    record.__init__ = init
    return record


def _compile_init(record: type[Any], members: list[Field[Any]]) -> Callable[..., None]:
    source = "\n".join(
        [
            f"def __init__(self, *, {', '.join(map(_write_parameter, members))}):",
            *(f"    set_{each.name}(self, {_write_value(each)})" for each in members),
        ]
    )
    namespace: dict[str, Any] = {"missing": MISSING}
    for each in members:
        namespace[f"set_{each.name}"] = inspect.getattr_static(record, each.name).__set__
        namespace[f"default_{each.name}"] = each.default
        namespace[f"make_{each.name}"] = each.default_factory
    exec(source, namespace)  # noqa: S102 - the text holds names of fields, and nothing that comes from outside
    init: Callable[..., None] = namespace["__init__"]
    return init


def _write_parameter(field: Field[Any]) -> str:
    if field.default is not MISSING:
        return f"{field.name}=default_{field.name}"
    return f"{field.name}=missing" if field.default_factory is not MISSING else field.name


def _write_value(field: Field[Any]) -> str:
    if field.default_factory is MISSING:
        return field.name
    return f"make_{field.name}() if {field.name} is missing else {field.name}"
