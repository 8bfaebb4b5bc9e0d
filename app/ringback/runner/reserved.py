"""The `_meta` keys that mean something between two neighbours only, and so are not passed on."""

from collections.abc import Mapping
from typing import Any, cast

from ringback.domain.results import RESERVED_META


def without_reserved_meta(params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters without the progress token and the keys that the protocol keeps for itself."""
    meta = params.get("_meta")
    kept = {
        key: value
        for key, value in (cast("dict[str, Any]", meta) if isinstance(meta, dict) else {}).items()
        if key != "progressToken" and not key.startswith(RESERVED_META)
    }
    rest = {key: value for key, value in params.items() if key != "_meta"}
    return {**rest, "_meta": kept} if kept else rest
