"""What `ringback doctor --json` reports."""

import json
from collections.abc import Callable

from typer.testing import Result

Run = Callable[..., Result]
Found = dict[str, tuple[bool, str]]


def findings(ran: Result) -> Found:
    return {found["about"]: (found["ok"], found["detail"]) for found in json.loads(ran.stdout)}


def list_failed_checks(ran: Result) -> Found:
    assert ran.exit_code == 1
    return {about: (ok, detail) for about, (ok, detail) in findings(ran).items() if not ok}


def list_checks(run: Run, *more: str) -> Result:
    return run("doctor", "--json", *more)
