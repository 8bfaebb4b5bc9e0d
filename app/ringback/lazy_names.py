"""Names that are imported with their first use: a program pays only for what it uses.

Names of a package:

    if not typing.TYPE_CHECKING:  # a type checker reports names that do not exist
        __getattr__ = import_on_first_use(__name__, {"ringback.client.webhook_models": "Attempt Webhook"})

Names of a module that another one uses in annotations and in functions only:

    from __future__ import annotations  # an annotation is text, and imports nothing

    if TYPE_CHECKING:
        from ringback.client import webhook_models
    else:
        webhook_models = LazyModule("ringback.client.webhook_models")
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def import_on_first_use(package: str, names_by_module: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package (PEP 562). It keeps each name in the package, so that it is asked for each only once.

    `names_by_module`: the names of each module, separated by spaces.
    """
    module_by_name = {name: module for module, names in names_by_module.items() for name in names.split()}

    def import_name(name: str) -> Any:
        if name not in module_by_name:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(module_by_name[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return import_name


class LazyModule:
    """Stands for a module, and imports it when one of its names is first used. Raises as the import and the module do."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        value = getattr(import_module(self._name), name)
        setattr(self, name, value)
        return value
