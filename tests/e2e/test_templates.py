"""Templates: sessions that come, rest and go with files."""

from __future__ import annotations

import json

from e2e.box import Box
from wait_conditions import eventually

TICKET = """
    for_each: tickets/*.md
    objective: Answer {stem}.
    bindings:
      ticket: {file: "{path}"}
    run: {command: [sh, -c, 'echo "$1" >> ledger.txt', sh, "{stem}"]}
"""


def names(box: Box) -> list[str]:
    return [row["name"] for row in box.rows()]


def test_sessions_come_go_and_go_on_where_they_were_with_their_files(box: Box) -> None:
    """If a file vanishes, its session sleeps as undeclared. The same file back owes nothing, and a changed one runs."""
    box.spec("ticket@", TICKET)
    box.start()
    assert names(box) == []
    box.write("tickets/17.md", "help")
    eventually(lambda: names(box) == ["ticket@17"])
    box.wait_at_rest("ticket@17", runs=1)
    box.write("tickets/18.md", "me too")
    eventually(lambda: "ticket@18" in names(box))
    box.wait_at_rest("ticket@18", runs=1)
    box.ask("remember", "ticket@17", "customer", "Ann")

    (box.folder / "tickets/17.md").rename(box.folder / "tickets/17.away")
    row = box.wait_for("ticket@17", state="sleeping")
    assert row["reason"].startswith("undeclared")
    assert "1 more is terminated or undeclared" in box.ask("list") and "ticket@17" not in box.ask("list")
    assert (
        box.ask("sleep", "ticket@", "--for", "2h") == "ticket@18: sleeps\n"
        and box.ask("resume", "ticket@*") == "ticket@18: resumed\n"
    )
    (box.folder / "tickets/17.away").rename(box.folder / "tickets/17.md")
    box.wait_for("ticket@17", state="suspended")
    assert box.wait_at_rest("ticket@17")["runs"] == 1 and box.ask("recall", "ticket@17", "customer").strip() == "Ann"
    box.write("tickets/17.md", "help again")
    box.wait_at_rest("ticket@17", runs=2)
    assert box.lines("ledger.txt") == ["17", "18", "17"]


def test_a_template_that_cannot_be_read_leaves_its_sessions_as_they_are(box: Box) -> None:
    """A typing error undeclares no session, also after a restart."""
    good = box.spec("ticket@", TICKET)
    box.write("tickets/a.md", "a")
    box.write("tickets/b.md", "b")
    box.start()
    for name in ("ticket@a", "ticket@b"):
        box.wait_at_rest(name, runs=1)
    text = good.read_text()
    good.write_text(text.replace("{stem}.", "{steam}."))
    eventually(lambda: "{steam} is not known" in box.ask("list"))
    assert [row["state"] for row in box.rows()] == ["suspended", "suspended"]
    box.stop()
    box.start()
    assert [row["state"] for row in box.rows()] == ["suspended", "suspended"]
    box.write("tickets/a.md", "still alive")
    box.wait_at_rest("ticket@a", runs=2)
    good.write_text(text)
    eventually(lambda: "refused" not in box.ask("list"))
    assert [row["runs"] for row in box.rows()] == [2, 1]


def test_list_groups_the_sessions_of_a_template_unless_asked(box: Box) -> None:
    """They are one line. --all, the template's name and --json show each session."""
    box.spec("ticket@", TICKET)
    box.spec("other", "objective: x")
    for number in range(5):
        box.write(f"tickets/{number}.md", str(number))
    box.start()
    for number in range(5):
        box.wait_at_rest(f"ticket@{number}", runs=1)
    grouped = box.ask("list").splitlines()
    assert len(grouped) == 3 and grouped[2].startswith("ticket@ ") and "(5 sessions: 5 suspended)" in grouped[2]
    assert len(box.ask("list", "--all").splitlines()) == 7
    assert [line.split()[0] for line in box.ask("list", "ticket@").splitlines()[1:]] == [
        f"ticket@{n}" for n in range(5)
    ]
    assert [line.split()[0] for line in box.ask("list", "ticket@3").splitlines()[1:]] == ["ticket@3"]
    assert len(box.json("list")) == 6 and len(json.loads(box.ask("list", "other", "--json"))) == 1
    nobody = box.run("list", "nobody")
    assert nobody.returncode == 1 and "no session is called nobody" in nobody.stderr


def test_check_plan_and_why_know_the_sessions_of_a_template(box: Box) -> None:
    """They are sessions like any other."""
    box.spec("ticket@", TICKET)
    box.write("tickets/a.md", "a")
    assert "ticket@: 1 session: ticket@a" in box.ask("check", "sessions.d/ticket@.yaml")
    box.start()
    box.wait_at_rest("ticket@a", runs=1)
    assert "ticket@a" in box.ask("plan", "tickets/a.md")
    assert "ticket@a" in box.ask("why", "tickets/a.md")
    assert "Run 1 succeeded" in box.words("why", "ticket@a")


def test_odd_file_names_are_told_and_harm_nobody(box: Box) -> None:
    """The names have a line break, bytes that are no UTF-8, the look of an option, and spaces."""
    box.spec("ticket@", TICKET)
    box.write("tickets/two words.md", "x")
    with open(bytes(box.folder) + b"/tickets/\xff\n.md", "wb"), open(bytes(box.folder) + b"/tickets/-rf.md", "wb"):
        box.start()
    box.wait_at_rest("ticket@two-words", runs=1)
    assert box.lines("ledger.txt") == ["two words"]
    assert "(and 1 more: wakeful check)" in box.words("list")
    assert box.run("check").returncode == 1


def test_a_folder_that_comes_later_is_heard(box: Box) -> None:
    """The folder of the glob need not exist when the template is written."""
    box.spec("ticket@", TICKET.replace("tickets/*.md", "deep/er/**/*.md"))
    box.start()
    box.write("deep/er/still/a.md", "a")
    eventually(lambda: names(box) == ["ticket@a"])
    box.wait_at_rest("ticket@a", runs=1)
