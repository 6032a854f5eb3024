"""The summary that needs no model: what it keeps, that it repeats nothing, and that it counts what it leaves out."""

from __future__ import annotations

import pytest

from wakeful.core.agents.rule_summary import LONGEST_DIGEST, Message, digest_messages, read_summary

TALK = [
    ("ada", "Please look at billing/rates.csv. Which rate holds from July on?"),
    ("docs", "It names two rates. We decided to use 4.6, because Grace Hopper confirmed it in PAY-311."),
    ("bob", "Which rate holds from July on?"),
    ("docs", "The function `net_pay` reads it.\nThe page is written."),
]


def say(*talk: tuple[str, str], first: int = 1) -> list[Message]:
    return [
        Message(session="s", seq=number, at=0, author=author, text=text)
        for number, (author, text) in enumerate(talk, first)
    ]


def test_decisions_open_questions_and_names_are_kept() -> None:
    made = read_summary(digest_messages(say(*TALK), objective="Keep it true."))
    assert made.open_questions == ("[1] ada: Which rate holds from July on?",)
    assert made.decisions == ("[2] docs: We decided to use 4.6, because Grace Hopper confirmed it in PAY-311.",)
    assert {"billing/rates.csv", "Grace Hopper", "PAY-311", "net_pay"} <= set(made.names)


def test_nothing_is_listed_twice_however_often_a_conversation_is_made_shorter() -> None:
    """The lists of the earlier summary go into the new lists, and appear only there."""
    first = digest_messages(say(*TALK), objective="Keep it true.")
    again = digest_messages(say(*TALK, first=40), objective="Keep it true.", earlier=first)
    third = digest_messages(say(("ada", "Go on."), first=60), objective="Keep it true.", earlier=again)
    for told in (first, again, third):
        assert [
            told.count(words)
            for words in (
                "Which rate holds",
                "We decided to use 4.6",
                "billing/rates.csv\n",
                "Objective: Keep it true.",
            )
        ] == [1, 1, 1, 1], told
    assert "The page is written." in third


def test_lists_of_a_models_summary_outlast_the_rule() -> None:
    earlier = "Objective: Keep it true.\n\nOpen questions:\n- Who signs?\n\nThe page is half done.\n\nDecisions:\n- Use 4.6.\n\nFiles:\n- page.md: the page"
    told = digest_messages(say(("ada", "Go on.")), objective="Keep it true.", earlier=earlier)
    made = read_summary(told)
    assert (
        made.open_questions == ("Who signs?",) and made.decisions == ("Use 4.6.",) and "page.md: the page" in made.names
    )
    assert "The page is half done." in told


def test_a_summary_of_an_earlier_release_is_read() -> None:
    earlier = "Objective: x\n4 messages, records 1 to 4, from ada (4).\n\nQuestions asked:\n- [3] ada: Who signs?\n\nPaths named:\n- a/b.py\n\nSaid:\n- [1] ada: hello"
    made = read_summary(digest_messages(say(("ada", "Go on."), first=9), objective="x", earlier=earlier))
    assert made.open_questions == ("[3] ada: Who signs?",) and "a/b.py" in made.names


def test_it_stays_within_its_bound_and_counts_what_it_leaves_out() -> None:
    many = say(
        *(
            (
                f"ada{number % 3}",
                f"Is case {number} open? We decided case {number} {'so ' * 20}in cases/{number}.md. And more words {number}.",
            )
            for number in range(500)
        )
    )
    told = digest_messages(many, objective="Keep it true.")
    assert len(told) <= LONGEST_DIGEST
    assert "Is case 499 open?" in told and "We decided case 499" in told and "cases/499.md" in told
    # One line each for open questions, decisions, names and messages.
    assert told.count("older ones are in the log)") == 4


@pytest.mark.parametrize("piece", ["A-", "a.b/", "a_", "x Aa ", "`", "@-", "[1] ", "1 message, from "])
def test_no_text_takes_more_than_its_length(piece: str) -> None:
    """The digest takes linear time. A backtracking search would take minutes on these texts."""
    text = piece * (300_000 // len(piece))
    assert len(digest_messages(say(("ada", text)), objective=None, earlier=text[:100_000])) <= LONGEST_DIGEST
