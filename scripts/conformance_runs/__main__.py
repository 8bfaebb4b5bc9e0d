"""The command line of scripts/conformance."""

import argparse
import json
import sys

from ringback.domain.upstreams import DisconnectAction
from scripts.conformance_runs.processes import fixture, ringback
from scripts.conformance_runs.suite import REVISIONS, SuiteFailed, install, run
from scripts.conformance_runs.verdict import EXPECTED_FAILURES, Verdict, judge_checks


def main() -> int:
    options = _options()
    try:
        verdicts = _run(options.revision or list(REVISIONS), direct=options.direct)
    except SuiteFailed as problem:
        print(f"conformance: {problem}", file=sys.stderr)
        return 2
    for target, verdict in verdicts.items():
        print(f"{target}\n{_readable(verdict)}", file=sys.stderr if options.json else sys.stdout)
    is_good = all(verdict.is_good for verdict in verdicts.values())
    if options.json:
        targets = {target: verdict.to_json() for target, verdict in verdicts.items()}
        print(json.dumps({"good": is_good, "targets": targets}))
    return 0 if is_good else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/conformance")
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    parser.add_argument("--direct", action="store_true", help="run against the fixture, without Ringback")
    parser.add_argument("--revision", action="append", choices=REVISIONS, help="only this revision; may be repeated")
    return parser.parse_args()


def _run(revisions: list[str], *, direct: bool) -> dict[str, Verdict]:
    """The verdict on each target: on the fixture itself, or on Ringback with each `on_disconnect`."""
    installed = install()

    def judge(url: str) -> Verdict:
        return judge_checks([check for revision in revisions for check in run(installed, url, revision)])

    with fixture() as upstream:
        if direct:
            return {"fixture": judge(upstream)}
        verdicts: dict[str, Verdict] = {}
        for action in DisconnectAction:
            with ringback(upstream, on_disconnect=action) as url:
                verdicts[f"on_disconnect={action}"] = judge(url)
        return verdicts


def _readable(verdict: Verdict) -> str:
    lines = [f"{'':<22}{'passed':>8}{'failed':>8}{'expected':>10}{'skipped':>9}{'warnings':>10}"]
    lines += [
        f"{name:<22}{group.passed:>8}{group.failed:>8}{group.expected:>10}{group.skipped:>9}{group.warnings:>10}"
        for name, group in verdict.groups.items()
    ]
    lines += [
        f"{check.status.lower()}: {check.revision} {check.scenario}: {check.id}: {check.message}"
        for check in [*verdict.notes, *verdict.unexpected]
    ]
    lines += [f"expected to fail, but passes: {' '.join(key)}" for key in verdict.stale]
    for reason in dict.fromkeys(EXPECTED_FAILURES.values()):
        scenarios = ", ".join(f"{key[0]} {key[1]}" for key, why in EXPECTED_FAILURES.items() if why == reason)
        lines.append(f"expected to fail: {scenarios}. {reason}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
