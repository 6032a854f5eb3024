"""If a file's name is a secret's value, the name is nowhere in the state folder.

If the daemon does not know that the value is a secret, the name is in many places.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ordinary_user import OrdinaryBox, OrdinaryUser
from wait_conditions import eventually
from wakeful.runners.isolation.bubblewrap import find_obstacle

VALUE = "cnry-7QfR2x9ZkL0vw4TnB8s"
STRICT = find_obstacle()
# The run reads a file of that name. It makes one among its outputs, and one that no binding declares.
SPEC = """
objective: Handle what is called by the value.
isolation: {level}
secrets: [canary]
bindings:
  data:   {{file: "data/*"}}
  made:   {{file: "made/*", access: write}}
  result: {{file: out/result.txt, access: write}}
run: {{script: 'cat data/*; cp data/* made/; echo x > out/result.txt; echo x > "out/beside-$(cat "$WAKEFUL_SECRET_CANARY")"; ls made', retries: 0, {workspace}}}
"""
FAILING = """
objective: Fail over it.
secrets: [canary]
bindings: {data: {file: "data/*"}}
run: {script: 'cat "other/$(cat "$WAKEFUL_SECRET_CANARY")"', retries: 0}
"""


class NamingBox(OrdinaryBox):
    """An ordinary user's box. Its project has a file whose name is the secret's value."""

    def keep(self, name: str, value: str) -> None:
        folder = self.user.home / ".config" / "wakeful" / "secrets"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(value)
        for path in (folder, folder / name):
            path.chmod(0o700 if path.is_dir() else 0o600)
        self.user.give(self.user.home)

    def find_value(self) -> set[str]:
        """Return the parts of the state folder that have the value in a file or in a name.

        Scratch folders are left out, and so are staged outputs while the daemon lives, because they belong to runs.
        """
        places_of_runs = {"scratch", "staged"} if self.daemon is not None else {"scratch"}
        found = set()
        # `os.walk` skips the run folders that are removed meanwhile.
        for folder, _, files in os.walk(self.state):
            for path in (Path(folder), *(Path(folder, name) for name in files)):
                name = path.relative_to(self.state)
                if (
                    places_of_runs.isdisjoint(name.parts)
                    and name.parts
                    and (VALUE in str(name) or VALUE.encode() in _read(path))
                ):
                    found.add(name.parts[0])
        return found


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes() if path.is_file() else b""
    except FileNotFoundError:
        return b""


@pytest.fixture
def naming_box(tmp_path: Path, ordinary_user: OrdinaryUser) -> Iterator[NamingBox]:
    folder = tmp_path / "project"
    folder.mkdir()
    made = NamingBox(folder, ordinary_user)
    yield made
    made.close()


def work(box: NamingBox, level: str, workspace: str) -> set[str]:
    """Make two runs, a failed run, a trace if possible, and stop.

    Return the places that had the value at any moment.
    """
    box.write(f"data/{VALUE}.txt", "first")
    box.write(f"other/{VALUE}", "not bound")
    (box.folder / "made").mkdir()
    (box.folder / "out").mkdir()
    box.spec("names", SPEC.format(level=level, workspace=workspace))
    box.spec("fails", FAILING)
    box.start()
    box.wait_at_rest("names", runs=1)
    box.wait_at_rest("fails", runs=1)
    assert box.row("names")["last_run"]["outcome"] == "succeeded", box.ask("output", "names")
    found = box.find_value()
    with box.user.acting():
        box.write(f"data/{VALUE}.txt", "second")
    box.wait_at_rest("names", runs=2)
    box.run("trace", "fails")
    box.run("save", "names", "-o", "saved.wakeful")
    # The daemon writes its cache when nothing changes for a while.
    eventually(lambda: (box.state / "cache.db").exists())
    found |= box.find_value()
    box.stop()
    return found | box.find_value()


CASES = [
    pytest.param("standard", "", id="standard"),
    pytest.param("standard", "workspace: copy", id="workspace", marks=pytest.mark.long),
    pytest.param(
        "strict", "", id="strict", marks=pytest.mark.skipif(STRICT is not None, reason=f"NOT TESTED: {STRICT}")
    ),
]


@pytest.mark.parametrize(("level", "workspace"), CASES)
def test_a_name_that_holds_a_secret_is_nowhere_in_the_state_folder(
    naming_box: NamingBox, level: str, workspace: str
) -> None:
    naming_box.keep("canary", VALUE)
    assert work(naming_box, level, workspace) == set()


def test_the_same_name_is_kept_where_nobody_knows_that_it_is_a_secret(naming_box: NamingBox) -> None:
    """This proves that the search works: here the session's secret is another value."""
    naming_box.keep("canary", "quite-another-value-1234")
    found = work(naming_box, "standard", "")
    assert any(name.startswith("log") for name in found) and any(name.startswith("cache.db") for name in found), found
