"""The names of the tools that Ringback adds to those of upstreams."""

from typing import Final

_PREFIX: Final = "ringback_"
_ALIAS_PREFIX: Final = "ringback__"


def is_builtin_tool(name: str) -> bool:
    """Whether the name is that of a built-in tool. A tool of an upstream called `ringback` is `ringback__tool` at /mcp."""
    return name.startswith(_PREFIX) and not name.startswith(_ALIAS_PREFIX)
