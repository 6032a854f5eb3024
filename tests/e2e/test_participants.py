"""Several authors in one session: who did what, live and afterwards."""

from __future__ import annotations

import getpass
import subprocess

from e2e.box import WAKEFUL, Box
from wait_conditions import PATIENCE_SECONDS, eventually


def test_people_and_runs_are_told_apart(box: Box) -> None:
    """A person and a run both leave a note.

    `show` counts each author, `follow` names them live, and the log has the author of every record.
    """
    box.write("in.txt", "1\n")
    box.spec(
        "words",
        f"""
        people: {{{getpass.getuser()}: maintainer, nobody-yet: observer}}
        bindings: {{input: {{file: in.txt, settle: 10ms}}}}
        run: {{script: "wakeful note counted\\n"}}
        """,
    )
    box.start()
    box.wait_at_rest("words", runs=1)
    me = f"person:{getpass.getuser()}"
    with (box.folder / "followed").open("wb") as out:
        following = subprocess.Popen([WAKEFUL, "follow", "words"], stdout=out, cwd=box.folder, env=box.environment())
    try:
        # `follow` does not show a note that was made before it listens.
        eventually(lambda: box.ask("note", "words", "seen") and box.read("followed"))
    finally:
        following.terminate()
        following.wait(PATIENCE_SECONDS)
    assert box.lines("followed")[0].endswith(f"words  hand-off: seen  ({me})")
    found = {one["author"]: (one["role"], one["records"]) for one in box.json("show", "words")["participants"]}
    assert found[me] == ("maintainer", len(box.log("words", "--author", me)))
    assert found["run:words"] == (None, 1) and found["person:nobody-yet"] == ("observer", 0)
    table = box.ask("show", "words").partition("PARTICIPANT")[2]
    assert "maintainer" in table and "never" in table and all(len(row) <= 80 for row in table.splitlines())
