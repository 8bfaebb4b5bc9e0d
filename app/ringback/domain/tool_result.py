"""What is kept of a tool's answer, wherever it comes from: read from an upstream, or reported from outside."""

from collections.abc import Mapping
from typing import Any, Final, cast

from ringback.domain import json_size, jsontext

ERROR_BYTES_MAX: Final = 64 * 1024
"""An error object is kept with the call's row, not with the results."""
PROGRESS_MESSAGE_LENGTH_MAX: Final = 1000
"""Progress goes to webhooks and screens: a sentence, not a report."""
_OMITTED_IF_NULL: Final = frozenset({"_meta", "isError"})


def is_call_tool_result(result: Mapping[str, Any]) -> bool:
    """Only what every reader relies on: a list of typed blocks. New kinds of blocks, and odd structuredContent, pass."""
    content = result.get("content")
    return (
        isinstance(content, list)
        and all(isinstance(block, dict) and "type" in block for block in cast("list[Any]", content))
        and isinstance(result.get("isError", False), bool)
        and isinstance(result.get("_meta", {}), dict)
    )


def repair_result(result: Mapping[str, Any]) -> dict[str, Any]:
    """The same for clients that read results strictly.

    `_meta` and `isError` are left out where they are null: some servers write so what they leave out. One that has
    `structuredContent` and no `content`, which saves the text with the same data, gets an empty `content`. Clients of both SDKs
    know such servers; the specification's schema demands the member.
    """
    repaired = {key: value for key, value in result.items() if value is not None or key not in _OMITTED_IF_NULL}
    if repaired.get("content") is None and repaired.get("structuredContent") is not None:
        repaired["content"] = []
    return repaired


def is_storable_error(error: Mapping[str, Any]) -> bool:
    try:
        return json_size.fits_row(jsontext.dumps(error), bytes_max=ERROR_BYTES_MAX)
    except TypeError:
        return False
