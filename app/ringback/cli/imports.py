"""Imports what a command needs without what its libraries import for programs that no command of Ringback is."""

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any, Final, cast

HTTPX_PROGRAM: Final = "httpx._main"
"""The program `httpx`. `import httpx` imports it with click, pygments and half of rich if they are installed, and works without
it if they are not. It takes half of the time in which httpx is imported."""
DISABLE_PLUGINS: Final = "PYDANTIC_DISABLE_PLUGINS"
"""Pydantic looks for plugins in the metadata of every installed package, once, with the first model."""


def import_command_module(name: str, *, keeps_plugins: bool = False) -> ModuleType:
    """Import a module of a command.

    The service keeps pydantic's plugins: an operator may have installed one to observe it.
    """
    with _without_httpx_program() if keeps_plugins else lean_imports():
        return import_module(name)


@contextmanager
def lean_imports() -> Generator[None]:
    """Import httpx and pydantic inside. The environment and `sys.modules` are afterwards as any program finds them."""
    with _without_httpx_program(), _without_pydantic_plugins():
        yield


@contextmanager
def _without_httpx_program() -> Generator[None]:
    if HTTPX_PROGRAM in sys.modules:
        yield
        return
    modules = cast("dict[str, Any]", sys.modules)
    modules[HTTPX_PROGRAM] = None  # as Python spells a module that cannot be imported
    try:
        yield
    finally:
        del modules[HTTPX_PROGRAM]


@contextmanager
def _without_pydantic_plugins() -> Generator[None]:
    """The variable is removed again, because commands of `listen --exec` inherit the environment."""
    if DISABLE_PLUGINS in os.environ:
        yield
        return
    os.environ[DISABLE_PLUGINS] = "__all__"
    try:
        yield
    finally:
        del os.environ[DISABLE_PLUGINS]
