"""What the demo says when a step of it does not happen."""

from pathlib import Path

import pytest

from scripts.demo_runs import processes


def test_a_step_that_does_not_happen_ends_with_the_last_whole_lines_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "WAIT_SECONDS", -1.0)
    log = tmp_path / "service.log"
    log.write_text("".join(f"{number} {'x' * 400}\n" for number in range(9)), encoding="utf-8")

    with pytest.raises(processes.DemoFailed) as failed:
        processes.wait_for(lambda: False, "the callbacks", log=log)

    first, *lines = str(failed.value).splitlines()
    assert first.endswith("s for the callbacks.")
    assert [line.split()[0] for line in lines] == ["4", "5", "6", "7", "8"]
