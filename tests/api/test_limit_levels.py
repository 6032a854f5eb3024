"""The limits in `doctor`, computed from the state alone."""

from __future__ import annotations

from msgspec.structs import replace

from wakeful.core.record.knowledge import Conversation, Fact
from wakeful.core.record.state import Declaration, Session, Terminated
from wakeful.core.spec.limits import Levels, Limits
from wakeful.core.spec.session import CommandRun, SessionSpec
from wakeful.views.limit_levels import MOST_SHOWN, view_limits

SPEC = SessionSpec(name="s", root="/", run=CommandRun(argv=("true",)))
QUIET = Session(id="1", name="s", opened_at=0, spec=SPEC, declaration=Declaration(is_declared=True))


def over(session: Session, limits: Limits | None = None) -> list[tuple[str, str]]:
    return [(one["limit"], one["level"]) for one in view_limits(limits or Limits(), [session])["over"]]


def test_what_is_below_every_level_is_not_named() -> None:
    """The answer always lists the levels themselves."""
    found = view_limits(Limits(), [QUIET])
    assert found["over"] == [] and found["over_count"] == 0
    assert found["levels"]["mailbox"] == {
        "what": "messages a session has not seen",
        "warn": 1000,
        "hard": 10000,
        "words": "1,000 warns, 10,000 at most",
    }


def test_each_amount_of_the_state_is_weighed() -> None:
    """An amount is over a level if it is above it, not equal to it."""
    facts = {f"k{n}": Fact(key=f"k{n}", value="x" * 5, author="a", seq=1) for n in range(3)}
    heavy = replace(
        QUIET,
        knowledge=replace(QUIET.knowledge, facts=facts, handoff="é" * 5, conversation=Conversation(size_bytes=9)),
        seq=9,
        mailbox=replace(QUIET.mailbox, position=12),
        marks=replace(QUIET.marks, seen={"message": "3"}),
    )
    tight = Limits(
        fact=Levels(4, 9),
        facts=Levels(2, 9),
        note=Levels(9, 9),
        conversation=Levels(9, 20),
        records=Levels(8, 8),
        mailbox=Levels(8, 20),
    )
    assert over(heavy, tight) == [
        ("note", "hard"),
        ("records", "hard"),
        ("fact", "warn"),
        ("facts", "warn"),
        ("mailbox", "warn"),
    ]


def test_what_nobody_reads_is_no_backlog_and_what_is_closed_asks_for_nothing() -> None:
    """A session without a run keeps its messages as a record, so its full mailbox is no backlog. A closed one is not
    named."""
    full = replace(QUIET, mailbox=replace(QUIET.mailbox, position=5000))
    assert over(full) == [("mailbox", "warn")]
    assert over(replace(full, spec=replace(SPEC, run=None))) == []
    assert over(replace(full, closed=Terminated())) == []


def test_a_thousand_sessions_above_a_level_are_counted() -> None:
    """The list is cut at MOST_SHOWN, with the worst first, and the count is complete."""
    many = [
        replace(QUIET, name=f"s{n}", mailbox=replace(QUIET.mailbox, position=20_000 if n == 500 else 2_000))
        for n in range(1000)
    ]
    found = view_limits(Limits(), many)
    assert (len(found["over"]), found["over_count"]) == (MOST_SHOWN, 1000)
    assert (
        found["over"][0]["words"] == "messages a session has not seen: 20,000, above 10,000"
        and found["over"][0]["session"] == "s500"
    )
