"""What each client can use of Ringback beside plain tools: for the first part of the compatibility table.

`tools`, `events` and `adapter` are verdicts of runs. The other columns were read in the sources of the versions that the rows
of the runs name, in November 2026, and nothing but a test turns a source into a ✓:

tasks             the client can ask for a call as a task (2025-11-25, or the tasks extension of 2026-07-28)
pending resource  the client has a method that reads a resource, so its user can read `ringback://calls/{id}`
events            the client has `events/subscribe`; a verdict of its row in `event_clients`. No other client has it
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

COLUMNS: Final = ("tasks", "events", "pending resource", "tools", "adapter")


class Support(StrEnum):
    TESTED = "✓"
    """A test of the suite uses it against Ringback."""
    IN_SOURCE = "in its API"
    """The client's source has it; it was not run against Ringback."""
    NONE = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    tasks: Support = Support.NONE
    pending_resource: Support = Support.NONE
    adapter: str | None = None
    """The row of the adapter for agents of this framework."""


_READS: Final = Features(pending_resource=Support.IN_SOURCE)
FEATURES: Final[Mapping[str, Features]] = {
    "sdk-1.9": _READS,
    "sdk-1.12": _READS,
    "sdk-1": Features(tasks=Support.IN_SOURCE, pending_resource=Support.IN_SOURCE),
    "sdk-2": Features(
        pending_resource=Support.TESTED
    ),  # gateway_tasks/test_sdk_client.py; it has only the types of tasks
    "ringback-mcp": Features(tasks=Support.IN_SOURCE, pending_resource=Support.IN_SOURCE),
    "fastmcp-2": Features(tasks=Support.TESTED, pending_resource=Support.IN_SOURCE),  # test_fastmcp_2_tasks.py
    "fastmcp-4": _READS,
    "langchain": Features(pending_resource=Support.IN_SOURCE, adapter="adapter-langgraph"),
    "pydantic-ai": Features(tasks=Support.IN_SOURCE, pending_resource=Support.IN_SOURCE, adapter="adapter-pydantic-ai"),
    "openai-agents": Features(pending_resource=Support.IN_SOURCE, adapter="adapter-openai-agents"),
    "google-adk": Features(pending_resource=Support.IN_SOURCE, adapter="adapter-google-adk"),
    "llama-index": _READS,
    "strands": Features(tasks=Support.IN_SOURCE, pending_resource=Support.IN_SOURCE),
    "autogen": _READS,
    "agent-framework": _READS,
    "mcp-use": _READS,
    "js-sdk-1": Features(tasks=Support.IN_SOURCE, pending_resource=Support.IN_SOURCE),
    "js-sdk-2": _READS,
    "inspector": Features(tasks=Support.IN_SOURCE, pending_resource=Support.IN_SOURCE),
    "mcp-remote": Features(
        tasks=Support.IN_SOURCE, pending_resource=Support.IN_SOURCE
    ),  # it forwards what its client sends
    "supergateway": _READS,
    "ai-sdk-5": _READS,
    "ai-sdk-7": _READS,
    "langchain-js": _READS,
    "mastra": _READS,
}
"""By the name of the client; one that is not here has neither."""


def get_features(name: str) -> Features:
    return FEATURES.get(name, Features())
