"""Public names of a package that are imported with their first use: a program pays only for what it uses.

if not typing.TYPE_CHECKING:  # a type checker reports names that do not exist
__getattr__ = import_on_first_use(__name__, {"Webhook": "ringback.client.delivery_models"})
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def import_on_first_use(package: str, module_by_name: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package (PEP 562). It keeps each name in the package, so that it is asked for each only once."""

    def import_name(name: str) -> Any:
        if name not in module_by_name:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(module_by_name[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return import_name


def index_by_name(names_by_module: Mapping[str, Sequence[str]]) -> Mapping[str, str]:
    """The module of each name."""
    return {name: module for module, names in names_by_module.items() for name in names}
