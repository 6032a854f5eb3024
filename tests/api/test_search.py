"""`search` over the wire: the records that contain the words, with the text around them."""

import pytest

from api.conftest import Speaker
from api.small_daemon import RunningDaemon, SmallDaemon, declare, reads
from wakeful.core.calls.call_types import Note, Remember


@pytest.fixture
def told(daemon: RunningDaemon) -> RunningDaemon:
    async def live(small: SmallDaemon) -> None:
        async def call(made: object, author: str = "person:ada") -> None:
            await small.call(made, author=author, key=None, run=None)  # type: ignore[arg-type]

        await small.declare(*(declare(name, reads("in", f"{name}.csv")) for name in ("payroll", "filing")))
        await call(Note(name="payroll", text="The tax office wants March " + "again and " * 30 + "again; wages rose"))
        await call(
            Remember(name="filing", key="office", value="Münster", rationale="the tax office moved"), "person:bob"
        )
        await call(Note(name="filing", text="an office, but no tax\x1b[2J"))

    daemon.do(live)
    return daemon


def found(speaker: Speaker, query: str) -> list[tuple[str, str]]:
    return [(line["session"], line["kind"]) for line in speaker.get(f"/search?{query}").lines]


def test_words_are_found_in_all_sessions_newest_first(told: RunningDaemon, speaker: Speaker) -> None:
    """A record must contain all words, in its payload or rationale. Case and accents do not matter."""
    assert found(speaker, "text=tax%20OFFICE") == [
        ("filing", "note_added"),
        ("filing", "fact_set"),
        ("payroll", "note_added"),
    ]
    assert found(speaker, "text=munster") == [("filing", "fact_set")]
    assert found(speaker, "text=wag*") == [("payroll", "note_added")]
    assert found(speaker, "text=%22tax%20office%22") == [("filing", "fact_set"), ("payroll", "note_added")]
    assert found(speaker, "text=nowhere") == []


def test_a_search_is_narrowed_by_session_kind_author_time_and_number(told: RunningDaemon, speaker: Speaker) -> None:
    """All bounds apply together."""
    assert found(speaker, "text=office&name=payroll") == [("payroll", "note_added")]
    assert (
        found(speaker, "text=office&kind=fact_set")
        == [("filing", "fact_set")]
        == found(speaker, "text=office&author=person:bob")
    )
    assert found(speaker, "text=office&last=1") == [("filing", "note_added")]
    assert found(speaker, "text=office&until=1h") == [] and len(found(speaker, "text=office&since=1h")) == 3


def test_the_text_around_the_word_is_shown(told: RunningDaemon, speaker: Speaker) -> None:
    """The excerpt is a short part of the text around the match."""
    (line,) = speaker.get("/search?text=wages").lines
    assert (
        line["excerpt"].startswith("…") and line["excerpt"].endswith("again; wages rose") and len(line["excerpt"]) < 100
    )
    assert speaker.get("/search?text=munster").lines[0]["excerpt"] == "Münster"
    assert list(line) == ["session", "id", "seq", "at", "kind", "author", "run", "payload", "hash", "excerpt"]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("", "at least one word"),
        ("text=***", "at least one"),
        ("text=x&last=9999", "at most 1000"),
        ("text=x&kind=y", "no kind"),
    ],
)
def test_a_search_for_nothing_is_refused_in_words(
    told: RunningDaemon, speaker: Speaker, query: str, words: str
) -> None:
    """The answer is an error, not an empty list."""
    reply = speaker.get(f"/search?{query}")
    assert reply.status == 400 and words in reply.error


def test_values_are_found_and_names_of_fields_are_not(told: RunningDaemon, speaker: Speaker) -> None:
    """`search` also finds values in JSON inside a text, such as the arguments of a tool.
    `log --text` also finds the names of fields that `log` shows."""
    arguments = '{"pattern": "rates-2026.csv", "most": [7, {"unit": "lines"}]}'
    told.do(lambda d: d.call(Note(name="payroll", text=arguments), author="person:ada", key=None, run=None))
    for word in ("pattern", "most", "unit", "payload", "rationale", "is_declared"):
        assert found(speaker, f"text={word}") == [], word
    assert speaker.get("/sessions/payroll/log?text=is_declared").lines == []
    assert [line["kind"] for line in speaker.get("/sessions/payroll/log?text=%22pattern%22").lines] == ["note_added"]
    for word in ("rates-2026.csv", "lines", "7"):
        assert found(speaker, f"text={word}&kind=note_added") == [("payroll", "note_added")], word


def test_the_text_with_the_most_of_the_words_is_shown(told: RunningDaemon, speaker: Speaker) -> None:
    """The binding is called `in`, but the excerpt is the file name, because it has more of the searched words."""
    assert {line["excerpt"] for line in speaker.get("/search?text=filing.csv&kind=spec_declared").lines} == {
        "filing.csv"
    }
