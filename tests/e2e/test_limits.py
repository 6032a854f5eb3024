"""Limits, people and retention: set in files, reread while the daemon runs, shown by `doctor` and `show`."""

from __future__ import annotations

import json
import pwd

from e2e.box import Box
from wait_conditions import eventually


def checks(box: Box, name: str) -> list[dict[str, str]]:
    return [check for check in json.loads(box.run("doctor", "--json").stdout) if check["name"] == name]


def test_doctor_prints_the_limits_and_who_is_above_one(box: Box) -> None:
    """Levels change while the daemon runs. A session above a level is named with its value, the level and what helps."""
    box.spec("desk", "objective: People talk here.")
    box.start()
    box.ask("remember", "desk", "rates", "x" * 2000)
    (limits,) = checks(box, "limits")
    assert "fact (one fact's value) 16 KiB warns, 256 KiB at most" in limits["words"] and not checks(box, "limit")
    box.write("wakeful.yaml", "limits: {fact: {warn: 1KB}}\n")
    (over,) = eventually(lambda: checks(box, "limit"))
    assert over["verdict"] == "warn" and over["words"] == "desk, one fact's value: 2,000 bytes, above 1,000 bytes"
    assert over["mend"] == "put long values in a file and remember its path"
    assert over["mend"] in " ".join(box.run("doctor").stdout.split())
    box.write("wakeful.yaml", "limits: {fact: {warn: 1GB, hard: 1MB}}\n")
    eventually(lambda: "is above the hard one" in box.run("doctor").stdout)
    assert checks(box, "limit"), "the last good levels hold"


def test_doctor_tells_people_the_limits_in_a_few_lines_and_how_much_is_kept(box: Box) -> None:
    """Each limit is a name and its two levels, which no line break separates.

    Only --json says what each limit is about.
    """
    box.spec("desk", "objective: People talk here.")
    box.start()
    shown = box.run("doctor").stdout
    told = shown[shown.index("limits: (warns/at most) ") :].split("\nok ")[0]
    assert "fact 16 KiB/256 KiB," in told and "kept_file 8 MiB," in told and "one fact's value" not in shown
    assert told.count("\n") <= 5 and max(map(len, told.splitlines())) <= 80
    assert "blobs: 0 contents and outputs of runs are kept, 0" in " ".join(shown.split())
    assert [check["verdict"] for check in checks(box, "blobs")] == ["good"]


def has_account(uid: int) -> bool:
    """Return whether the uid has an account. If it has one, the account's name is shown instead of the uid."""
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def test_people_and_retention_of_a_spec_are_shown(box: Box) -> None:
    """`show` says who may do what, and how long things are kept."""
    uid = next(number for number in range(61_000, 65_000) if not has_account(number))
    box.spec("desk", f"objective: x\npeople: {{ann: maintainer, {uid}: observer}}\nretention: {{keep: 90d, runs: 5}}\n")
    box.start()
    found = box.json("show", "desk")
    assert found["people"] == {str(uid): "observer", "ann": "maintainer"}
    assert found["retention"] == {"keep_seconds": 7776000.0, "runs": 5, "size_bytes": None}
    assert f"person:{uid} observer" in (shown := box.words("show", "desk")) and "person:ann maintainer" in shown
