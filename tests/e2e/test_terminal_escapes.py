"""Output is data: a name, a path, a ref, a message or a run's output never makes a terminal obey it.

Every field that others fill gets text that a terminal acts on, on a real daemon. Then every verb is asked as a person
would ask it, into a pipe and at a terminal. Only newlines and our own colours may come out.
"""

from __future__ import annotations

import os
import pty
import re
import subprocess
import time

import pytest

from e2e.box import WAKEFUL, Box
from wait_conditions import PATIENCE_SECONDS, eventually
from wakeful.text.display import escape, escape_lines
from wakeful.verbs.table import COMMANDS

# Moves and colours that are not ours, a title, a link, a bell, a line of its own, the right-to-left override, a C1
# control, a line separator.
EVIL = "e\x1b[2J\x1b[45;97mv\x1b]0;owned\x07\x1b]8;;http://x\x1b\\i\x07l\r\nwakeful: all good\u202e\u2066\x9b5A\u2028"
# A file name may have every character but a slash and NUL.
EVIL_NAME = EVIL.replace("/", "")
SGR = re.compile(r"\x1b\[(?:0|1|2|3[1236]|1;2|2;3[1236]|1;3[1236])?m")
UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")

SPEC = """
    objective: {evil}
    bindings:
      input: {{file: "in/*", settle: 10ms}}
      output: {{file: "out/**", access: write}}
    run: {{script: {script}, retries: 0}}
"""


def quote(text: str) -> str:
    """Return the text as YAML in double quotes, with every character escaped."""
    return '"' + "".join(f"\\U{ord(one):08x}" for one in text) + '"'


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> object:
    box = Box(tmp_path_factory.mktemp("hostile"))
    try:
        plant(box)
        yield box
    finally:
        box.close()


def plant(box: Box) -> None:
    script = f"printf '%s' {escape_for_shell(EVIL)}; mkdir -p out; printf '%s' {escape_for_shell(EVIL)} > out/text; cp in/* out/"
    box.write(f"in/{EVIL_NAME}", EVIL)
    box.write("in/plain.txt", "1\n")
    box.spec("words", SPEC.format(evil=quote(EVIL), script=quote(script)))
    box.spec(
        "fails",
        f"bindings: {{one: {{file: in/plain.txt}}}}\nrun: {{script: {quote(script + '; exit 3')}, retries: 0}}\n",
    )
    outside = box.folder.parent / f"{box.folder.name}-outside"
    outside.mkdir()
    (outside / EVIL_NAME).write_text(EVIL)
    box.spec(
        "peeks",
        f"bindings: {{one: {{file: in/plain.txt}}}}\nrun: {{script: {quote(f'cat {outside}/*')}, retries: 0}}\n",
    )
    box.spec("agents/reader", "prompt: You read.\nmodel: openai-compatible:m\nbase_url: http://127.0.0.1:9/v1\n")
    box.spec("template@", "for_each: in/*\nobjective: x\n")
    (box.specs / f"{EVIL_NAME}.yaml").write_text("objective: x\n")
    box.spec("broken", f"{quote(EVIL)}: 1\nbindings: {{{quote(EVIL)}: {{file: {quote(EVIL)}}}}}\n")
    box.start()
    box.wait_at_rest("words", runs=1)
    box.wait_for("fails", state="sleeping")
    say(box, "trace", "peeks")
    say(box, "remember", "words", EVIL, EVIL, "--because", EVIL)
    say(box, "remember", "words", "now", EVIL, "--for-now")
    say(box, "note", "words", EVIL)
    say(box, "send", "words", EVIL, "--no-wake")
    say(box, "save", "words", "--as", "mark", "--note", EVIL)
    say(box, "fork", "words", "--as", "trial")
    say(box, "remember", "trial", EVIL, EVIL + "2", "--because", EVIL)
    say(box, "remember", "words", EVIL, EVIL + "3", "--because", EVIL)
    say(box, "merge", "words", "trial")
    say(box, "sleep", "trial", "--reason", EVIL)
    box.write(f"in/{EVIL_NAME}2", EVIL + "\n")
    box.wait_at_rest("words", runs=2)
    say(box, "activate", "words", "--note", EVIL, "--wait")
    box.spec("closed", "objective: x\n")
    eventually(lambda: any(row["name"] == "closed" for row in box.rows()))
    say(box, "terminate", "closed", "--reason", EVIL)


def escape_for_shell(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def say(box: Box, *words: str) -> None:
    done = box.run(*words)
    assert done.returncode in (0, 1), done.stderr


def ask(box: Box, *words: str) -> str:
    """Return what a pipe gets from the command, errors included."""
    done = box.run(*words, env={"WAKEFUL_SPECS": str(box.specs), "WAKEFUL_STATE": str(box.state)})
    assert done.returncode in (0, 1, 2)
    return done.stdout + done.stderr


def ask_at_terminal(box: Box, *words: str) -> str:
    """Return what a terminal gets from the command, without the carriage returns that the terminal adds."""
    ours, theirs = pty.openpty()
    done = subprocess.Popen(
        [WAKEFUL, *words],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=box.folder,
        env=box.environment() | {"TERM": "xterm", "COLUMNS": "80"},
    )
    os.close(theirs)
    seen = b""
    end = time.monotonic() + PATIENCE_SECONDS
    os.set_blocking(ours, False)
    while time.monotonic() < end:
        try:
            piece = os.read(ours, 65536)
        except BlockingIOError:
            time.sleep(0.01)
            continue
        except OSError:
            break
        seen += piece
    if done.poll() is None:
        done.terminate()
    done.wait(PATIENCE_SECONDS)
    os.close(ours)
    return seen.decode(errors="backslashreplace").replace("\r\n", "\n")


def find_unsafe(text: str) -> list[str]:
    """Return every character that a terminal would act on, with the text around it."""
    bare = SGR.sub("", text)
    return [repr(bare[max(found.start() - 30, 0) : found.end() + 20]) for found in UNSAFE.finditer(bare)]


LOOKS = [
    ("people", "list"), ("presence",), ("webhook", "list"), ("notify", "list"), ("health",),
    ("list",), ("list", "words", "fails"), ("list", "--all"), ("show", "words"), ("show", "words", "--at", "mark"), ("show", "trial"), ("show", "fails"),
    ("show", "closed"), ("show", "broken"), ("show", EVIL), ("log", "words"), ("log", "trial"), ("log", "closed"), ("log", "words", "--author", EVIL),
    ("history", "words"), ("output", "words"), ("output", "fails"), ("output", EVIL), ("output", "words", "--find", "owned"), ("output", "words", "--find", EVIL), ("facts", "words"), ("recall", "words", EVIL + "x"),
    ("context", "words"), ("context", "words", "--for-agent", "reader"), ("context", "words", "--for-agent", "reader", "--brief"), ("context", EVIL), ("context", "words", "--for-agent", EVIL),
    ("why", "words"), ("why", "fails"), ("why", "words#2"), ("why", f"in/{EVIL_NAME}"), ("why", f"out/{EVIL_NAME}"), ("why", "trial"), ("why", EVIL),
    ("plan",), ("plan", f"in/{EVIL_NAME}", f"elsewhere/{EVIL_NAME}"), ("diff", "words@mark", "words", "--contents"), ("diff", "words", "trial", "--contents"),
    ("search", "owned"), ("search", EVIL), ("costs", "--by", "session,agent,cause,day"), ("timeline",), ("timeline", EVIL), ("graph",), ("graph", EVIL), ("graph", "words"), ("top", "--once"), ("doctor",), ("verify",), ("check",),
    ("rewind", "words", "mark", "--files", "--dry-run"), ("merge", "words", "trial", "--dry-run"), ("compress", "words", "--keep", "0", "--dry-run"),
    ("erase", "words", "7", "--dry-run"), ("erase", "words", "8", "--dry-run"), ("archive", "--due", "--dry-run"), ("replay", "words", "1"), ("replay", "words", "2"),
    ("resolve", "words", EVIL, "--ours", "--because", EVIL), ("ask", EVIL, EVIL), ("ask", "words", EVIL, "--agent", EVIL), ("answer", EVIL, EVIL), ("answer", "words", EVIL), ("resume", EVIL), ("suspend", EVIL), ("interrupt", EVIL), ("cancel", EVIL), ("open", EVIL), ("rename", "trial", EVIL),
    ("forget", "words", EVIL + "x"), ("load", EVIL), ("load", f"./{EVIL_NAME}"), ("migrate", "words", "--agent", EVIL), ("new", EVIL_NAME), ("check", f"{EVIL_NAME}"),
    ("save", "words", "-o", f"{EVIL_NAME}.bundle"), ("export", "words", "-o", f"{EVIL_NAME}.jsonl"), ("backup", f"{EVIL_NAME}.backup"), ("restore", f"{EVIL_NAME}.backup"),
    ("secret", "list"), ("secret", "remove", EVIL), ("token", "new", "--scope", "read", "--note", EVIL), ("token", "list"), ("token", "revoke", EVIL),
    ("trace", "peeks", "--run", "2"), ("trace", "peeks"), ("trace", EVIL), ("show", "peeks"), ("trust",), ("trust", "words"), ("trust", EVIL), ("add", EVIL), ("add", ".", "--as", EVIL),
    ("show", "words", EVIL), (EVIL,), ("sleep", "words", "--for", EVIL), ("log", "words", "--since", EVIL), ("completion", EVIL), ("schema", EVIL), ("costs", "--by", EVIL),
]  # fmt: skip


def test_the_words_are_really_there(planted: Box) -> None:
    """The other tests prove something only if the text was planted, and comes back raw where bytes are asked for."""
    raw = subprocess.run(
        [WAKEFUL, "output", "words", "--raw"], capture_output=True, cwd=planted.folder, env=planted.environment()
    ).stdout
    assert EVIL.encode() in raw
    fact = next(fact for fact in planted.json("facts", "words") if fact["key"] != "now")
    assert (fact["key"], fact["rationale"]) == (EVIL, EVIL)
    assert EVIL in planted.json("show", "words")["handoff"]
    assert (
        find_unsafe(EVIL) and "\\x1b" in ask(planted, "show", "words") and "\\u202e" in ask(planted, "facts", "words")
    )


@pytest.mark.parametrize("words", LOOKS, ids=lambda words: escape(" ".join(words))[:60])
def test_no_verb_hands_a_terminal_anything_to_obey(planted: Box, words: tuple[str, ...]) -> None:
    """This is the output in a pipe. No line of a stranger's text stands alone as if it were ours."""
    shown = ask(planted, *words)
    assert not find_unsafe(shown), find_unsafe(shown)
    assert not SGR.search(shown), "colour is for terminals"
    # The output of a run and the content of a file have lines of their own.
    if words[0] not in ("output", "diff", "replay"):
        assert not [line for line in shown.splitlines() if line.startswith("wakeful: all good")]


@pytest.mark.parametrize(
    "words", [("list",), ("show", "words"), ("log", "words"), ("why", "words#2"), ("diff", "words@mark", "words", "--contents"), ("facts", "words"), ("recall", "words", EVIL), ("output", "words"), ("top", "--once"), ("show", EVIL)],
    ids=lambda words: escape(" ".join(words))[:60],
)  # fmt: skip
def test_nor_does_one_at_a_terminal(planted: Box, words: tuple[str, ...]) -> None:
    """The output at a terminal has our own colours and no others."""
    shown = ask_at_terminal(planted, *words)
    assert not find_unsafe(shown), find_unsafe(shown)
    assert "45;97" not in shown or "\\x1b[45;97m" in shown


def test_nor_does_what_is_followed(planted: Box) -> None:
    """This is the live output of `follow` and `log --follow`."""
    for words in (("follow",), ("log", "words", "--follow")):
        with (planted.folder / "followed").open("wb") as out:
            following = subprocess.Popen([WAKEFUL, *words], stdout=out, cwd=planted.folder, env=planted.environment())
        try:
            # `follow` does not show a note that was made before it listens.
            eventually(lambda: planted.run("note", "words", EVIL) and "hand-off: e" in planted.read("followed"))
        finally:
            following.terminate()
            following.wait(PATIENCE_SECONDS)
        shown = (planted.folder / "followed").read_bytes().decode()
        assert not find_unsafe(shown), find_unsafe(shown)


def test_nor_does_the_daemon_in_the_foreground(planted: Box) -> None:
    """This is what the daemon narrates, and what it says about files that it refuses."""
    said = planted.output.read_bytes().decode()
    assert "\\x1b" in said and not find_unsafe(said), find_unsafe(said)


def test_every_verb_that_shows_words_of_others_was_walked() -> None:
    """A new verb is asked here too, or is named with the reason why not."""
    quiet = {
        "follow": "has a test of its own", "daemon": "has a test of its own", "talk": "has tests of its own", "completion": "prints a script", "schema": "prints a schema",
        "mcp": "speaks JSON to a program", "dashboard": "prints an address", "install": "speaks to systemd", "uninstall": "speaks to systemd",
        "activate": "planted with", "note": "planted with", "send": "planted with", "remember": "planted with", "fork": "planted with", "terminate": "planted with",
    }  # fmt: skip
    assert set(COMMANDS) - {words[0] for words in LOOKS} <= set(quiet)


@pytest.mark.parametrize("text", [EVIL, "a\tb", "über", "plain", "\ud800", "a\u200bb", "\U000e0041"])
def test_escaping_twice_is_escaping_once(text: str) -> None:
    """Callers need not know whether a text is escaped already. Harmless text stays as it is."""
    assert escape(escape(text)) == escape(text) and escape_lines(escape_lines(text)) == escape_lines(text)
    assert not UNSAFE.search(escape(text)) and escape("über") == "über"
