"""Tests run in forks of the process that collected them, and one that ends its process fails alone."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.support.forked_workers import SLOW_FILES, divide
from tests.support.limits import WAIT_SECONDS

ROOT: Final = Path(__file__).parents[2]
SLOW: Final = next(iter(SLOW_FILES))
TESTS: Final = """
import os, sys
import pytest

@pytest.fixture(scope="module")
def made():
    yield os.getpid()
    print("the module ends")

def test_passes(made, tmp_path):
    (tmp_path / "file").write_text("")

def test_ends_its_process():
    os._exit(3)

def test_fails(made):
    print("captured")
    assert made == 0

@pytest.mark.parametrize("number", range(20))
def test_runs_elsewhere(number):
    assert os.getpid() != int(os.environ["COLLECTED_BY"])

os.environ.setdefault("COLLECTED_BY", str(os.getpid()))
"""


def test_each_test_is_in_one_part_slow_ones_first_and_alone() -> None:
    names = ["a.py"] * 5 + [SLOW] * 2 + ["b.py"] * 40

    parts = list(divide(names, forks=1))

    assert parts[:2] == [[5], [6]]
    assert parts[2] == [0, 1, 2, 3, 4]
    assert sorted(index for part in parts for index in part) == list(range(len(names)))
    assert max(len(part) for part in parts) == len(names) // 4


def test_a_run_in_forks_reports_as_one_in_a_process_and_goes_on_after_a_worker_that_ends(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(TESTS, encoding="utf-8")
    options = ("-p", "tests.support.forked_workers", "--forks", "2", "-p", "no:cacheprovider", "--rootdir", tmp_path)
    command = (sys.executable, "-m", "pytest", *options, "-c", "/dev/null", "--basetemp", tmp_path / "temp", tmp_path)

    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False)

    assert re.search(r"2 failed, 21 passed", ended.stdout), ended.stdout + ended.stderr
    assert "the worker ended in the middle of" in ended.stdout
    assert "captured" in ended.stdout
    assert ended.returncode == 1
