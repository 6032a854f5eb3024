"""How rows become lines of `list`: the sessions of a template are one line with a summary."""

from __future__ import annotations

import pytest

from wakeful.cli import selection
from wakeful.cli import session_table as listing
from wakeful.core.spec import session as spec


def row(
    name: str, state: str = "suspended", runs: int = 1, outcome: str | None = "succeeded", at: int | None = 5
) -> list[object]:
    return [name, state, runs, outcome, at, "", None, None, None]


def slotted(name: str, next_at: int) -> list[object]:
    return [*row(name)[:6], "next slot", next_at, None]


def test_two_or_more_sessions_of_a_template_are_one_row() -> None:
    """The group stands in the place of its first session, with the sum of the runs and the latest run."""
    rows = [
        row("a"),
        row("t@1", at=3),
        row("t@2", "running", 4, "failed", 9),
        row("t@3", runs=0, outcome=None, at=None),
        row("u@1"),
        row("z"),
    ]
    assert listing.group_rows(rows) == [
        row("a"),
        ["t@", "mixed", 5, "failed", 9, "(3 sessions: 2 suspended, 1 running; 1 failed)", None, None, None],
        row("u@1"),
        row("z"),
    ]


def test_a_state_that_all_have_is_the_state_of_the_group() -> None:
    """If no session ran yet, the group has no last run."""
    rows = [row(f"hr/t@{n}", runs=0, outcome=None, at=None) for n in range(1000)]
    assert listing.group_rows(rows) == [
        ["hr/t@", "suspended", 0, None, None, "(1,000 sessions: 1,000 suspended)", None, None, None]
    ]


@pytest.mark.parametrize("name", ["ticket@17", "hr/ticket@a@b", "ticket@", "plain", "a@b/plain", "", "/@", "@x"])
def test_a_list_knows_templates_as_the_core_does(name: str) -> None:
    """The command line has a second implementation, because importing the core's takes too long. Both agree."""
    assert selection.find_template(name) == spec.find_template(name)


@pytest.mark.parametrize(
    ("name", "names", "is_meant"),
    [
        ("t@1", ("t@",), True),
        ("t@1", ("t@1",), True),
        ("t@1", ("t",), False),
        ("t", ("t@",), False),
        ("hr/t@1", ("t@",), False),
        ("t@1", ("t@*",), True),
        ("t@12", ("t@?",), False),
        ("hr/t@1", ("hr/*",), True),
        ("hr/a/b", ("hr/*",), True),
        ("T@1", ("t@*",), False),
        ("t@7", ("t@[1-5]", "u"), False),
    ],
)
def test_a_template_s_name_means_its_sessions(name: str, names: tuple[str, ...], is_meant: bool) -> None:
    """A name of a template or a pattern matches no other sessions."""
    assert selection.is_meant(name, names) is is_meant


def test_a_group_tells_the_first_slot_to_come() -> None:
    """The group shows the earliest slot of its sessions."""
    assert listing.group_rows([slotted("t@1", 90), slotted("t@2", 60), row("t@3")])[0][6:8] == ["next slot", 60]


@pytest.mark.parametrize(
    ("remark", "next_word", "told"),
    [
        ("holidays", "goes on", "goes on in 2 h: holidays"),
        (
            "queued: pace: at most one run every 3600s",
            "next start",
            "queued: in 2 h (pace: at most one run every 3600s)",
        ),
        ("", "next slot", "next in 2 h"),
        ("failed: exit code 1", "next slot", "failed: exit code 1; next in 2 h"),
    ],
)
def test_a_remark_says_how_long_it_lasts(remark: str, next_word: str, told: str) -> None:
    """The time comes before the words, which a narrow screen cuts."""
    assert listing.say_next(remark, next_word, -7200.0) == told
