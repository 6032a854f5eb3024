"""Text of others is data, never code: file names, refs, commit subjects and messages that a shell would obey.

The text goes through everything that a run is given: changed paths, causes, exported trees, environment and templates.
A canary file shows whether a shell read it. A control test gives the same names to a shell.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.box import Box
from git_repository import git

# Each name creates a file `sang` in the current folder of a shell that reads it.
HOSTILE = (
    "$(touch sang)",
    "`touch sang`",
    "a;touch sang",
    "a|touch sang",
    "a&touch sang&",
    "a\ntouch sang\n",
    "-rf",
    "--help",
    "a' ;touch sang; '",
    'a" ;touch sang; "',
    "${IFS}touch${IFS}sang",
    "*",
    "~root",
    "a\tb c",
    "!touch sang",
    ">sang",
)
# Git accepts these as branch names.
REFS = ("$(touch${IFS}sang)", "a;touch${IFS}sang", "`id>sang`", "a|b&c", "a'b\"c")
CHANGED = """
    objective: Note what changed.
    bindings:
      data: {file: "in/*", settle: 20ms}
    run:
      command: [python3, note.py, "literal $(touch sang) `touch sang` ; touch sang"]
      env: {SAID: "$(touch sang)"}
      retries: 0
"""
NOTE = """
import json, os, shutil, sys
from pathlib import Path
folder = Path("kept")
folder.mkdir(exist_ok=True)
changed = Path(os.environ["WAKEFUL_CHANGED"]).read_bytes()
(folder / "changed").write_bytes(changed)
shutil.copyfile(os.environ["WAKEFUL_CAUSES"], folder / "causes")
(folder / "words").write_text(json.dumps([sys.argv[1:], os.environ["SAID"]]))
if "WAKEFUL_BINDING_CODE" in os.environ:
    (folder / "tree").write_text(json.dumps(sorted(os.listdir(os.environ["WAKEFUL_BINDING_CODE"]))))
"""


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    made = Box(tmp_path)
    made.write("note.py", NOTE)
    yield made
    made.close()


def sang(box: Box) -> list[Path]:
    return [path for path in box.folder.rglob("sang") if box.state not in path.parents]


def test_the_canary_sings_where_a_shell_reads_a_name(tmp_path: Path) -> None:
    """A careless template would pass the names to a shell. The shell obeys several of them."""
    obeyed = 0
    for number, name in enumerate(HOSTILE):
        folder = tmp_path / str(number)
        folder.mkdir()
        subprocess.run(["sh", "-c", f"echo {name}"], cwd=folder, capture_output=True, timeout=60, check=False)
        obeyed += (folder / "sang").exists()
    assert obeyed >= 7


def test_names_of_files_reach_a_run_as_bytes_and_no_shell(box: Box) -> None:
    """The changed paths and the causes have each name whole, with line breaks.

    Arguments and environment are not expanded.
    """
    for name in HOSTILE:
        box.write(f"in/{name}", "1")
    box.spec("note", CHANGED)
    box.start()
    box.wait_at_rest("note", runs=1)
    with box.held_still():
        for name in HOSTILE:
            box.write(f"in/{name}", "22")
    box.wait_at_rest("note", runs=2)
    box.ask("activate", "note")
    box.wait_at_rest("note", runs=3)
    with box.held_still():
        for name in HOSTILE:
            (box.folder / "in" / name).unlink()
    box.wait_at_rest("note", runs=4)
    listed = (box.folder / "kept/changed").read_bytes().split(b"\0")
    assert {f"in/{name}".encode() for name in HOSTILE} <= set(listed) and listed[-1] == b""
    told = {path["path"] for cause in json.loads(box.read("kept/causes"))["causes"] for path in cause.get("paths", [])}
    assert {f"in/{name}" for name in HOSTILE} <= told
    assert json.loads(box.read("kept/words")) == [["literal $(touch sang) `touch sang` ; touch sang"], "$(touch sang)"]
    for words in (
        ("why", f"in/{HOSTILE[0]}"),
        ("plan", *(f"./in/{name}" for name in HOSTILE)),
        ("show", "note"),
        ("log", "note"),
        ("output", "note"),
        ("export",),
    ):
        box.run(*words)
    assert sang(box) == []


def test_refs_subjects_and_trees_reach_a_run_as_data(box: Box) -> None:
    """A branch, a commit message and the files of an exported tree have names that a shell would obey."""
    git(box.folder, "init", "-q", "-b", "main")
    for name in HOSTILE:
        box.write(f"src/{name}", "1")
    git(box.folder, "add", "-A", "src")
    git(box.folder, "commit", "-q", "-m", "first")
    for number, ref in enumerate(REFS):
        git(box.folder, "branch", ref)
        box.spec(
            f"ref{number}",
            CHANGED.replace(
                "bindings:",
                f"bindings:\n      code: {{commits: src/, branch: {json.dumps(ref)}, settle: 20ms, export: true}}",
            ),
        )
    box.write("in/x", "1")
    box.start()
    for number, _ in enumerate(REFS):
        box.wait_at_rest(f"ref{number}", runs=1)
    assert set(json.loads(box.read("kept/tree"))) == set(HOSTILE)
    before = box.row("ref0")["runs"]
    git(box.folder, "checkout", "-q", REFS[0])
    box.write("src/-rf", "2")
    git(box.folder, "commit", "-q", "-a", "-m", "; touch sang\n\n$(touch sang)\n-rf /")
    box.wait_at_rest("ref0", runs=before + 1)
    assert "touch sang" in box.read("kept/causes")
    assert sang(box) == []


def test_messages_notes_and_facts_reach_a_run_as_data(box: Box) -> None:
    """A message is in the log exactly as it was sent."""
    box.spec("note", CHANGED)
    box.write("in/x", "1")
    box.start()
    runs = box.wait_at_rest("note", runs=1)["runs"]
    text = "\n".join(HOSTILE)
    box.ask("send", "note", text)
    box.wait_at_rest("note", runs=runs + 1)
    box.ask("note", "note", "--", "$(touch sang)\n`touch sang`")
    box.ask("remember", "note", "--", "$(touch sang)", "; touch sang")
    (sent,) = [record["payload"]["text"] for record in box.log("note") if record["kind"] == "message_added"]
    assert sent == text
    assert sang(box) == []


def test_a_template_gives_a_name_to_a_program_and_never_to_a_shell(box: Box) -> None:
    """`{path}` in a command stays one argument, whatever the file's name is. In `sh -c` it is refused."""
    tickets = [f"tickets/{name}" for name in ("$(touch sang).md", "a;touch sang.md", "a' b.md")]
    for ticket in tickets:
        box.write(ticket, "1")
    box.spec(
        "ticket@",
        'for_each: tickets/*.md\nobjective: One.\nbindings: {t: {file: "{path}", settle: 20ms}}\nrun: {command: [python3, show.py, "{path}"], retries: 0}\n',
    )
    box.write("show.py", "import json, sys\nwith open('seen', 'a') as out: print(json.dumps(sys.argv[1:]), file=out)\n")
    box.spec("shell@", 'for_each: tickets/*.md\nobjective: One.\nrun: {command: [sh, -c, "cat {path}"], retries: 0}\n')
    box.start()
    names = [row["name"] for row in box.rows() if row["name"].startswith("ticket")]
    for name in names:
        box.wait_at_rest(name, runs=1)
    assert sang(box) == []
    assert not [row for row in box.rows() if row["name"].startswith("shell")]
    assert sorted(map(json.loads, box.lines("seen"))) == sorted([ticket] for ticket in tickets)
