"""Only clients that are known to read a link get one."""

import pytest

from ringback.mcp_server.known_clients import accepts_resource_link


@pytest.mark.parametrize(
    ("name", "version", "expected"),
    [
        ("Visual Studio Code", "2025-11-25", True),
        ("Visual Studio Code - Insiders", "2026-07-28", True),
        ("claude-code", "2025-06-18", True),
        ("claude-code", "2025-03-26", False),
        ("claude-code", "2024-11-05", False),
        ("claude-code (via mcp-remote 0.1.37)", "2025-11-25", False),
        ("opencode", "2025-11-25", False),
        ("mcp", "2026-07-28", False),
        ("", "2026-07-28", False),
    ],
)
def test_a_link_is_for_known_names_in_sessions_whose_version_has_links(
    name: str, version: str, *, expected: bool
) -> None:
    assert accepts_resource_link(name, version) is expected
