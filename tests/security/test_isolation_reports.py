"""Isolation as people see it: in list, show, doctor and the record."""

from __future__ import annotations

import json

from security.conftest import Attack


def test_who_is_not_isolated_is_seen_at_a_glance(attack: Attack) -> None:
    """`list`, `show` and `doctor` show it. `doctor` also shows what this machine cannot enforce."""
    (attack.project / "letter.txt").write_text("nothing new")
    attack.carry_out(do="read", path=str(attack.project / "letter.txt"))
    assert "not isolated" in next(line for line in attack.ask("list").splitlines() if line.startswith("open"))
    assert "not isolated" not in next(line for line in attack.ask("list").splitlines() if line.startswith("shut"))
    assert "reach everything that you can" in attack.words("show", "open")
    confinement = attack.json("show", "shut")["confinement"]
    # The places that a run reads, and the line of the spec that grants each.
    assert {one["by"] for one in confinement.pop("reads")} >= {"binding mail", "output result"}
    assert confinement == {
        "isolation": "standard",
        "network": False,
        "fetch": [],
        "allow": {"read": [], "write": []},
        "workspace": None,
    }
    told = [
        check["words"] for check in json.loads(attack.run("doctor", "--json").stdout) if check["name"] == "isolation"
    ]
    assert any(words.startswith("Landlock ABI") and "sockets that are files" in words for words in told)
    assert any(words == "open runs without any isolation" for words in told)


def test_isolation_none_waits_for_the_operator(attack: Attack) -> None:
    """Without allow_unisolated the session sleeps with a reason, also when activated.

    With it, the session runs without a restart.
    """
    (attack.project / "wakeful.yaml").write_text("concurrency: 4\n")
    attack.declare("open", "none", do="read", path="open.json")
    attack.start()
    attack.ask("activate", "open")
    row = attack.row("open")
    assert (row["state"], row["runs"]) == ("sleeping", 0)
    assert "allow_unisolated: true in wakeful.yaml" in row["reason"]
    (attack.project / "wakeful.yaml").write_text("allow_unisolated: true\n")
    attack.settle("open", runs=1)
    assert attack.outcome("open") == "succeeded"


def test_what_no_run_may_change_cannot_be_asked_for(attack: Attack) -> None:
    """Neither an output nor `allow` may name them. The refusal has the line and column."""
    attack.spec_raw("sly", "objective: x\nallow: {write: [sessions.d]}\nrun: {command: ['true']}\n")
    attack.spec_raw(
        "sly2", "objective: x\nbindings: {o: {file: ../state/log.db, access: write}}\nrun: {command: ['true']}\n"
    )
    attack.start()
    told = " ".join(attack.run("doctor").stdout.split())
    assert told.count("which no run may change") == 2
    assert "sly.yaml:2:17" in told
    assert {row["name"] for row in attack.rows()} & {"sly", "sly2"} == set()
