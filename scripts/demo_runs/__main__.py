"""Runs the demo, reports what was observed, and shows the dashboard."""

import argparse
import contextlib
import itertools
import json
import os
import sys
import tempfile
import time
import urllib.request
import webbrowser
from pathlib import Path
from typing import Any

from scripts import demo_runs
from scripts.demo_runs.agents import (
    MEASURE_ROUNDS,
    SESSION,
    print_callbacks,
    resume_calls,
    start_and_kill_agent,
    wait_for_callback,
)
from scripts.demo_runs.processes import WAIT_SECONDS, DemoFailed, DemoProcesses, Timeline
from scripts.demo_runs.service import make_repository, ringback, start_files_server, start_receiver, start_ringback

UI_PAUSE_SECONDS = 5.0
"""Between two calls while someone looks at the dashboard."""


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


def main() -> int:
    parser = argparse.ArgumentParser(
        description=demo_runs.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
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
