"""Agents that run in a terminal, whose own files `ringback connect` writes: how each is set up, asked and run.

Each reads its file in a home of its own, and asks a model endpoint on loopback (`scripted_model`). So it needs no account.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from scripts.interop_runs.pins import Ecosystem
from scripts.interop_runs.stage import UPSTREAM

PROMPT: Final = "Make the report."


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalClient:
    name: str
    title: str
    client: str
    """Its name for `ringback connect`."""
    file: str
    """Its file, in the home."""
    write_file: Callable[[str], str]
    """The file's text with one server, of this URL."""
    list_command: Sequence[str]
    listed: str
    """What its list says of a server that it can use."""
    run_command: Callable[[str], Sequence[str]]
    """The command that answers one prompt with the model endpoint at this URL."""
    variables: Callable[[str], Mapping[str, str]]
    """For `run_command`, by the model endpoint's URL."""
    list_variables: Mapping[str, str] = field(default_factory=dict[str, str])
    ecosystem: Ecosystem = Ecosystem.NPM

    @property
    def environment_name(self) -> str:
        return self.name


def _write_claude(url: str) -> str:
    return f'{{\n  "numStartups": 3,\n  "mcpServers": {{"{UPSTREAM}": {{"type": "http", "url": "{url}"}}}}\n}}\n'


def _write_codex(url: str) -> str:
    # `codex exec` sends its first request before its servers are connected, unless they are required.
    return f'# my servers\n[mcp_servers.{UPSTREAM}]\nurl = "{url}"\nrequired = true\n'


def _write_gemini(url: str) -> str:
    auth = '{"auth": {"selectedType": "gemini-api-key"}}'
    return f'{{\n  "security": {auth},\n  "mcpServers": {{"{UPSTREAM}": {{"httpUrl": "{url}"}}}}\n}}\n'


def _run_codex(url: str) -> list[str]:
    provider = f'{{name="scripted", base_url="{url}/v1", env_key="SCRIPTED_KEY", wire_api="responses"}}'
    settings = [
        f"model_providers.scripted={provider}",
        'model_provider="scripted"',
        f'mcp_servers.{UPSTREAM}.default_tools_approval_mode="approve"',
    ]
    options = [word for setting in settings for word in ("-c", setting)]
    return ["codex", "exec", "--skip-git-repo-check", *options, "-m", "gpt-5", PROMPT]


_TRUSTED: Final[Mapping[str, str]] = {"GEMINI_CLI_TRUST_WORKSPACE": "true"}
_CLAUDE: Final[Mapping[str, Any]] = {
    "ANTHROPIC_API_KEY": "sk-ant-none",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
}

TERMINAL_CLIENTS: Final[Sequence[TerminalClient]] = (
    TerminalClient(
        name="claude-code",
        title="Claude Code",
        client="claude-code",
        file=".claude.json",
        write_file=_write_claude,
        list_command=("claude", "mcp", "list"),
        listed="Connected",
        run_command=lambda _: ("claude", "-p", PROMPT, "--allowedTools", f"mcp__{UPSTREAM}"),
        variables=lambda url: {"ANTHROPIC_BASE_URL": url, **_CLAUDE},
    ),
    TerminalClient(
        name="codex",
        title="Codex",
        client="codex",
        file=".codex/config.toml",
        write_file=_write_codex,
        list_command=("codex", "mcp", "list"),
        listed="enabled",
        run_command=_run_codex,
        variables=lambda _: {"SCRIPTED_KEY": "none"},
    ),
    TerminalClient(
        name="gemini-cli",
        title="Gemini CLI",
        client="gemini",
        file=".gemini/settings.json",
        write_file=_write_gemini,
        list_command=("gemini", "mcp", "list"),
        listed="Connected",
        list_variables=_TRUSTED,
        run_command=lambda _: ("gemini", "-p", PROMPT, "--approval-mode", "yolo", "-m", "gemini-2.5-flash"),
        variables=lambda url: {"GOOGLE_GEMINI_BASE_URL": url, "GEMINI_API_KEY": "none", **_TRUSTED},
    ),
)
