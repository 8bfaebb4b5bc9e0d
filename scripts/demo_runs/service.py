"""Ringback, its upstreams and the receiver, each a process, and the files that they read."""

import json
import secrets
import shutil
import sys
from base64 import b64encode
from pathlib import Path

from scripts.demo_runs.processes import DemoFailed, DemoProcesses, is_responding, port_is_open, wait_for
from scripts.ports import free_port

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def example(name: str) -> tuple[str, str]:
    return sys.executable, str(EXAMPLES / name)


def ringback(*arguments: str) -> tuple[str, ...]:
    return sys.executable, "-m", "ringback", *arguments


def start_files_server(stage: DemoProcesses) -> str:
    """Start the example server, whose tool takes seconds, over streamable HTTP. Returns its URL."""
    port = free_port()
    stage.start("files", *example("measure_files.py"), "--port", str(port))
    wait_for(lambda: port_is_open(port), "the files server to listen")
    return f"http://127.0.0.1:{port}/mcp"


def start_ringback(stage: DemoProcesses, files_url: str) -> tuple[str, dict[str, str]]:
    """Start Ringback with authentication on SQLite. Returns its URL and its environment variables."""
    config = {
        "mcpServers": {
            "git": {
                "command": sys.executable,
                "args": ["-m", "mcp_server_git", "--repository", str(stage.path("repo"))],
            },
            "time": {"command": sys.executable, "args": ["-m", "mcp_server_time", "--local-timezone", "UTC"]},
            "files": {"type": "http", "url": files_url},
        }
    }
    stage.path("mcp.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    port = free_port()
    environment = {
        "RINGBACK_DATABASE_URL": f"sqlite:///{stage.path('ringback.db')}",
        "RINGBACK_CONFIG": str(stage.path("mcp.json")),
        "RINGBACK_PORT": str(port),
        # The demo's receiver is on this machine; by default callbacks go to public https addresses only.
        "RINGBACK_CALLBACK_PRIVATE_CIDRS": "127.0.0.0/8",
        "RINGBACK_CALLBACK_HTTP": "true",
    }
    stage.start("ringback", *ringback("serve"), **environment)
    url = f"http://127.0.0.1:{port}"
    wait_for(lambda: is_responding(f"{url}/readyz"), "Ringback to be ready", log=stage.path("ringback.log"))
    return url, environment


def start_receiver(stage: DemoProcesses) -> str:
    port = free_port()
    stage.path("secret.txt").write_text("whsec_" + b64encode(secrets.token_bytes(32)).decode(), encoding="ascii")
    stage.path("callbacks.jsonl").touch()
    stage.start(
        "receiver",
        *example("receiver.py"),
        *("--port", str(port), "--secret-file", "secret.txt", "--out", "callbacks.jsonl"),
    )
    wait_for(lambda: port_is_open(port), "the receiver to listen")
    return f"http://127.0.0.1:{port}/callbacks"


def make_repository(stage: DemoProcesses) -> None:
    """A small git repository for mcp-server-git to read."""
    if shutil.which("git") is None:
        raise DemoFailed("git is not installed; mcp-server-git needs it. Install git, then run scripts/demo again.")
    repository = stage.path("repo")
    stage.run("git", "init", "--quiet", str(repository))
    for number, text in enumerate(("Call a tool", "Disconnect", "Get a callback"), start=1):
        (repository / "story.txt").write_text(text, encoding="utf-8")
        git = ("git", "-C", str(repository), "-c", "user.name=Demo", "-c", "user.email=demo@example.org")
        stage.run(*git, "add", "story.txt")
        stage.run(*git, "commit", "--quiet", "-m", f"{number}. {text}")


def make_folder_to_measure(stage: DemoProcesses) -> Path:
    folder = stage.path("to-measure")
    for number in range(24):
        file = folder / f"part-{number % 4}" / f"file-{number:02}.bin"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(bytes((number + index) % 251 for index in range(64 * 1024)))
    return folder
