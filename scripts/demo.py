"""The main job on real MCP servers, observed from outside: every figure of the report was observed.

agent 1 ── registers a webhook, starts three calls ── kill -9
Ringback ── runs them on git, time (stdio) and files (HTTP) ── signed callbacks ──▶ receiver (a third process)
agent 2 ── has one callback and its own API key ── resumes, reads the result; is rejected without the key
"""

import argparse
import contextlib
import itertools
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import webbrowser
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "scripts" / "examples"
SESSION = "inference-session-42"
WAIT_SECONDS = 90.0
MEASURE_ROUNDS = 1200
"""Makes the slow tool take several seconds for the demo's folder."""
UI_PAUSE_SECONDS = 5.0
"""Between two calls while someone looks at the dashboard."""


class DemoFailed(Exception):
    """A step of the demo failed; the message says which."""


@dataclass
class Timeline:
    """Prints each step with its time."""

    quiet: bool
    began: float = field(default_factory=time.monotonic)

    def print_line(self, who: str, what: str) -> None:
        stream = sys.stderr if self.quiet else sys.stdout
        print(f"{time.monotonic() - self.began:6.2f}s  {who:<10} {what}", file=stream, flush=True)


@dataclass
class DemoProcesses:
    """A temporary folder and the processes started in it, all ended with the context."""

    folder: Path
    stack: contextlib.ExitStack

    def path(self, name: str) -> Path:
        return self.folder / name

    def start(self, name: str, *command: str, **environment: str) -> "subprocess.Popen[str]":
        log: IO[str] = self.stack.enter_context(self.path(f"{name}.log").open("w", encoding="utf-8"))
        process = subprocess.Popen(
            command, cwd=self.folder, stdout=subprocess.PIPE, stderr=log, text=True, env=os.environ | environment
        )
        self.stack.callback(end_process, process)
        return process

    def run(self, *command: str, stdin: str = "", **environment: str) -> str:
        done = subprocess.run(
            command,
            cwd=self.folder,
            input=stdin,
            capture_output=True,
            text=True,
            env=os.environ | environment,
            timeout=WAIT_SECONDS,
            check=False,
        )
        if done.returncode:
            raise DemoFailed(f"{' '.join(command[:4])} … exited with {done.returncode}: {done.stderr.strip()[-500:]}")
        return done.stdout


def end_process(process: "subprocess.Popen[str]") -> None:
    process.terminate()
    try:
        process.communicate(timeout=15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()


# -- processes -------------------------------------------------------------------------------------------------------------


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


# -- waiting ---------------------------------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def port_is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def is_responding(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as response:  # noqa: S310 - a URL of our own on loopback
            return bool(response.status == 200)  # noqa: PLR2004 - OK
    except OSError:
        return False


def wait_for(happened: Callable[[], bool], what: str, *, log: Path | None = None) -> None:
    ends_at = time.monotonic() + WAIT_SECONDS
    while not happened():
        if time.monotonic() > ends_at:
            tail = log.read_text(encoding="utf-8")[-1000:] if log else ""
            raise DemoFailed(f"Waited {WAIT_SECONDS:.0f} s for {what}. {tail}")
        time.sleep(0.05)


def read_callbacks(stage: DemoProcesses) -> list[dict[str, Any]]:
    lines = stage.path("callbacks.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


# -- the dashboard ---------------------------------------------------------------------------------------------------------


def show_dashboard(timeline: Timeline, url: str, key: str) -> None:
    """Print where the dashboard is and the key to sign in with; open it if this machine has a desktop."""
    timeline.print_line("dashboard", f"{url}/ui/calls")
    timeline.print_line("dashboard", f"sign in with the agent's key, which ends with the demo: {key}")
    if sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        webbrowser.open(f"{url}/ui/calls")  # never with the key, which would stay in the browser's history


def repeat_calls(stage: DemoProcesses, timeline: Timeline, url: str, key: str) -> None:
    """Start a call every few seconds, and resume each, until Ctrl-C."""
    timeline.print_line("demo", "the dashboard stays open, with a new call every few seconds; Ctrl-C ends it")
    arguments = {"folder": str(stage.path("to-measure")), "rounds": MEASURE_ROUNDS}
    for number in itertools.count(1):
        call = {"upstream": "files", "tool": "measure_files", "arguments": arguments, "client_session_id": SESSION}
        call_id = start_call(url, key, call | {"correlation_id": f"measure-again-{number}"})
        resume_calls(stage, timeline, url, wait_for_callback(stage, call_id), key)
        time.sleep(UI_PAUSE_SECONDS)


def start_call(url: str, key: str, call: dict[str, Any]) -> str:
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/v1/calls", json.dumps(call).encode(), headers)  # noqa: S310 - on loopback
    with urllib.request.urlopen(request, timeout=WAIT_SECONDS) as response:  # noqa: S310 - as above
        return str(json.load(response)["call"]["id"])


def wait_for_callback(stage: DemoProcesses, call_id: str) -> dict[str, Any]:
    arrived: list[dict[str, Any]] = []

    def has_arrived() -> bool:
        arrived.extend(each for each in read_callbacks(stage) if each["call_id"] == call_id)
        return bool(arrived)

    wait_for(has_arrived, "the callback", log=stage.path("ringback.log"))
    return arrived[0]


# -- the demo --------------------------------------------------------------------------------------------------------------


def run_demo(
    stage: DemoProcesses, timeline: Timeline, report: dict[str, Any], *, with_dashboard: bool
) -> tuple[str, str]:
    """Returns the URL of the running service, and the agent's key."""
    make_repository(stage)
    files_url = start_files_server(stage)
    url, environment = start_ringback(stage, files_url)
    timeline.print_line("ringback", f"serves on {url}, auth on, SQLite; upstreams: git and time (stdio), files (HTTP)")
    key = json.loads(stage.run(*ringback("keys", "create", "demo-agent", "--json"), **environment))["key"]
    if with_dashboard:
        show_dashboard(timeline, url, key)
    callback_url = start_receiver(stage)
    timeline.print_line("receiver", f"listens on {callback_url}")

    started = start_and_kill_agent(stage, timeline, url, callback_url, key)
    report["calls"], report["killed"] = len(started), True

    callbacks = print_callbacks(stage, timeline, count=len(started))
    report["callbacks_verified"] = sum(
        callbacks.get(call_id, {}).get("correlation_id") == correlation_id
        and callbacks[call_id]["client_session_id"] == SESSION
        for call_id, correlation_id in started.items()
    )
    report["rejoined"] = sum(resume_calls(stage, timeline, url, callback, key) for callback in callbacks.values())
    return url, key


def print_callbacks(stage: DemoProcesses, timeline: Timeline, *, count: int) -> dict[str, dict[str, Any]]:
    """Wait for the callbacks of the calls; print each as soon as the receiver has verified it."""
    received: dict[str, dict[str, Any]] = {}

    def all_arrived() -> bool:
        for callback in read_callbacks(stage):
            if callback["call_id"] not in received:
                received[callback["call_id"]] = callback
                what = f"{callback['correlation_id']}: {callback['outcome']}, {callback['result_bytes']} bytes"
                timeline.print_line("receiver", f"verified {callback['name']} of {what}")
        return len(received) >= count

    wait_for(all_arrived, "the callbacks", log=stage.path("ringback.log"))
    return received


def start_and_kill_agent(
    stage: DemoProcesses, timeline: Timeline, url: str, callback_url: str, key: str
) -> dict[str, str]:
    """Let agent 1 start its calls, and kill it with SIGKILL. Returns the acknowledged call ids and their correlation ids."""
    calls: list[dict[str, Any]] = [
        {
            "upstream": "files",
            "tool": "measure_files",
            "arguments": {"folder": str(make_folder_to_measure(stage)), "rounds": MEASURE_ROUNDS},
            "correlation_id": "measure-the-folder",
        },
        {
            "upstream": "git",
            "tool": "git_log",
            "arguments": {"repo_path": str(stage.path("repo"))},
            "correlation_id": "read-the-history",
        },
        {
            "upstream": "time",
            "tool": "get_current_time",
            "arguments": {"timezone": "Europe/Berlin"},
            "correlation_id": "ask-the-time",
        },
    ]
    agent = stage.start(
        "agent-1",
        *example("agent_start.py"),
        *("--url", url, "--callback", callback_url, "--secret-file", "secret.txt", "--session", SESSION),
        *(json.dumps(call) for call in calls),
        RINGBACK_API_KEY=key,
    )
    answers = [json.loads(line) for line in _lines(agent, 1 + len(calls))]
    timeline.print_line("agent 1", f"registered a webhook: {answers[0]['hears']}")
    for answer in answers[1:]:
        timeline.print_line("agent 1", f"started {answer['correlation_id']} as {answer['call_id']}")
    agent.send_signal(signal.SIGKILL)
    if agent.wait(timeout=10) != -signal.SIGKILL:
        raise DemoFailed(f"agent 1 ended with {agent.returncode}, not by SIGKILL")
    finished = len(read_callbacks(stage))
    timeline.print_line(
        "agent 1", f"killed with SIGKILL while {len(calls) - finished} of its {len(calls)} calls were running"
    )
    return {answer["call_id"]: answer["correlation_id"] for answer in answers[1:]}


def _lines(process: "subprocess.Popen[str]", count: int) -> Iterator[str]:
    assert process.stdout is not None
    for _ in range(count):
        line = process.stdout.readline()
        if not line:
            raise DemoFailed(f"agent 1 ended early, with exit code {process.wait(timeout=10)}; see its log")
        yield line


def resume_calls(stage: DemoProcesses, timeline: Timeline, url: str, callback: dict[str, Any], key: str) -> bool:
    """Run agent 2, another process, with only the callback and its key."""
    answer = json.loads(
        stage.run(*example("agent_resume.py"), "--url", url, stdin=json.dumps(callback), RINGBACK_API_KEY=key)
    )
    content = answer["result"]["content"][0]
    timeline.print_line(
        "agent 2", f"rejected without its key: {answer['refused_without_key']}; with it: {answer['status']}"
    )
    timeline.print_line("agent 2", f"result of {answer['correlation_id']}: {' '.join(content['text'].split())[:90]}")
    return bool(
        answer["refused_without_key"]
        and answer["call_id"] == callback["call_id"]
        and answer["client_session_id"] == SESSION
        and answer["status"] == "completed"
        and not answer["result"].get("isError", False)
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--ui", action="store_true", help="leave the service running, and open its dashboard")
    options = parser.parse_args()
    timeline = Timeline(quiet=options.json)
    report: dict[str, Any] = {"ok": False, "calls": 0, "callbacks_verified": 0, "killed": False, "rejoined": 0}
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ringback-demo-"))
        stage = DemoProcesses(folder=Path(folder), stack=stack)
        try:
            url, key = run_demo(stage, timeline, report, with_dashboard=options.ui)
            if options.ui:
                repeat_calls(stage, timeline, url, key)
        except DemoFailed as problem:
            timeline.print_line("demo", f"FAILED: {problem}")
        except KeyboardInterrupt:
            timeline.print_line("demo", "ends")
    expected = {"calls": 3, "callbacks_verified": 3, "killed": True, "rejoined": 3}
    report["ok"] = all(report[name] == value for name, value in expected.items())
    report["seconds"] = round(time.monotonic() - timeline.began, 1)
    timeline.print_line("demo", "all steps succeeded" if report["ok"] else f"a step failed: {report}")
    if options.json:
        print(json.dumps(report))
    return 0 if report["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
