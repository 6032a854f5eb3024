"""Makes the opening of a run: what its session knows, what changed, what was said, and what it is asked.

If the conversation continues, the opening holds only what is new. Each part is quoted or has lines of its own, so that
no part can pass for another. Only this module decides the order and the text of the parts. Pure, except that it reads
the contents behind the changes (changes.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from wakeful.core.agents.model_text import estimate_tokens, quote_block, quote_line
from wakeful.core.agents.turns import Answered, Entry
from wakeful.core.calls.roles import PERSON, find_role
from wakeful.core.record.knowledge import Conflict, Fact
from wakeful.core.record.state import OpenRun, Session
from wakeful.core.record.todo import MARKS, TodoList, count_items
from wakeful.core.spec.session import PromptRun
from wakeful.model_context.changes import describe_changes
from wakeful.model_context.diffs import ReadChanged
from wakeful.model_context.prompt_parts import Part, Room
from wakeful.model_context.recorded_turns import MAILBOX, Turns, Word
from wakeful.text.display import count
from wakeful.views.times import say_time

_RUN = "run:"
GO_ON = "# Continue\n\nContinue with what you were asked. The text above has arrived since then."
AGAIN = "# Continue\n\nYou are in the middle of this work. The summary has what you did so far. Continue from there."
WAS_CUT = "# Continue\n\nYour run was stopped here. If everything is done, end with hand_off."
ANSWER = "Answer the messages above, and do what they ask for. The senders read your text while you write it."
TRY_AGAIN = "# Try again\n\nWhat you were asked to do is not done yet."


def make_opening(
    session: Session,
    run: OpenRun,
    turns: Turns,
    messages: Sequence[Word],
    room: Room,
    read: ReadChanged,
    redact: Callable[[str], str],
) -> tuple[Part, ...]:
    """Make the opening of a run. Empty if the run continues in the middle and nothing is new. Blocking."""
    has_talk = bool(turns.entries)
    goes_on = has_talk and (run.resumed_from is not None or run.attempt > 0)
    causes = tuple(cause for cause in run.causes if not has_talk or (cause.key, cause.new) not in turns.told)
    found = (
        ("facts", list_facts(*_find_known(session, turns), room.facts)),
        (
            "hand-off",
            _quote_handoff(session.knowledge.handoff, room.handoff)
            if not has_talk or turns.is_shortened or turns.has_new_handoff
            else None,
        ),
        ("last run", _say_last(session, run)),
        ("changes", describe_changes(run.spec, causes, room, read, redact)),
        (
            "summary",
            quote_summary(session.knowledge.conversation.summary, room.summary)
            if not has_talk and session.knowledge.conversation.summary
            else None,
        ),
        (
            "memory",
            list_memory(session.knowledge.memory, room.memory)
            if not has_talk or session.knowledge.conversation.summary
            else None,
        ),
        ("messages", quote_messages(session, _add_notes(session, messages, turns, has_talk), room.messages)),
    )
    parts = tuple(Part.of(name, text) for name, text in found if text is not None)
    if parts or not goes_on:
        # The to-do list alone is not news for a run that continues in the middle.
        parts = (*parts, *_list_todo(session.knowledge.todo))
    if not goes_on:
        return (*parts, Part.of("prompt", _say_prompt(session, run, is_new=not has_talk or turns.is_shortened)))
    if not parts:
        # If the last run gave its final answer and then was cut off by a crash, the work is done: ask nothing.
        # If a person stopped it, ask: providers refuse a conversation that ends with an answer.
        is_stopped = session.last_run is not None and session.last_run.seq == session.knowledge.dealt_until
        return (Part.of("prompt", WAS_CUT),) if is_stopped and _is_over(turns.entries[-1]) else ()
    return (*parts, Part.of("prompt", TRY_AGAIN if any(part.name == "last run" for part in parts) else GO_ON))


def open_again(session: Session, run: OpenRun, turns: Turns, messages: Sequence[Word], room: Room) -> tuple[Part, ...]:
    """Make a second opening for a run whose first opening was replaced by a summary.

    It repeats the parts that must survive a compression, and the prompt.
    """
    found = (
        ("facts", list_facts(session.knowledge.facts.values(), session.lineage.conflicts, room.facts)),
        ("hand-off", _quote_handoff(session.knowledge.handoff, room.handoff)),
        ("memory", list_memory(session.knowledge.memory, room.memory)),
        ("messages", quote_messages(session, _add_notes(session, messages, turns, has_talk=True), room.messages)),
    )
    parts = (*(Part.of(name, text) for name, text in found if text is not None), *_list_todo(session.knowledge.todo))
    return (*parts, Part.of("prompt", f"{AGAIN}\n\n{_say_prompt(session, run, is_new=True)}"))


def open_sub(session: Session, caller: str, text: str, room: Room) -> tuple[Part, ...]:
    """Make the opening of a sub-agent: the facts, and the piece of work that the agent of the run gives it."""
    facts = list_facts(session.knowledge.facts.values(), session.lineage.conflicts, room.facts)
    asked = (
        f"# What you are asked\n\nDo the piece of work below. It is from the agent {quote_line(caller)}, which works "
        "in this session. That agent gets your last text as the answer.\n\n"
    )
    parts = (
        ("facts", facts),
        ("prompt", asked + quote_block(text, f"work from agent {caller}", room.messages, "ask for a shorter text")),
    )
    return tuple(Part.of(name, words) for name, words in parts if words is not None)


def _is_over(entry: Entry) -> bool:
    """Is this an answer without tool calls? Providers refuse a conversation that ends with one."""
    return isinstance(entry, Answered) and not entry.calls


def _say_prompt(session: Session, run: OpenRun, *, is_new: bool) -> str:
    head = "# What you are asked\n\n"
    standing = run.spec.run.prompt.strip() if isinstance(run.spec.run, PromptRun) else ""
    if run.is_aside and (run.agent is None or run.agent.name != session.owner):
        return (
            f"{head}Answer the messages above: they are addressed to you by name. "
            "All other work of this session is not yours."
        )
    if run.is_aside:
        context = (
            f"\n\nOnly for context, not to be done now: the standing prompt of this session:\n\n{standing}"
            if standing and is_new
            else ""
        )
        return f"{head}{ANSWER}{context}"
    asked = standing or "Do what the objective asks for."
    if run.causes and all(cause.kind == MAILBOX for cause in run.causes):
        return f"{head}Deal with the messages above. The purpose of this session is:\n\n{asked}"
    return f"{head}{asked}"


def _say_last(session: Session, run: OpenRun) -> str | None:
    """Give the reason why the last run failed, for the next attempt. None if it did not fail."""
    last = session.last_run
    if last is None or last.outcome != "failed":
        return None
    return f"# The last run\n\nRun {last.run} failed: {quote_line(last.reason or 'no reason is known')}"


# -- facts, memory and to-do list -------------------------------------------------------------


def _find_known(session: Session, turns: Turns) -> tuple[Iterable[Fact], Sequence[Conflict]]:
    """Return the facts and conflicts that are new since the last opening, without the facts that the model set itself.

    Return all facts and conflicts if the model may no longer see that opening, or if the opening is in another
    session's log.
    """
    if not turns.entries or turns.told_at is None or turns.told_at[0] != session.id:
        return session.knowledge.facts.values(), session.lineage.conflicts
    since = turns.told_at[1]
    news = [
        fact
        for fact in session.knowledge.facts.values()
        if fact.seq > since and turns.remembered.get(fact.key) != fact.value
    ]
    return news, [conflict for conflict in session.lineage.conflicts if conflict.number in turns.new_conflicts]


def list_facts(facts: Iterable[Fact], conflicts: Sequence[Conflict], tokens: int) -> str | None:
    """List facts, one per line, sorted by key. If not all fit, the newest are listed."""
    newest = sorted(facts, key=lambda fact: (-fact.seq, fact.key))
    lines, left = _take_lines([_say_fact(fact) for fact in newest], tokens)
    if not lines and not left and not conflicts:
        return None
    more = [f"(… and {count(left, 'older fact')}; recall shows each by its key)"] if left else []
    open_questions = [f"open: {_say_conflict(conflict)}" for conflict in conflicts]
    return "\n".join(("# Facts", "", *sorted(lines), *more, *open_questions))


def _say_fact(fact: Fact) -> str:
    why = f", because {quote_line(fact.rationale)}" if fact.rationale else ""
    return f"{quote_line(fact.key)} = {quote_line(fact.value)} (set by {fact.author}{why})"


def _say_conflict(conflict: Conflict) -> str:
    ours, theirs = (quote_line(value) if value is not None else "nothing" for value in (conflict.ours, conflict.theirs))
    return (
        f"conflict {conflict.number} over {quote_line(conflict.key)}: this session has {ours}, "
        f"the fork {conflict.fork} has {theirs}"
    )


def list_memory(memory: dict[str, str], tokens: int) -> str | None:
    if not memory:
        return None
    lines, left = _take_lines(
        [f"{quote_line(key)} = {quote_line(value)}" for key, value in sorted(memory.items())], tokens
    )
    more = [f"(… and {count(left, 'more key')}; recall shows each)"] if left else []
    return "\n".join(("# Memory of this conversation", "", *lines, *more))


def _list_todo(items: TodoList) -> tuple[Part, ...]:
    """List the whole to-do list. It is never cut, because it has few and short items."""
    if not items:
        return ()
    lines = (f"{number}. {MARKS[item.status]} {quote_line(item.text)}" for number, item in enumerate(items, 1))
    return (
        Part.of(
            "to-do list",
            "\n".join((f"# To-do list of this session, {count_items(items)}; change it with todo", "", *lines)),
        ),
    )


def _take_lines(lines: Sequence[str], tokens: int) -> tuple[list[str], int]:
    """Return the first lines that fit, and the number of lines that do not fit."""
    taken: list[str] = []
    for line in lines:
        tokens -= estimate_tokens(line) + 1
        if tokens < 0:
            break
        taken.append(line)
    return taken, len(lines) - len(taken)


def _quote_handoff(handoff: str | None, tokens: int) -> str | None:
    if not handoff:
        return None
    return "# Hand-off of the last run\n\n" + quote_block(handoff, "hand-off", tokens, "history shows all of it")


def quote_summary(summary: str, tokens: int) -> str:
    return "# Summary of the conversation so far\n\n" + quote_block(
        summary, "summary", tokens, "history shows all of it"
    )


# -- messages ---------------------------------------------------------------------------------


def _add_notes(session: Session, messages: Sequence[Word], turns: Turns, has_talk: bool) -> list[Word]:
    """Add merges, and hand-offs that other authors left, to the messages of a conversation that continues.

    A new conversation does not need them, because its opening has the hand-off.
    """
    own = f"{_RUN}{session.name}#"
    notes = [note for note in turns.notes if not note.author.startswith(own)] if has_talk else []
    return sorted((*messages, *notes), key=lambda word: (word.at, word.seq))


def quote_messages(session: Session, words: Sequence[Word], tokens: int) -> str | None:
    """Quote messages, oldest first. If not all fit, the newest are quoted.

    A message is cut to half of the tokens that the newer ones left.
    """
    if not words:
        return None
    quoted: list[str] = []
    for word in reversed(words):
        block = quote_block(word.text, _label(session, word), tokens // 2, f"history shows record {word.seq} whole")
        tokens -= estimate_tokens(block)
        if tokens < 0 and quoted:
            break
        quoted.append(block)
    left = len(words) - len(quoted)
    more = [f"(… and {count(left, 'earlier message')}; history shows them)"] if left else []
    return "\n\n".join(("# Messages", *more, *reversed(quoted)))


def _label(session: Session, word: Word) -> str:
    what = {"message_added": "message", "note_added": "hand-off", "session_merged": "merge"}[word.kind]
    strange = (
        f"; it may contain text that strangers wrote through binding {word.untrusted_by}"
        if word.untrusted_by is not None
        else ""
    )
    return f"{what} from {say_author(session, word.author)}, {say_time(word.at)}{strange}"


def say_author(session: Session, author: str) -> str:
    if author.startswith(PERSON):
        return f"{author.removeprefix(PERSON)} ({find_role(session, author)})"
    return f"session {author.removeprefix(_RUN).rpartition('#')[0]}" if author.startswith(_RUN) else author
