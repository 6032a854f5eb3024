"""A real daemon makes the view of a strict session's next run while that rests: the run is the same, and nothing is left that waits for none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from e2e.box import Box
from waiting import eventually
from wakeful.runners.isolation.bubblewrap import find_obstacle

OBSTACLE = find_obstacle()
# Run by `make test-long`: a daemon for each of its tests takes its time.
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(OBSTACLE is not None, reason=f"nothing can be isolated strictly here: {OBSTACLE}"),
]
SESSION = """
objective: Copy the order.
isolation: strict
bindings:
  order: {file: "orders/*"}
  copy:  {file: out/copy.txt, access: write}
run:
  script: "cat orders/* > out/copy.txt; readlink /proc/self/ns/pid"
"""


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    made = Box(tmp_path)
    made.reach = lambda: ""
    made.write("wakeful.yaml", "")
    made.write("orders/one", "1")
    made.spec("copying", SESSION)
    made.start()
    yield made
    made.close()


def wait_for_shell(box: Box) -> psutil.Process:
    """The one that waits in a view, below the daemon."""

    def find() -> psutil.Process | None:
        assert box.daemon is not None
        return next((one for one in psutil.Process(box.daemon.pid).children(recursive=True) if _is_waiting(one)), None)

    return eventually(find, what="a shell that waits")


def _is_waiting(process: psutil.Process) -> bool:
    try:
        return process.name() == "sh" and "/dev/stdin" in process.cmdline()[-1]
    except psutil.Error:
        return False


def test_the_next_run_is_in_the_view_that_waits_and_is_recorded_as_all_others(box: Box) -> None:
    box.wait_at_rest("copying", runs=1)
    shell = wait_for_shell(box)
    space = Path(f"/proc/{shell.pid}/ns/pid").readlink()
    assert box.row("copying")["last_run"]["run"] == 1 and [row["name"] for row in box.rows()] == ["copying"]
    box.save("orders/one", "2")
    box.wait_at_rest("copying", runs=2)
    assert box.read("out/copy.txt") == "2" and str(space) in box.run("output", "copying").stdout
    first, second = (record["payload"] for record in box.log("copying") if record["kind"] == "run_finished")
    assert {name for name in first if first[name] != second.get(name)} <= {
        "run",
        "run_id",
        "usage",
        "output",
        "files",
        "written",
    }


def test_what_waits_ends_with_its_spec(box: Box) -> None:
    box.wait_at_rest("copying", runs=1)
    shell = wait_for_shell(box)
    (box.specs / "copying.yaml").unlink()
    eventually(lambda: not shell.is_running())


def test_what_waits_ends_with_the_daemon_however_that_ends(box: Box) -> None:
    """Nothing ran that is not on record, and the next daemon goes on."""
    box.wait_at_rest("copying", runs=1)
    shell = wait_for_shell(box)
    box.kill()
    eventually(lambda: not shell.is_running())
    box.start()
    box.save("orders/one", "2")
    box.wait_at_rest("copying", runs=2)
    shell = wait_for_shell(box)
    box.stop()
    eventually(lambda: not shell.is_running())
    assert not list((box.state / "staged.next").iterdir()) and not list(box.folder.rglob("*.next/*"))
