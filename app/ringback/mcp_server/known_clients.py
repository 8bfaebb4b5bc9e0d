"""What is known about MCP clients, by the name in their `clientInfo`.

No capability and no protocol version says these things, so only a client whose source or maintainer says so is listed; every
other client gets the answer that all clients can read. Checked in November 2026:

    Visual Studio Code   attaches a linked resource to the chat (`mcpLanguageModelToolContribution.ts` in microsoft/vscode; the
                         name is `productService.nameLong`). Its model reads structuredContent instead of the text
    claude-code          shows a link to its model (anthropics/claude-code issue 2826, since 1.0.44). Progress restarts its
                         time-out of 300 s (vfarcic/dot-ai pull request 708, measured with 2.1.222)
    opencode             sends a progress token, and progress restarts its time-out of 60 s (anomalyco/opencode pull request
                         32477). Its model reads structuredContent instead of all content, so a link is lost

Measured not to read a link: LangChain turns it into a file that OpenAI and Gemini refuse; AutoGen, Semantic Kernel, AI SDK 5
and the Python SDK 1.9 fail on it. Progress does not help at claude.ai, which ends a call after 60 s in any case
(anthropics/claude-ai-mcp issue 115), nor with the SDKs' defaults, which do not restart their time-outs.

The Python SDK 1.x has no name of its own in `clientInfo`, but its HTTP library has one, which later versions do not use.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

RESOURCE_LINK_VERSION_MIN: Final = "2025-06-18"
"""The first protocol version with resource links; versions are dates and sort as text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownClient:
    reads_resource_links: bool = False
    """Whether a `resource_link` in a result reaches its model or its user, and breaks nothing."""
    progress_restarts_timeout: bool = False
    """Whether the client waits longer while it gets progress."""


UNKNOWN_CLIENT: Final = KnownClient()
_CLIENTS: Final[Mapping[str, KnownClient]] = {
    "Visual Studio Code": KnownClient(reads_resource_links=True),
    "Visual Studio Code - Insiders": KnownClient(reads_resource_links=True),
    "claude-code": KnownClient(reads_resource_links=True, progress_restarts_timeout=True),
    "opencode": KnownClient(progress_restarts_timeout=True),
}


_SDK_1_USER_AGENT: Final = "python-httpx/"


def ends_at_http_errors(user_agent: str) -> bool:
    """Whether an HTTP error in response to an answer or a notification ends the client with all its requests.

    So does the Python SDK 1.x at each status from 400 on but for 404, which it ignores (measured with 1.30.0).
    """
    return user_agent.startswith(_SDK_1_USER_AGENT)


def get_known_client(name: str) -> KnownClient:
    return _CLIENTS.get(name, UNKNOWN_CLIENT)


def accepts_resource_link(name: str, protocol_version: str) -> bool:
    """Whether a result for this client, in a session of this version, may contain a `resource_link`."""
    return protocol_version >= RESOURCE_LINK_VERSION_MIN and get_known_client(name).reads_resource_links
