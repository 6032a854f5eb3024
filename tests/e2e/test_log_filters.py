"""Filters of a log: failed runs, records that contain a word, and the state's hash at a position."""

from __future__ import annotations

import json

from e2e.box import Box


def test_a_log_is_filtered_by_outcome_and_text_and_tells_the_states_hash(box: Box) -> None:
    """`log` and `history` filter alike. A hash is the same in `log`, in `history` and in `show --at`, and after a restart."""
    box.write("in.txt", "1\n")
    box.spec(
        "work",
        "objective: Try.\nbindings: {i: {file: in.txt}}\nrun: {script: 'test \"$(cat in.txt)\" = 2', retries: 0}\n",
    )
    box.start()
    box.wait_for("work", state="sleeping")
    box.ask("remember", "work", "office", "Münster", "--because", "the tax office moved")
    box.ask("note", "work", "next: ask the Office again")
    box.write("in.txt", "2\n")
    box.wait_at_rest("work", runs=2)
    assert [(one["run"], one["payload"]["outcome"]) for one in box.log("work", "--outcome", "failed")] == [
        (1, "failed")
    ]
    assert [one["run"] for one in box.log("work", "--outcome", "succeeded", "--last", "1")] == [2]
    assert [one["kind"] for one in box.log("work", "--text", "OFFICE")] == ["fact_set", "note_added"]
    assert [one["kind"] for one in box.log("work", "--text", "munster")] == ["fact_set"]
    assert [one["kind"] for one in box.log("work", "--text", "run 1 failed")] == ["run_finished"]
    assert box.log("work", "--text", "is_final") == []
    assert "run 1 failed" in box.ask("history", "work", "--outcome", "failed") and "run 2" not in box.ask(
        "history", "work", "--outcome", "failed"
    )
    assert [
        json.loads(line)["kind"]
        for line in box.ask("history", "work", "--text", "office", "--last", "1", "--json").splitlines()
    ] == ["note_added"]
    assert len(box.ask("history", "work", "--from", "2", "--to", "4", "--since", "1h").splitlines()) == 3
    nothing = box.run("log", "work", "--text", "nowhere")
    assert (nothing.returncode, nothing.stdout, nothing.stderr) == (0, "", "no such records\n")
    refused = box.run("log", "work", "--outcome", "failed", "--kind", "note_added")
    assert refused.returncode == 1 and "only run_finished has an outcome" in refused.stderr
    assert box.run("log", "work", "--outcome", "broken").returncode == 2
    hashes = {one["seq"]: one["state_hash"] for one in box.log("work", "--state-hash")}
    assert "state_hash" not in box.log("work")[0] and len(set(hashes.values())) == len(hashes)
    told = [json.loads(line) for line in box.ask("history", "work", "--state-hash", "--json").splitlines()]
    assert {one["seq"]: one["state_hash"] for one in told} == hashes
    some = sorted(hashes)[:: max(1, len(hashes) // 4)]
    for seq in (*some, max(hashes)):
        assert box.json("show", "work", "--at", str(seq))["state_hash"] == hashes[seq]
    assert f"state        {hashes[some[1]]}" in box.ask("show", "work", "--at", str(some[1]))
    assert hashes[some[1]][:12] in box.ask("log", "work", "--state-hash", "--from", str(some[1]), "--to", str(some[1]))
    assert box.json("show", "work")["state_hash"] == hashes[max(hashes)]
    box.stop()
    box.start()
    again = {one["seq"]: one["state_hash"] for one in box.log("work", "--state-hash")}
    assert {seq: again[seq] for seq in hashes} == hashes
