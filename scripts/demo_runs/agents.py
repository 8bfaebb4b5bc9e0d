"""The two agents: one starts the calls and is killed, the other has a callback and resumes its call."""

import json
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

from scripts.demo_runs.processes import DemoFailed, DemoProcesses, Timeline, wait_for
from scripts.demo_runs.service import example, make_folder_to_measure

SESSION = "inference-session-42"
MEASURE_ROUNDS = 1200
"""Makes the slow tool take several seconds for the demo's folder."""


def read_callbacks(stage: DemoProcesses) -> list[dict[str, Any]]:
    lines = stage.path("callbacks.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def wait_for_callback(stage: DemoProcesses, call_id: str) -> dict[str, Any]:
    arrived: list[dict[str, Any]] = []

    def has_arrived() -> bool:
        arrived.extend(each for each in read_callbacks(stage) if each["call_id"] == call_id)
        return bool(arrived)

    wait_for(has_arrived, "the callback", log=stage.path("ringback.log"))
    return arrived[0]


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
