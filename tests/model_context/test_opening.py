"""The opening of a run: its parts in a fixed order, without repetition.

A conversation that goes on gets only what is new.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from model_context.recorded_session import ADA, AGENT, Talk, World, make_call, make_cause
from wakeful.core.agents.turns import Answered, Asked
from wakeful.core.record import events as ev
from wakeful.core.record.knowledge import RecordRange, split_stretches
from wakeful.core.spec.agent import TokenWindow
from wakeful.core.spec.bindings import FileBinding
from wakeful.errors import InternalError
from wakeful.model_context.project_rules import read_nested_rules


def name_parts(talk: Talk) -> list[str]:
    return [part.name for part in talk.assemble().opening]


def test_parts_stand_in_their_order(world: World) -> None:
    """The order of the design: rules, role, objective, guide; facts, hand-off, changes, memory, messages, prompt."""
    world.write("AGENTS.md", "Write short sentences.")
    talk = world.open()
    talk.add(ev.FactSet(key="style", value="terse", rationale="she said so"), ADA)
    talk.add(ev.NoteAdded(text="next: the second page"), "run:pages#1")
    talk.add(ev.MemorySet(key="step", value="two"))
    talk.say("please look at the title")
    talk.start(make_cause("code", "file", "v2", "src/a.py"), is_fresh=False)
    found = talk.assemble()
    assert [part.name for part in found.instructions] == ["rules", "agent", "objective", "guide"]
    assert [part.name for part in found.opening] == ["facts", "hand-off", "changes", "memory", "messages", "prompt"]
    assert "Write short sentences." in found.instructions_text and "You keep pages true." in found.instructions_text
    text = found.opening_text or ""
    for words in (
        '"style" = "terse" (set by person:ada, because "she said so")',
        "next: the second page",
        '"src/a.py" modified',
        '"step" = "two"',
        "from ada (maintainer)",
    ):
        assert words in text
    assert text.endswith("Bring the page in line.")
    assert set(found.tokens) == {
        "rules",
        "agent",
        "objective",
        "guide",
        "facts",
        "hand-off",
        "changes",
        "memory",
        "messages",
        "prompt",
    }
    assert found.total_tokens == sum(found.tokens.values()) and all(found.tokens.values())


def test_a_fresh_run_knows_facts_and_hand_off_alone(world: World) -> None:
    """Memory and the earlier conversation are gone."""
    talk = world.open()
    talk.start()
    talk.begin()
    talk.add(ev.MemorySet(key="step", value="two"))
    talk.add(ev.FactSet(key="style", value="terse"))
    talk.answer("done")
    talk.add(ev.NoteAdded(text="all done"), "run:pages#1")
    talk.end()
    talk.start()
    assert name_parts(talk) == ["facts", "hand-off", "changes", "prompt"] and talk.assemble().entries == ()


def test_a_conversation_that_continues_is_told_only_what_is_new(world: World) -> None:
    """Facts, own notes, causes and messages that it already had are not repeated."""
    talk = world.open(conversation="continue")
    talk.add(ev.FactSet(key="old", value="1"), ADA)
    talk.say("first wish")
    talk.start(make_cause(new="v1"), is_fresh=False)
    talk.begin()
    own = make_call(1, "remember", '{"key": "own", "value": "2"}')
    talk.answer("", own)
    talk.call(own)
    talk.add(ev.FactSet(key="own", value="2"), "run:pages#1")
    talk.bring(own, "kept")
    talk.add(ev.NoteAdded(text="mine"), "run:pages#1")
    talk.answer("done")
    talk.end()
    talk.add(ev.FactSet(key="hers", value="3"), ADA)
    talk.add(ev.NoteAdded(text="do not touch the title"), ADA)
    talk.say("second wish")
    talk.start(make_cause(new="v2"), is_fresh=False)
    text = talk.assemble().opening_text or ""
    assert name_parts(talk) == ["facts", "changes", "messages", "prompt"]
    for words in ('"hers"', "do not touch the title", "second wish"):
        assert words in text
    for words in ('"old"', '"own"', "mine", "first wish"):
        assert words not in text


def test_a_run_that_goes_on_opens_with_nothing_unless_something_came(world: World) -> None:
    """A lost run that resumes has no opening, unless a message came."""
    talk = world.open()
    talk.start()
    talk.begin()
    talk.answer("reading", make_call(1))
    talk.end("lost", is_final=False)
    talk.go_on()
    assert talk.begin().opening == ()
    talk.end("lost", is_final=False)
    talk.say("and the footer")
    talk.go_on()
    found = talk.begin()
    assert [part.name for part in found.opening] == ["messages", "prompt"] and "Bring the page" not in (
        found.opening_text or ""
    )
    assert talk.assemble().opening == (), "it has its opening"


def test_a_run_lost_before_its_opening_opens_as_the_first(world: World) -> None:
    """The lost run had no opening yet, so the next one has all parts."""
    talk = world.open()
    talk.say("a wish")
    talk.start()
    talk.end("lost", is_final=False)
    talk.go_on()
    assert name_parts(talk) == ["changes", "messages", "prompt"]


def test_a_try_after_a_failure_says_what_failed(world: World) -> None:
    """The model finished, but the check failed. Without the reason the model would give the same answer again."""
    talk = world.open()
    talk.start()
    talk.begin()
    talk.answer("done")
    talk.end("failed", is_final=False, reason="the check ended with exit code 1")
    talk.start(*talk.session.wake.causes, attempt=1, is_fresh=False)  # type: ignore[union-attr]
    found = talk.assemble()
    assert [part.name for part in found.opening] == ["last run", "prompt"] and "exit code 1" in (
        found.opening_text or ""
    )


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        (make_cause("activation", "activation", "1", reason="now, please"), 'a person asked for this run, saying "now, please"'),
        (ev.Cause(binding="first", kind="first", key="first"), "this is the first run"),
        (make_cause("nightly", "cron", "2026-01-01T06:00"), '"nightly": its time came, 2026-01-01T06:00'),
        (make_cause("code", "commits", "t", commits=("c0ffee" * 7,)), '"code": commits c0ffeec0ffee'),
        (make_cause("code", "file", "v", delta="unknown"), '"code": files changed; the paths are not known'),
        (make_cause("code", "file", "v", reason="touched during run"), '"code" (touched during run): files changed'),
        (make_cause("staff", "session", "3"), '"staff": that session has succeeded again'),
    ],
)  # fmt: skip
def test_every_kind_of_cause_has_its_words(world: World, cause: ev.Cause, words: str) -> None:
    talk = world.open()
    talk.start(cause)
    assert words in (talk.assemble().opening_text or "")


def test_what_does_not_fit_says_how_to_get_it(world: World) -> None:
    """The model has 8,000 tokens, and every part is too long. Each cut part names the tool that shows the rest."""
    small = replace(AGENT, window=TokenWindow(tokens=8_000, compress_at=6_000))
    world.write("AGENTS.md", "rule " * 20_000)
    talk = world.open()
    for number in range(500):
        talk.add(ev.FactSet(key=f"k{number:03}", value="x" * 50), ADA)
    talk.add(ev.NoteAdded(text="word " * 20_000), ADA)
    for number in range(40):
        talk.say(f"wish {number} " + "please " * 200)
    talk.start(make_cause("code", "file", "v", *(f"src/file{number}.py" for number in range(2_000))))
    found = talk.assemble(small)
    assert found.total_tokens < 7_000
    text = found.instructions_text + (found.opening_text or "")
    for words in (
        "read AGENTS.md)",
        "older facts; recall",
        "history shows all of it)",
        "more paths; list shows",
        "earlier messages; history shows them)",
    ):
        assert words in text
    assert '"k499"' in text and '"k000"' not in text and "wish 39" in text and "wish 0 " not in text


def test_rules_are_those_on_the_way_to_what_is_bound(world: World) -> None:
    """Rules are read from the root down, the nearest last.

    Links are not followed, and rules of untrusted folders are left out.
    """
    for folder in ("", "src/", "src/deep/", "docs/", "inbox/", "elsewhere/"):
        world.write(f"{folder}AGENTS.md", f"rules of /{folder}")
    (world.root / "lib").mkdir()
    (world.root / "lib" / "AGENTS.md").symlink_to("/etc/passwd")
    bindings = (
        FileBinding(name="code", pattern="src/**/*.py"), FileBinding(name="lib", pattern="lib/*"), FileBinding(name="page", pattern="docs/api.md", access="write"),
        FileBinding(name="mail", pattern="inbox/**", is_untrusted=True),
    )  # fmt: skip
    talk = world.open(bindings=bindings)
    talk.start(make_cause("code", "file", "v", "src/deep/a.py"))
    rules = talk.assemble().instructions[0].text
    places = [rules.index(f"rules of /{folder}\n") for folder in ("", "docs/", "src/", "src/deep/")]
    assert places == sorted(places)
    assert (
        "root:" not in rules
        and "/elsewhere" not in rules
        and "rules of /inbox" not in rules
        and "(inbox/AGENTS.md belongs to an untrusted binding" in rules
    )


def test_claude_md_counts_where_there_is_no_agents_md(world: World) -> None:
    """This is decided per folder. A link is not read as rules."""
    world.write("CLAUDE.md", "words for /")
    world.write("src/AGENTS.md", "rules of src")
    world.write("src/CLAUDE.md", "words for src")
    world.write("docs/a.md", "x")
    (world.root / "docs" / "CLAUDE.md").symlink_to("../src/CLAUDE.md")
    talk = world.open(
        bindings=(FileBinding(name="code", pattern="src/**"), FileBinding(name="page", pattern="docs/*.md"))
    )
    talk.start()
    rules = talk.assemble().instructions[0].text
    assert "CLAUDE.md>\nwords for /\n" in rules and "rules of src" in rules and "words for src" not in rules


def test_rules_of_deeper_folders_are_those_that_were_not_told(world: World) -> None:
    """They are read only on the way to a bound folder, and not in untrusted folders. Secrets are removed."""
    for folder in ("", "src/", "src/a/", "src/a/b/", "src/mail/", "elsewhere/"):
        world.write(f"{folder}AGENTS.md", f"rules of /{folder}, password hunter22")
    (world.root / "src" / "link").symlink_to(world.root / "elsewhere")
    spec = world.open(
        bindings=(
            FileBinding(name="code", pattern="src/**"),
            FileBinding(name="mail", pattern="src/mail/**", is_untrusted=True),
        )
    ).session.spec
    assert spec is not None

    def read(folder: str) -> dict[str, str]:
        return read_nested_rules(spec, (), folder, 1000, lambda text: text.replace("hunter22", "[secret]"))

    assert list(read("src/a/b")) == ["src/a/AGENTS.md", "src/a/b/AGENTS.md"]
    text = read("src/a")["src/a/AGENTS.md"]
    assert text.startswith("<rules ") and "rules of /src/a/, password [secret]" in text
    for folder in ("", ".", "src", "src/mail", "src/link", "elsewhere", "..", "../..", "/etc", "src/none"):
        assert read(folder) == {}, folder


def test_without_a_run_there_is_nothing_to_assemble(world: World) -> None:
    with pytest.raises(InternalError, match="no run under way"):
        world.open().assemble()


def compress(talk: Talk, first: int) -> None:
    """Replace everything before a record by a summary."""
    replaced, kept = split_stretches((RecordRange(talk.id, 1),), talk.id, first)
    talk.add(
        ev.ConversationCompressed(
            replaced=replaced, kept=kept, summary="read it all", messages=1, kept_messages=1, kept_bytes=1, by="rule"
        )
    )


def test_a_run_whose_opening_gave_way_to_a_summary_keeps_facts_and_wishes(world: World) -> None:
    """In the middle of its work the run is told to go on, with its prompt, its messages and its facts.

    The changes are not repeated.
    """
    talk = world.open()
    talk.add(ev.FactSet(key="style", value="terse"), ADA)
    talk.say("and the title")
    talk.start(make_cause(new="v1"))
    talk.begin()
    talk.answer("reading", make_call(1))
    talk.call(make_call(1))
    here = talk.session.seq - 1
    talk.bring(make_call(1), "text")
    compress(talk, here)
    found = talk.begin()
    assert [part.name for part in found.opening] == ["facts", "messages", "prompt"]
    text = found.opening_text or ""
    assert "and the title" in text and "in the middle of this" in text and text.endswith("Bring the page in line.")
    assert isinstance(found.entries[0], Asked) and "read it all" in found.entries[0].text
    assert talk.assemble().opening == ()


def test_after_a_compression_the_next_opening_has_all_facts_again(world: World) -> None:
    """The facts were in openings that are gone. Once they are told again, only new facts are."""
    talk = world.open(conversation="continue")
    talk.add(ev.FactSet(key="style", value="terse"), ADA)
    for _ in range(2):
        talk.start(is_fresh=False)
        talk.begin()
        talk.answer("done")
        talk.end()
    compress(talk, talk.session.seq - 1)
    for is_told in (True, False):
        talk.start(is_fresh=False)
        assert ("facts" in [part.name for part in talk.begin().opening]) == is_told
        talk.answer("done")
        talk.end()


def test_a_run_lost_after_its_last_words_is_asked_nothing(world: World) -> None:
    """The conversation ends with the final answer. It is not sent to a model again."""
    lost = world.open()
    lost.start()
    lost.begin()
    lost.answer("all done")
    lost.end("lost", is_final=False)
    lost.go_on()
    assert lost.assemble().opening_text is None
    assert lost.assemble().entries[-1] == Answered(model="anthropic:m", text="all done")


def test_a_run_that_a_person_stopped_after_its_last_words_is_asked_whether_it_is_done(world: World) -> None:
    stopped = world.open()
    stopped.start()
    stopped.begin()
    stopped.answer("all done")
    stopped.end("interrupted", is_final=True)
    assert stopped.session.last_run is not None
    stopped.go_on(*stopped.session.last_run.causes)
    assert "end with hand_off" in (stopped.assemble().opening_text or "")
