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
            print_json([{"about": each.about, "ok": each.ok, "detail": each.detail} for each in self._findings])


def _print_lines(findings: Iterable[Finding]) -> None:
    for finding in findings:
        print_output(f"{'ok   ' if finding.ok else 'WRONG'}  {finding.about:<{ABOUT_WIDTH}}  {finding.detail}")
