"""Failures that no change of Ringback can mend, each with its reason. Pure."""

from collections.abc import Mapping
from typing import Final

from scripts.interop_runs.judge import Judgement, Verdict

_DEAD_CLIENT: Final = (
    "Its client closes after a connection error on one request. The same client object cannot look again; a new one can. The "
    "SDK 2.x itself goes on, because Ringback opens the response stream as soon as a call has to wait."
)

_SILENT_CLIENT: Final = "AI SDK 5 never ends a call whose response stream broke. A new client can look again."
_NO_RECONNECT: Final = (
    "The framework keeps a stream open, and its client closes when that stream breaks. It reconnects only after an error with "
    "the text 'session terminated', which its SDK does not raise then. A new client can look again."
)

_SILENT_ERRORS: Final = (
    "A model reads 'Error: Function failed.' in the place of every tool's error, unless `include_detailed_errors` is set. The "
    "exception has Ringback's words."
)

KNOWN_LIMITS: Final[Mapping[tuple[str, str], str]] = {
    ("agent-framework", "kill"): _NO_RECONNECT,
    ("agent-framework", "restart"): _NO_RECONNECT,
    ("agent-framework", "server kill"): _SILENT_ERRORS,
    ("ai-sdk-5", "kill"): _SILENT_CLIENT,
    ("openai-agents", "kill"): _DEAD_CLIENT,
}
"""By (client or server, scenario). An entry whose scenario passes is harmless, and should be removed."""


def apply_known_limits(name: str, judgements: Mapping[str, Judgement]) -> dict[str, Judgement]:
    """The judgements, in which known failures say why they are not Ringback's."""
    return {
        scenario: Judgement(Verdict.THEIRS, KNOWN_LIMITS[name, scenario])
        if judgement.verdict is Verdict.FAILED and (name, scenario) in KNOWN_LIMITS
        else judgement
        for scenario, judgement in judgements.items()
    }
