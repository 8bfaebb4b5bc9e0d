"""What is checked of an adapter within its framework's environment, without a Ringback: its types, and its edges."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from scripts.interop_runs import judge
from scripts.interop_runs.adapters import Adapter
from scripts.interop_runs.environments import ROOT, Environment
from scripts.interop_runs.judge import Judgement

PYRIGHT_SECONDS: Final = 600.0
EDGES_SECONDS: Final = 600.0


def check_edges(adapter: Adapter, environment: Environment, folder: Path) -> Judgement:
    """Run the checks of the framework in its environment; their output is in edges.log."""
    log = folder / "edges.log"
    with log.open("wb") as output:
        done = subprocess.run(
            [*environment.command(adapter.edges.name)],
            stdout=output,
            stderr=output,
            env=environment.variables(),
            timeout=EDGES_SECONDS,
            check=False,
            cwd=folder,
        )
    last_line = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
    return judge.passed() if done.returncode == 0 else judge.failed("".join(last_line))


def check_types(adapter: Adapter, environment: Environment, folder: Path) -> Judgement:
    """Run pyright of this environment on the adapter and its example, with the packages of the framework's environment."""
    settings = {
        "include": [os.path.relpath(ROOT / file, folder) for file in adapter.typed_files],  # absolute paths are ignored
        "extraPaths": [str(ROOT / "app")],
        "pythonVersion": "3.11",
        "typeCheckingMode": "strict",
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    command = [
        str(Path(sys.executable).with_name("pyright")),
        "--outputjson",
        "--pythonpath",
        str(environment.bin / "python"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PYRIGHT_SECONDS, check=False, cwd=folder)
    (folder / "pyright.json").write_text(done.stdout, encoding="utf-8")
    report: dict[str, Any] = json.loads(done.stdout)
    if report["summary"]["filesAnalyzed"] != len(adapter.typed_files):
        return judge.failed(f"pyright checked {report['summary']['filesAnalyzed']} files")
    errors = [each for each in report["generalDiagnostics"] if each["severity"] == "error"]
    return judge.failed(f"{len(errors)} errors: {errors[0]['message']}") if errors else judge.passed()
