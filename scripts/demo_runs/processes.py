"""The processes of the demo, its timeline, and what it waits for."""

import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

WAIT_SECONDS = 90.0


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
            tail = "\n".join(["", *log.read_text(encoding="utf-8").splitlines()[-5:]]) if log else ""
            raise DemoFailed(f"Waited {WAIT_SECONDS:.0f} s for {what}.{tail}")
        time.sleep(0.05)
