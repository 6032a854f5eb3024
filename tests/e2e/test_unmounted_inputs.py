"""A share goes away while a run reads from it.

The run may have read nothing, so another one follows (rules 5 and 17).
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from e2e.box import Box
from wait_conditions import eventually

SUMMING = """
    objective: Add up what lies on the share.
    bindings:
      share: {file: "share/*.csv", settle: 10ms}
      gate: {file: gate, wake: false}
      sum: {file: sum.txt, access: write}
    run: {command: [sh, -c, 'touch started; while [ ! -s gate ]; do sleep 0.02; done; cat share/*.csv > sum.txt 2> /dev/null; true']}
"""


def mount(box: Box) -> None:
    subprocess.run(["mount", "--bind", str(box.folder / "behind"), str(box.folder / "share")], check=True)


def unmount(box: Box) -> None:
    # A lazy unmount does not ask whether the share is in use. So a share goes away when its server is lost.
    subprocess.run(["umount", "-l", str(box.folder / "share")], check=True)


@pytest.fixture
def shared(box: Box) -> Iterator[Box]:
    """A session whose run waits for the gate before it reads the share."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root: shares that go away are not tested here")
    for name in ("share", "behind"):
        (box.folder / name).mkdir()
    box.write("behind/one.csv", "1\n")
    box.write("gate", "open\n")
    mount(box)
    box.spec("sums", SUMMING)
    box.start()
    box.wait_at_rest("sums", runs=1)
    yield box
    subprocess.run(["umount", "-l", str(box.folder / "share")], check=False, capture_output=True)


def begin_run(box: Box, text: str) -> None:
    """Begin a run that has not read the share yet."""
    (box.folder / "gate").write_text("")
    (box.folder / "started").unlink()
    (box.folder / "share" / "one.csv").write_text(text)
    eventually(lambda: (box.folder / "started").exists())


def end_run(box: Box) -> None:
    (box.folder / "gate").write_text("open\n")
    eventually(lambda: box.kinds("sums").count("run_finished") >= 2)


def test_a_run_that_a_share_went_away_from_is_followed_by_another(shared: Box) -> None:
    begin_run(shared, "2\n")
    unmount(shared)
    end_run(shared)
    mount(shared)
    shared.wait_at_rest("sums", runs=3)
    assert shared.read("sum.txt") == "2\n"


def test_a_run_during_which_a_share_went_and_came_back_is_followed_by_another(shared: Box) -> None:
    """The share is as it was, and nothing tells whether the run read it or the empty folder."""
    begin_run(shared, "2\n")
    unmount(shared)
    eventually(
        lambda: "nothing is mounted there any more" in shared.words("why", "sums") + shared.words("show", "sums")
    )
    mount(shared)
    end_run(shared)
    shared.wait_at_rest("sums", runs=3)
    assert shared.read("sum.txt") == "2\n"
    started = [record["payload"] for record in shared.log("sums") if record["kind"] == "run_started"]
    assert [cause["reason"] for cause in started[-1]["causes"]] == ["touched during run"]
