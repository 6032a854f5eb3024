"""`why` on a session that does not run: what changed, what it waits for, and when it is tried next."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from e2e.box import Box
from wait_conditions import eventually

SPEC = "objective: Run.\nfirst: adopt\nbindings: {{a: {{file: a.txt{a}}}, b: {{file: b.txt}}}}\nrun: {{command: ['true']}}\n{more}"


def start(box: Box, more: str = "", a: str = "") -> None:
    box.write("a.txt", "1\n")
    box.write("b.txt", "1\n")
    box.spec("s", SPEC.format(a=a, more=more))
    box.start()
    eventually(lambda: "session_adopted" in box.kinds("s"))


def changed(box: Box, *names: str) -> bool:
    return box.json("why", "s")["changed"] == list(names)


def test_one_that_waits_for_all_says_what_came_and_what_is_missing(box: Box) -> None:
    start(box, "when: all\n")
    assert "Nothing it waits for has changed" in box.words("why", "s")
    box.write("a.txt", "2\n")
    eventually(lambda: changed(box, "a"))
    words = box.words("why", "s")
    assert "Changed: a; with `when: all` it runs when b changed, too." in words and "Nothing it waits for" not in words


def test_one_that_settles_says_until_when(box: Box) -> None:
    start(box, a=", settle: 50s, settle_max: 60s")
    box.write("a.txt", "2\n")
    found = eventually(lambda: (one := box.json("why", "s"))["next_try"] and one)
    assert "a is changing: it is looked at when it was quiet for 50 s" in " ".join(found["words"])
    assert "Its next try is at " in " ".join(found["words"])
    due = datetime.fromisoformat(found["next_try"])
    assert timedelta(0) < due - datetime.now(UTC) < timedelta(seconds=60)


def test_one_that_is_disabled_or_undeclared_says_so_with_what_changed(box: Box) -> None:
    start(box)
    box.spec("s", SPEC.format(a="", more="enabled: false\n"))
    box.wait_for("s", state="sleeping")
    box.write("a.txt", "2\n")
    eventually(lambda: changed(box, "a"))
    assert (
        "Changed meanwhile: a; these changes are kept for it. It runs when its spec says `enabled: true` again."
        in box.words("why", "s")
    )
    (box.specs / "s.yaml").unlink()
    eventually(lambda: "undeclared" in (box.row("s")["reason"] or ""))
    words = box.words("why", "s")
    assert "Changes from this time are found when the file is back" in words and "Nothing it waits for" not in words


def test_one_that_is_paced_or_outside_its_window_says_when_it_goes_on(box: Box) -> None:
    start(box, "pace: 1h\n")
    box.ask("activate", "s", "--wait")
    box.write("a.txt", "2\n")
    eventually(lambda: box.row("s")["queued"])
    found = box.json("why", "s")
    began = datetime.fromisoformat(box.row("s")["last_run"]["started_at"])
    assert abs(datetime.fromisoformat(found["next_try"]) - began - timedelta(hours=1)) < timedelta(seconds=1)
    words = " ".join(found["words"])
    assert (
        "It is owed a run, woken by a (file)" in words
        and "pace: at most one run every 3600s" in words
        and "Its next try is at" in words
    )
    now = datetime.now(UTC)
    opens, closes = now + timedelta(hours=3), now + timedelta(hours=4)
    box.spec("s", SPEC.format(a="", more=f"timezone: UTC\nwindow: '{opens:%H:%M}-{closes:%H:%M}'\n"))
    found = eventually(lambda: (one := box.json("why", "s"))["queued"].startswith("outside its window") and one)
    assert found["next_try"][11:16] == f"{opens:%H:%M}"


def test_one_that_backs_off_or_was_snoozed_says_when_it_goes_on(box: Box) -> None:
    start(box)
    box.ask("sleep", "s", "--for", "2h")
    box.write("a.txt", "2\n")
    eventually(lambda: box.row("s")["owed"])
    found = box.json("why", "s")
    assert timedelta(minutes=118) < datetime.fromisoformat(found["next_try"]) - datetime.now(UTC) < timedelta(hours=2)
    box.ask("sleep", "s")
    assert box.json("why", "s")["next_try"] is None
