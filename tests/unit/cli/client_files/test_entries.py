"""One entry of a client as one of Ringback's configuration, and the reasons why an entry stays with its client."""

from pathlib import Path
from typing import Any, Final

import pytest

from ringback.cli.client_files.clients import find_client
from ringback.cli.client_files.entries import ServerKept, Surroundings, translate_entry
from ringback.cli.client_files.own_entries import find_own_upstream

SERVICE: Final = "http://127.0.0.1:8090"


def translate(client: str, entry: Any, folder: Path | None = None) -> dict[str, Any]:
    chosen = find_client(client)
    assert chosen is not None
    return translate_entry(entry, client=chosen, surroundings=Surroundings(home=Path("/home/ada"), folder=folder))


@pytest.mark.parametrize(
    ("client", "entry", "reason"),
    [
        ("cursor", [], "it is no object"),
        ("cursor", {"disabled": True, "command": "x"}, "it is disabled"),
        ("cursor", {}, "it has neither a command nor a URL"),
        ("cursor", {"command": ["x"]}, "'command' must be a text that is not empty"),
        ("cursor", {"command": "x", "args": [1]}, "'args' must be a list of texts; quote numbers"),
        ("cursor", {"command": "x", "env": "A=b"}, "its 'env' is no object"),
        ("cursor", {"command": "x", "envFile": ".env"}, "its variables are in a file ('envFile')"),
        ("cursor", {"command": "x", "args": ["${workspaceFolder}"]}, "it holds ${workspaceFolder}"),
        ("cursor", {"command": "x", "args": ["${a b}"]}, "it holds ${a b}, which Ringback cannot replace"),
        ("cursor", {"command": "x", "args": ["\ud800"]}, "it holds half a character"),
        ("cursor", {"command": "x", "ringback": {"max_concurrent": 10**400}}, "it holds a number that is too large"),
        ("cursor", {"command": "npx", "args": ["server-filesystem", "."]}, "'.' depends on the folder in which Cursor"),
        ("cursor", {"command": "../server"}, "'../server' depends on the folder"),
        ("cursor", {"command": "x", "cwd": "src"}, "'src' depends on the folder"),
        ("cursor", {"command": "venv/bin/shop", "args": []}, "'venv/bin/shop' depends on the folder"),
        ("cursor", {"command": "python", "args": ["-u", "server.py"]}, "'server.py' depends on the folder"),
        ("cursor", {"command": "/usr/bin/node", "args": ["build/index.js"]}, "'build/index.js' depends on the folder"),
        (
            "cursor",
            {"command": "uv", "args": ["run", "--with", "mcp", "server.py"]},
            "'server.py' depends on the folder",
        ),
        ("cursor", {"url": "ftp://example.com"}, "'url' must be an http:// or https:// URL with a host"),
        ("claude-code", {"type": "sse", "url": "https://a.example/mcp"}, "its transport is SSE"),
        ("claude-code", {"type": "ws", "url": "wss://a.example/mcp"}, "'type' must be one of"),
        (
            "claude-code",
            {"type": "http", "url": "https://a.example", "headersHelper": "x"},
            "a command makes its headers",
        ),
        ("gemini", {"url": "https://a.example/mcp"}, "its transport is SSE"),
        ("claude-desktop", {"command": "x", "args": ["${HOME}"]}, "Claude Desktop passes on as it is"),
        ("codex", {"command": "x", "env": {"A": "${B}"}}, "Codex passes on as it is"),
        ("codex", {"command": "x", "env_vars": [{"name": "A", "source": "remote"}]}, "its 'env_vars' are not a list"),
        ("vscode", {"command": "x", "env": {"A": "${input:key}"}}, "repeat with --input key=VARIABLE"),
    ],
)
def test_an_entry_that_ringback_cannot_serve_stays_with_the_reason(client: str, entry: Any, reason: str) -> None:
    with pytest.raises(ServerKept) as kept:
        translate(client, entry)

    assert reason in str(kept.value)


@pytest.mark.parametrize(
    ("client", "entry", "translated"),
    [
        ("gemini", {"type": "http", "url": "https://a.example/mcp"}, {"type": "http", "url": "https://a.example/mcp"}),
        (
            "gemini",
            {"httpUrl": "https://a.example/mcp", "url": "https://a.example/sse"},
            {"type": "http", "url": "https://a.example/mcp"},
        ),
        ("gemini", {"command": "x", "args": ["$A-${B}"]}, {"command": "x", "args": ["${A}-${B}"]}),
        ("cursor", {"command": "${userHome}/x${/}y", "env": {}}, {"command": "/home/ada/x/y"}),
        ("claude-code", {"command": "x", "env": {"A": "${B:-c d}"}}, {"command": "x", "env": {"A": "${B:-c d}"}}),
        (
            "codex",
            {"url": "https://a.example/mcp", "env_http_headers": {"X-Key": "KEY"}},
            {"type": "http", "url": "https://a.example/mcp", "headers": {"X-Key": "${KEY}"}},
        ),
        (
            "claude-code",
            {"type": "http", "url": "https://a.example/mcp", "oauth": {"clientId": "c", "callbackPort": 8080}},
            {"type": "http", "url": "https://a.example/mcp", "ringback": {"login": {"client_id": "c"}}},
        ),
    ],
)
def test_an_entry_is_written_as_ringback_reads_it(client: str, entry: Any, translated: dict[str, Any]) -> None:
    assert translate(client, entry) == translated


@pytest.mark.parametrize(("cwd", "expected"), [(None, "/shop"), ("server", "/shop/server"), ("/abs", "/abs")])
def test_a_server_of_a_project_runs_in_its_folder(cwd: str | None, expected: str) -> None:
    entry = {"command": "x"} if cwd is None else {"command": "x", "cwd": cwd}

    assert translate("claude-code", entry, folder=Path("/shop"))["cwd"] == expected


def test_a_relative_path_with_a_whole_working_folder_depends_on_no_client() -> None:
    entry = {"command": "./server", "args": [".", "../data"], "cwd": "/opt/shop"}

    assert translate("cursor", entry) == entry


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("uv", ["--directory", "/opt/shop", "run", "server.py"]),
        ("python3.12", ["/opt/shop/server.py", "config.py"]),
        ("node", ["/opt/my shop/server.js", "config.js"]),
        ("node", ["${env:HOME}/shop/server.js", "config.js"]),
        ("node", ["${userHome}/shop/server.js"]),
        ("python", ["-m", "shop", "config.py"]),
        ("python", ["-m", "shop.server"]),
        ("sh", ["-c", "cd /opt/shop && python server.py"]),
        ("deno", ["run", "-A", "jsr:@shop/server.ts"]),
        ("npx", ["-y", "chart.js"]),
        ("docker", ["run", "shop", "server.py"]),
    ],
)
def test_a_script_whose_folder_is_named_or_that_may_be_no_file_of_the_client_s_folder_is_served(
    command: str, arguments: list[str]
) -> None:
    assert translate("cursor", {"command": command, "args": arguments})["command"] == command


def test_a_relative_path_of_a_project_s_server_stays_relative_to_its_folder() -> None:
    entry = {"command": "venv/bin/python", "args": ["server.py", ".", "../data"]}

    assert translate("claude-code", entry, folder=Path("/shop")) == {**entry, "cwd": "/shop"}


@pytest.mark.parametrize(
    ("entry", "upstream"),
    [
        ({"command": "/opt/bin/ringback", "args": ["mcp", "--upstream", "git"]}, "git"),
        ({"command": "uvx", "args": ["--from", "ringback[server]", "ringback", "mcp"]}, ""),
        ({"command": "python", "args": ["-m", "ringback", "mcp", "--upstream", "git"]}, "git"),
        ({"command": "C:\\bin\\ringback.exe", "args": ["mcp"]}, ""),
        ({"command": "ringback", "args": ["serve"]}, None),
        ({"command": "uvx", "args": ["mcp-server-git"]}, None),
        ({"command": "ringback", "args": True}, None),
        ({"url": "http://localhost:8090/mcp/git?wait=5"}, "git"),
        ({"serverUrl": "http://127.0.0.1:8090/mcp"}, ""),
        ({"url": "http://127.0.0.1:8091/mcp"}, None),
        ({"url": "http://127.0.0.1:8090/other"}, None),
        ({"url": "https://a.example/mcp/git", "bearer_token_env_var": "RINGBACK_API_KEY"}, ""),
        ({"url": "http://[::1/mcp"}, None),
        ("text", None),
    ],
)
def test_an_entry_that_is_ringback_already_is_known(entry: Any, upstream: str | None) -> None:
    assert find_own_upstream(entry, url=SERVICE) == upstream
