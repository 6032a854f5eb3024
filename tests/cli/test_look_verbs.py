"""Verbs that look: list, show, log, follow, output, why, plan. They print text for people and JSON for programs."""

import json
import os
import pty
import re
import subprocess
import sys

import pytest

from api.small_daemon import RunningDaemon, declare, reads, writes
from cli.conftest import PAYROLL, Command, run_wakeful
from wait_conditions import eventually
from wakeful.cli import read_plain_list
from wakeful.cli.client import Options
from wakeful.core.calls.call_types import Activate, Note, Sleep
from wakeful.core.record.observations import PathChange
from wakeful.core.spec.bindings import CronBinding
from wakeful.core.spec.session import CommandRun, SessionSpec


def test_list_is_a_table_that_fits_80_columns(rested: RunningDaemon, wakeful: Command) -> None:
    """Each session is one line, whatever its words are."""
    rested.do(
        lambda d: d.call(
            Sleep(name="payroll", words="waiting for " + "a very long reason " * 20), author="x", key=None, run=None
        )
    )
    done = wakeful("list")
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and len(lines) == 3
    assert lines[1].startswith("hr/filing  suspended") and "sleeping" in lines[2] and "waiting for" in lines[2]
    assert all(len(line) <= 80 for line in lines) and lines[2].endswith("…")


def test_list_json_is_the_daemons_document(rested: RunningDaemon, wakeful: Command) -> None:
    """`list --json` is one JSON document. `--json` and `--socket` may stand before or after the verb."""
    after = run_wakeful("list", "--json", "--socket", str(rested.socket))
    before = run_wakeful("--socket", str(rested.socket), "--json", "list")
    assert json.loads(after.stdout) == json.loads(before.stdout)
    row = json.loads(after.stdout)[1]
    assert set(row) == {"name", "id", "state", "reason", "agent", "priority", "queued", "owed", "runs", "last_run"}
    assert set(row["last_run"]) == {"run", "outcome", "started_at", "finished_at", "causes"}


def test_list_of_nothing_says_how_to_begin(daemon: RunningDaemon, wakeful: Command) -> None:
    """An empty list prints how to begin."""
    assert "wakeful new" in wakeful("list").stdout
    assert json.loads(wakeful("list", "--json").stdout) == []


def test_a_refused_spec_is_seen_in_list_show_and_why(rested: RunningDaemon, wakeful: Command) -> None:
    """A new file with a mistake makes no session. It is listed below the table, and its name gives the problem."""
    rested.small.wrong = {
        "words": "sessions.d/words.yaml:5:34: unknown key 'acces' in binding 'count'; did you mean 'access'?\nand another",
        "evil\x1b": "evil.yaml:1:1: broken",
    }
    done = wakeful("list")
    table, below = done.stdout.split("refused: ", 1)
    assert len(table.splitlines()) == 3 and "\x1b" not in done.stdout
    assert (
        "words: sessions.d/words.yaml:5:34: unknown key 'acces'" in below.replace("\n  ", " ")
        and "(and 1 more: wakeful check)" in below
    )
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    assert [row["name"] for row in json.loads(wakeful("list", "--json").stdout)] == ["hr/filing", "payroll"]
    for verb in ("show", "why", "activate"):
        done = wakeful(verb, "words")
        assert done.returncode == 1 and done.stderr.startswith(
            "wakeful: words is refused: sessions.d/words.yaml:5:34: unknown key"
        )


def test_list_names_the_column_of_reasons(rested: RunningDaemon, wakeful: Command) -> None:
    """Every column has a heading, also if no session sleeps."""
    assert wakeful("list").stdout.splitlines()[0].split() == ["NAME", "STATE", "RUNS", "LAST", "RUN", "REASON"]


def test_list_does_not_wait_for_libraries_it_does_not_need() -> None:
    """`wakeful list` is fast because it does not import these modules."""
    heavy = [
        "click",
        "pydantic",
        "rich",
        "starlette",
        "uvicorn",
        "apsw",
        "watchfiles",
        "msgspec",
        "http.client",
        "asyncio",
        "yaml",
        "wakeful.core",
    ]
    program = f"import sys, wakeful.cli; print([m for m in {heavy!r} if m in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()
        == "[]"
    )


@pytest.mark.parametrize(
    ("words", "options"),
    [
        (["list"], Options()),
        (["list", "--json"], Options(None, True)),
        (["--json", "list"], Options(None, True)),
        (["--socket", "x", "list"], Options("x")),
        (["--json", "list", "--socket", "x"], Options("x", True)),
        (["list", "--socket"], None),
        (["list", "--socket", "--json"], None),
        (["list", "--socket=x"], None),
        (["list", "--help"], None),
        (["list", "list"], None),
        (["--socket", "list"], None),
        (["--socket", "list", "x"], None),
        (["--socket", "--json", "x", "list"], None),
        (["show", "list"], None),
        (["show", "list", "--json"], None),
        (["--socket", "x", "show", "list"], None),
        ([], None),
    ],
)
def test_only_a_plain_list_goes_the_short_way(words: list[str], options: Options | None) -> None:
    """Any other word is parsed by click, so that both ways mean the same."""
    assert read_plain_list(words) == options


def test_show_has_everything_on_a_page(rested: RunningDaemon, wakeful: Command) -> None:
    """The page has state, objective, bindings, neighbours, runs, facts and hand-off, with exact times beside relative
    ones."""
    rested.do(
        lambda d: d.call(Note(name="payroll", text="next: March\nblocked: nothing"), author="x", key=None, run=None)
    )
    text = wakeful("show", "payroll").stdout
    for words in (
        "payroll  suspended",
        "Pay everybody.",
        "hr/filing",
        "salaries",
        "aaaaaaaaaa",
        "RUN",
        "succeeded",
        "next: March",
        " (20",
    ):
        assert words in text, words
    assert all(len(line) <= 80 for line in text.splitlines())
    assert json.loads(wakeful("show", "payroll", "--json").stdout)["readers"] == ["hr/filing"]


def test_show_fits_80_columns_whatever_is_bound(daemon: RunningDaemon, wakeful: Command) -> None:
    """Long paths, slots, objectives and reasons continue on the next line. Nothing is cut."""
    long = "examples/human-resources/social-insurance/by-city/"
    clock = CronBinding(name="monthly", expression="0 6 1 * *", timezone="Asia/Shanghai")
    bindings = (
        reads("rates", f"{long}*.csv"),
        reads("previous-month", f"{long}last.csv", wake=False),
        writes("result", f"{long}out/payroll.csv"),
        clock,
    )
    spec = SessionSpec(
        name="payroll",
        root="/p",
        bindings=bindings,
        run=CommandRun(argv=("true",), retries=0),
        objective="Pay.\n" + "word " * 40,
    )
    daemon.do(lambda d: d.declare(spec))
    daemon.do(lambda d: d.finish("payroll", exit_code=1))
    daemon.do(lambda d: d.call(Sleep(name="payroll", words="because " * 20), author="x", key=None, run=None))
    text = wakeful("show", "payroll", COLUMNS="80").stdout
    assert all(len(line) <= 80 for line in text.splitlines()), text
    assert "…" not in text and "\\n" not in text and "  Pay.\n  word" in text
    folded = re.sub(r"\n +", "", text)
    assert f"> {long}out/payroll.csv" in folded and f"{long}last.csv(quiet)" in folded.replace(" (quiet)", "(quiet)")


def test_show_tells_seen_and_good_only_where_they_differ(rested: RunningDaemon, wakeful: Command) -> None:
    """All versions are usually equal. The good one differs after a failure, and the seen one during a run."""
    assert not re.search("seen|good", wakeful("show", "payroll").stdout)
    rested.do(lambda d: d.change("salaries.csv", "b" * 32))
    assert "seen aaaaaaaaaaaa, good aaaaaaaaaaaa" in wakeful("show", "payroll").stdout
    rested.do(lambda d: d.finish("payroll", exit_code=1))
    text = wakeful("show", "payroll").stdout
    assert "bbbbbbbbbbbb" in text and "good aaaaaaaaaaaa" in text and "seen" not in text


def test_show_at_a_seq_tells_the_past(rested: RunningDaemon, wakeful: Command) -> None:
    """`show --at` prints the fold of the log up to that record."""
    assert json.loads(wakeful("show", "payroll", "--at", "4", "--json").stdout)["seq"] == 4
    assert "seq 4" in wakeful("show", "payroll", "--at", "4").stdout


def test_log_json_lines_have_the_keys_of_the_contract(rested: RunningDaemon, wakeful: Command) -> None:
    """Each line is one object. Lines are selected by seq, time, kind, run and author."""
    lines = [json.loads(line) for line in wakeful("log", "payroll", "--json").stdout.splitlines()]
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
    assert all(list(line) == ["seq", "at", "kind", "author", "run", "payload", "hash"] for line in lines)
    sliced = wakeful(
        "log", "payroll", "--json", "--from", "2", "--to", "3", "--since", lines[0]["at"], "--until", lines[-1]["at"]
    )
    assert [json.loads(line)["seq"] for line in sliced.stdout.splitlines()] == [2, 3]
    only = wakeful(
        "log", "payroll", "--json", "--kind", "run_finished", "--run", "1", "--author", "wakeful"
    ).stdout.splitlines()
    assert [json.loads(line)["kind"] for line in only] == ["run_finished"]


def test_log_and_history_for_people(rested: RunningDaemon, wakeful: Command) -> None:
    """A record is a line of words, without JSON."""
    rested.do(lambda d: d.call(Activate(name="payroll", note="month end"), author="x", key=None, run=None))
    text = wakeful("log", "payroll").stdout
    assert "opened as payroll" in text and "activation requested: month end" in text and "{" not in text
    assert "run 1 succeeded in 1.50 s" in wakeful("log", "payroll").stdout
    assert len(wakeful("history", "payroll", "--last", "2").stdout.splitlines()) == 2


def test_a_reader_that_has_seen_enough_is_no_error(rested: RunningDaemon) -> None:
    """`wakeful log | head -1` ends without an error message."""
    command = f"{sys.executable} -m wakeful log payroll --socket {rested.socket} | head -1"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr == "" and len(done.stdout.splitlines()) == 1


def test_follow_is_live_and_readable(rested: RunningDaemon) -> None:
    """`follow` prints the wake with its causes and paths, the run and its end, as they happen."""
    words = [sys.executable, "-u", "-m", "wakeful", "follow", "payroll", "--socket", str(rested.socket)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as follower:
        eventually(lambda: rested.small.listeners == 1)
        rested.do(lambda d: d.change("salaries.csv", "b" * 32, PathChange("salaries.csv", "1", "2")))
        rested.do(lambda d: d.finish("payroll"))
        assert follower.stdout is not None
        told = [follower.stdout.readline() for _ in range(4)]
        follower.terminate()
    assert "payroll  wakes: salaries (modified salaries.csv)" in told[0]
    assert "run 2 started" in told[1] and "run 2 succeeded" in told[2] and "suspended" in told[3]


def test_follow_json_is_one_object_a_line(rested: RunningDaemon) -> None:
    """Each line is flushed as it comes."""
    words = [sys.executable, "-m", "wakeful", "follow", "--json", "--socket", str(rested.socket)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as follower:
        eventually(lambda: rested.small.listeners == 1)
        rested.do(lambda d: d.call(Note(name="payroll", text="hi"), author="x", key=None, run=None))
        assert follower.stdout is not None
        line = json.loads(follower.stdout.readline())
        follower.terminate()
    assert (line["session"], line["kind"], line["payload"]) == ("payroll", "note_added", {"text": "hi"})


def test_output_shows_escapes_instead_of_sending_them(rested: RunningDaemon, wakeful: Command) -> None:
    """A run's output cannot control the reader's terminal. `--raw` gives the bytes."""
    session = rested.small.core.state.by_name("payroll")
    rested.small.kept[(session.id, 1)] = (b"red \x1b[31m\xff\n", b"end\n", 1000)
    text = wakeful("output", "payroll").stdout
    assert "red \\x1b[31m\\xff\n" in text and "not kept: 985 bytes" in text and text.endswith("end\n")
    raw = subprocess.run(
        [sys.executable, "-m", "wakeful", "output", "payroll", "--raw", "--socket", str(rested.socket)],
        capture_output=True,
        check=True,
    )
    assert b"\x1b[31m\xff" in raw.stdout
    assert json.loads(wakeful("output", "payroll", "--run", "1", "--json").stdout)["total_bytes"] == 1000


def test_output_finds_lines_and_gives_them_as_grep_does(rested: RunningDaemon, wakeful: Command) -> None:
    """Line numbers are those of the whole output. A gap and a cut are reported on stderr."""
    session = rested.small.core.state.by_name("payroll")
    rested.small.kept[(session.id, 1)] = (b"red \x1b[31mTax\xff\nno\n", b"cut\ntax\n", 1000)
    whole = wakeful("output", "payroll").stdout.splitlines()
    found = wakeful("output", "payroll", "--find", "TAX")
    assert found.stdout == "1:red \\x1b[31mTax\\xff\n6:tax\n" and "line 4 replaces output" in found.stderr
    assert "not kept" in whole[3] and whole[5] == "tax"
    told = json.loads(wakeful("output", "payroll", "--find", "tax", "--json").stdout)
    assert (told["found_lines"], told["gap_line"], told["lines"][1]) == (2, 4, {"number": 6, "text": "tax"})
    nothing = wakeful("output", "payroll", "--find", "gold")
    assert (nothing.returncode, nothing.stdout) == (0, "") and "no line contains that" in nothing.stderr
    rested.small.kept[(session.id, 1)] = (b"y\n" * 1200, b"", 2400)
    assert "the first 1,000 of 1,200 lines" in wakeful("output", "payroll", "--find", "y").stderr
    for words in (("--find", ""), ("--find", "a", "--follow")):
        assert wakeful("output", "payroll", *words).returncode == 2, words


def test_output_follows_a_run_to_its_end(daemon: RunningDaemon) -> None:
    """`--follow` ends when the run ends."""
    daemon.do(lambda d: d.declare(PAYROLL))
    daemon.small.live_output = [b"one\n"]
    words = [sys.executable, "-m", "wakeful", "output", "payroll", "--follow", "--socket", str(daemon.socket)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as follower:
        assert follower.stdout is not None
        assert follower.stdout.readline() == "one\n"
        daemon.do(lambda d: d.finish("payroll"))
        assert follower.wait(60) == 0


def test_what_comes_from_outside_is_escaped_everywhere(daemon: RunningDaemon, wakeful: Command) -> None:
    """Names, messages, notes and reasons may contain any character. No verb prints a control character."""
    evil = "a\x1b[2J\nb\u202e"
    daemon.do(lambda d: d.declare(declare(evil, reads("in", "x.csv"), objective=evil)))
    daemon.do(lambda d: d.finish(evil, exit_code=1))
    daemon.do(lambda d: d.call(Note(name=evil, text=evil), author="x", key=None, run=None))
    daemon.do(lambda d: d.call(Sleep(name=evil, words=evil), author="x", key=None, run=None))
    for words in (
        ("list",),
        ("show", evil),
        ("log", evil),
        ("why", evil),
        ("plan",),
        ("plan", f"/project/{evil}"),
        ("sleep", evil),
        ("show", evil + "x"),
    ):
        done = wakeful(*words)
        shown = done.stdout + done.stderr
        assert "\x1b" not in shown and "\u202e" not in shown, words
    assert "\\x1b[2J\\nb" in wakeful("list").stdout


def test_colour_only_where_a_person_looks(rested: RunningDaemon) -> None:
    """Colour is used on a terminal, unless NO_COLOR is set or TERM is dumb. A pipe gets none."""

    def on_terminal(**environ: str) -> bytes:
        ours, theirs = pty.openpty()
        words = [sys.executable, "-m", "wakeful", "list", "--socket", str(rested.socket)]
        env = {**os.environ, "TERM": "xterm", **environ}
        subprocess.run(words, stdout=theirs, check=True, env=env, timeout=60)
        os.close(theirs)
        shown = os.read(ours, 65536)
        os.close(ours)
        return shown

    assert b"\x1b[" in on_terminal()
    assert b"\x1b[" not in on_terminal(NO_COLOR="1")
    assert b"\x1b[" not in on_terminal(TERM="dumb")
    assert "\x1b[" not in run_wakeful("list", "--socket", str(rested.socket)).stdout


def test_why_and_plan_speak_in_sentences(rested: RunningDaemon, wakeful: Command) -> None:
    """`why` takes a session or a path, `plan` prints waves. Both have a JSON form."""
    assert "payroll is suspended." in wakeful("why", "payroll").stdout
    assert "Run 1 left it" in wakeful("why", "/project/out.csv").stdout
    assert json.loads(wakeful("why", "payroll", "--json").stdout)["about"] == "session"
    told = wakeful("plan", "/project/salaries.csv").stdout
    assert re.search(r"1\. payroll: .*salaries.*\n2\. hr/filing: reads what payroll writes", told)
    assert "Nothing is owed" in wakeful("plan").stdout


def test_plan_takes_as_many_paths_as_a_shell_gives(rested: RunningDaemon, wakeful: Command) -> None:
    """`wakeful plan $(git ls-files)` is one request."""
    paths = [f"/project/some/folder/with/a/long/name/file-{number:05}.csv" for number in range(2000)]
    found = json.loads(wakeful("plan", "/project/salaries.csv", *paths, "--json").stdout)
    assert len(found["unmatched"]) == 2000 and len(found["waves"]) == 2


@pytest.mark.parametrize(
    "words",
    [("show", "nobody"), ("log", "nobody"), ("why", "nobody-knows"), ("output", "nobody"), ("follow", "nobody")],
)
def test_an_unknown_name_fails_with_words(rested: RunningDaemon, wakeful: Command, words: tuple[str, ...]) -> None:
    """The command exits with 1 and prints a line that says what to do.
    For `why`, an unknown path is an answer, not a failure."""
    done = wakeful(*words)
    if words[0] == "why":
        assert done.returncode == 0 and "No binding" in done.stdout
    else:
        assert (
            done.returncode == 1
            and done.stderr.startswith("wakeful: no session is called")
            and "wakeful list" in done.stderr
        )


def test_show_says_what_a_run_under_way_has_used(daemon: RunningDaemon, wakeful: Command) -> None:
    """The usage is measured now, not at the run's end. `--at` shows only recorded values."""
    daemon.do(lambda d: d.declare(PAYROLL))
    assert "0.2 s of CPU, 30 MB of memory" in " ".join(wakeful("show", "payroll").stdout.split())
    shown = json.loads(wakeful("show", "payroll", "--json").stdout)
    assert shown["run"]["usage"]["max_rss_bytes"] == 30_000_000
    assert "of CPU" not in wakeful("show", "payroll", "--at", str(shown["seq"])).stdout
