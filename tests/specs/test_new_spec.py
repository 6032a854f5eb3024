"""A new spec: it has the given answers, it passes `check`, and it never replaces a file."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeful.core.spec.bindings import CronBinding, FileBinding
from wakeful.core.spec.session import CommandRun, PromptRun, ScriptRun
from wakeful.errors import CallerError, SpecError
from wakeful.specs.folder_reading import read_folder, read_text
from wakeful.specs.new_spec import Answers, render_spec, write_new
from wakeful.specs.spec_builder import Surroundings

PROJECT = Surroundings("/project", "UTC")


def test_a_spec_from_answers_reads_as_a_person_would_write_it() -> None:
    """The text has comments, quotes only where needed, and bindings named after their files."""
    answers = Answers(
        files=("data/*.csv", "rates.yaml"), cron="0 6 1 * *", commits="src/", branch="main", writes=("out/report.md",),
        command=("python3", "report.py", "--all files"), objective="Report: monthly.", priority=70,
    )  # fmt: skip
    assert render_spec("hr/report", answers) == (
        "# hr/report: rests until one of its bindings changes, then runs.\n"
        "# Check it with `wakeful check`; see what would wake it with `wakeful plan`.\n"
        'objective: "Report: monthly."\n'
        "priority: 70  # 0 to 100, higher first\n"
        "bindings:\n"
        "  # What it reads: a new version of any of these wakes it (add `wake: false` to only read).\n"
        '  data: {file: "data/*.csv"}\n'
        "  rates: {file: rates.yaml}\n"
        "  code: {commits: src/, branch: main}\n"
        '  clock: {cron: "0 6 1 * *"}\n'
        "  # What it writes: never wakes it, and wakes the sessions that read it.\n"
        "  report: {file: out/report.md, access: write}\n"
        "run:\n"
        '  command: [python3, report.py, "--all files"]  # words, never a shell string\n'
        "  timeout: 10m\n"
    )


def test_no_answers_give_a_spec_that_checks() -> None:
    """Without any answer there is still something to start from."""
    spec, warnings = read_text(render_spec("x", Answers()).encode(), "x", "x.yaml", PROJECT)
    assert isinstance(spec.run, CommandRun)
    assert warnings == ()


TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\x00"), min_size=1, max_size=20)


@given(st.lists(TEXT, min_size=1, max_size=4), st.lists(TEXT, max_size=3), TEXT)
def test_any_answer_comes_back_as_it_was_given(words: list[str], files: list[str], objective: str) -> None:
    """Whatever the characters, the spec has exactly the given answers, or is refused with a message."""
    try:
        text = render_spec("x", Answers(command=tuple(words), files=tuple(files), objective=objective))
    except SpecError:
        return
    spec, _ = read_text(text.encode(), "x", "x.yaml", PROJECT)
    assert isinstance(spec.run, CommandRun)
    assert spec.run.argv == tuple(words)
    assert spec.objective == objective.strip()
    found = [binding.pattern for binding in spec.bindings if isinstance(binding, FileBinding)]
    # Only `~` itself and paths below it are a home folder: `~0` is a name.
    assert [pattern for pattern in found if not pattern.startswith("/")] == [
        file for file in files if not f"{file}/".startswith(("/", "~/"))
    ]


def test_a_script_keeps_its_lines() -> None:
    """Several lines become a block, without the indentation they were pasted with."""
    text = render_spec(
        "x", Answers(script="\n    set -x\n    for i in 1 2; do\n      echo $i: x\n    done\n", every="5m")
    )
    spec, _ = read_text(text.encode(), "x", "x.yaml", PROJECT)
    assert isinstance(spec.run, ScriptRun)
    assert spec.run.text == "set -x\nfor i in 1 2; do\n  echo $i: x\ndone\n"


@pytest.mark.parametrize(
    "name", ["", "-x", ".x", "a b", "a//b", "../x", "/x", "agents/x", "x@", "a/-b", "x" * 201, "a\nb", "a\x00"]
)
def test_a_name_that_cannot_be_one_is_refused(name: str) -> None:
    """A bad name is refused before anything is written."""
    with pytest.raises(CallerError):
        render_spec(name, Answers())


def test_an_answer_that_cannot_stand_in_a_spec_is_refused() -> None:
    """Bad values are refused with the messages of `check`."""
    with pytest.raises(SpecError, match="is not a duration"):
        render_spec("x", Answers(every="soon"))
    with pytest.raises(CallerError, match="a command and a script"):
        render_spec("x", Answers(command=("a",), script="b"))


def test_a_file_that_exists_is_never_replaced(tmp_path: Path) -> None:
    """A second write keeps the first file and leaves no half-written one, and the folder passes `check`."""
    specs = tmp_path / "sessions.d"
    path = write_new(specs, "hr/a", Answers(files=("a.csv",), cron="@daily"))
    before = path.read_text()
    with pytest.raises(CallerError, match="exists already; choose another name"):
        write_new(specs, "hr/a", Answers())
    assert path.read_text() == before
    assert [found.name for found in path.parent.iterdir()] == ["a.yaml"]
    reading = read_folder(specs)
    assert reading.problems == {}
    assert any(isinstance(binding, CronBinding) for binding in reading.sessions["hr/a"].bindings)


def test_an_unknown_agent_is_told_before_the_file_is_written(tmp_path: Path) -> None:
    """The new spec would be refused at once, so it is not written."""
    with pytest.raises(CallerError, match=r"write agents/hr\.yaml first"):
        write_new(tmp_path / "sessions.d", "a", Answers(agent="hr"))
    assert not (tmp_path / "sessions.d" / "a.yaml").exists()


def test_a_prompt_is_put_to_an_agent(tmp_path: Path) -> None:
    """The prompt keeps its text, whatever characters it has. Without an agent it is refused."""
    text = render_spec("page", Answers(prompt='Say "what": {changed}\nand why.', agent="docs"))
    spec, _ = read_text(text.encode(), "page", "page.yaml", Surroundings("/"))
    assert (
        spec.run == PromptRun(prompt='Say "what": {changed}\nand why.', timeout_seconds=600.0) and spec.agent == "docs"
    )
    with pytest.raises(CallerError, match="no agent to answer it"):
        render_spec("page", Answers(prompt="x"))
    with pytest.raises(CallerError, match="a command and a prompt"):
        render_spec("page", Answers(prompt="x", agent="a", command=("true",)))
