"""Words for what a call waits for that every surface uses. It imports nothing: the CLI has them without the service."""

from collections.abc import Mapping
from typing import Final

WAIT_WORDS: Final[Mapping[str, str]] = {
    "not_before": "starts later",
    "queue": "queued",
    "upstream": "waits for its upstream",
}
"""In lists, where there is no room for a sentence; by `Call.waits_for`."""


def describe_pause(upstream: str) -> str:
    """Why a call of a paused upstream does not run: one sentence. It names nothing but the call's own upstream."""
    return f"The call waits because an operator has paused its upstream, {upstream}."
