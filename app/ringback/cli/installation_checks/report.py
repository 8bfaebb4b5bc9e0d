"""The report of `ringback doctor`: a line for each finding as soon as it is found, or one JSON document at the end."""

from collections.abc import Iterable
from typing import Final

from ringback.cli.installation_checks.database import Finding
from ringback.cli.output import print_json, print_output

ABOUT_WIDTH: Final = 20
"""Characters. Lines are printed before the longest name is known; names of upstreams and webhooks may be longer."""


class FindingReport:
    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._findings: list[Finding] = []

    @property
    def is_ok(self) -> bool:
        return all(finding.ok for finding in self._findings)

    def add(self, *findings: Finding) -> None:
        """Print them, unless JSON is asked for."""
        self._findings += findings
        if not self._as_json:
            _print_lines(findings)

    def finish(self) -> None:
        if self._as_json:
            print_json([_to_json(each) for each in self._findings])


def _to_json(finding: Finding) -> dict[str, object]:
    """`ok` of a check that was skipped is true, because nothing is known to be wrong."""
    return {"about": finding.about, "ok": finding.ok, "skipped": finding.is_skipped, "detail": finding.detail}


def _print_lines(findings: Iterable[Finding]) -> None:
    for finding in findings:
        mark = "skip " if finding.is_skipped else "ok   " if finding.ok else "WRONG"
        print_output(f"{mark}  {finding.about:<{ABOUT_WIDTH}}  {finding.detail}")
