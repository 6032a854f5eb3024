"""Templates: one session for each file that a glob matches, whatever the names of the files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from wakeful.core.spec.bindings import FileBinding
from wakeful.core.spec.session import CommandRun, PromptRun, SessionSpec, find_template
from wakeful.settings import ProjectReader
from wakeful.specs.folder_reading import FolderReading, read_folder

TICKET = """\
for_each: tickets/*.md
objective: Answer the ticket {stem}.
bindings:
  ticket: {file: "{path}"}
  answer: {file: "answers/{stem}.txt", access: write}
run: {command: [cp, "{path}", "answers/{stem}.txt"]}
"""


def project(folder: Path, *files: str, template: str = TICKET) -> Path:
    (folder / "sessions.d").mkdir(exist_ok=True)
    (folder / "sessions.d" / "ticket@.yaml").write_text(template)
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(file)
    return folder


def read(folder: Path, previous: FolderReading | None = None) -> FolderReading:
    return read_folder(folder / "sessions.d", previous=previous)


def one(folder: Path, *files: str, template: str) -> SessionSpec:
    (spec,) = read(project(folder, *files, template=template)).sessions.values()
    return spec


def test_each_file_of_the_glob_is_a_session_with_its_path_and_stem_filled_in(tmp_path: Path) -> None:
    """Each file gives the session `ticket@<stem>`. The template itself is not a session."""
    reading = read(project(tmp_path, "tickets/17.md", "tickets/18.md", "tickets/notes.txt"))
    assert sorted(reading.sessions) == ["ticket@17", "ticket@18"] and not reading.problems
    spec = reading.sessions["ticket@17"]
    assert spec.objective == "Answer the ticket 17."
    assert isinstance(spec.run, CommandRun) and spec.run.argv == ("cp", "tickets/17.md", "answers/17.txt")
    assert [b.pattern for b in spec.bindings if isinstance(b, FileBinding)] == ["tickets/17.md", "answers/17.txt"]


def test_sessions_come_and_go_with_their_files_and_the_others_stay_the_very_same(tmp_path: Path) -> None:
    """Callers detect an unchanged spec by identity."""
    first = read(project(tmp_path, "tickets/a.md", "tickets/b.md"))
    (tmp_path / "tickets/b.md").rename(tmp_path / "tickets/c.md")
    second = read(tmp_path, first)
    assert sorted(second.sessions) == ["ticket@a", "ticket@c"]
    assert second.sessions["ticket@a"] is first.sessions["ticket@a"]


def test_a_template_in_a_sub_folder_names_its_sessions_below_it(tmp_path: Path) -> None:
    """hr/ticket@.yaml gives hr/ticket@a."""
    project(tmp_path, "tickets/a.md")
    (tmp_path / "sessions.d/hr").mkdir()
    (tmp_path / "sessions.d/ticket@.yaml").rename(tmp_path / "sessions.d/hr/ticket@.yaml")
    assert list(read(tmp_path).sessions) == ["hr/ticket@a"]


def test_doubled_braces_are_braces_and_keys_are_left_alone(tmp_path: Path) -> None:
    """Braces are escaped as in format strings."""
    spec = one(
        tmp_path, "t/a.md", template='for_each: t/*.md\nrun: {command: [printf, "{{print $1}} {stem}", "{path}"]}\n'
    )
    assert isinstance(spec.run, CommandRun) and spec.run.argv == ("printf", "{print $1} a", "t/a.md")


WRONG = [
    (
        "objective: about {steam}",
        "2:12: {steam} is not known; a template has {path} and {stem}, and {{ stands for a brace itself",
    ),
    ("objective: 'a } b'", "2:12: a single } means nothing in a template; write }} for the character itself"),
    (
        "objective: about {}",
        "2:12: {} is not known; a template has {path} and {stem}, and {{ stands for a brace itself",
    ),
    (
        "root: 'x/{stem}'",
        "2:7: root is where for_each looks, so it holds no {path} or {stem}; use run.cwd for a folder of each",
    ),
    (
        "run: {script: 'cat {path}'}",
        '2:15: a file\'s name never becomes part of a script; pass it on with env: {FILE: "{path}"} and write "$FILE" here',
    ),
    (
        "run: {command: [sh, -c, 'cat {path}']}",
        "2:25: a file's name would become code of sh here, and whoever names a file would say what is run; "
        'pass it by a variable, env: {FILE: "{path}"}, and use that there',
    ),
    (
        "run: {command: [env, bash, -ec, 'cat {stem}']}",
        "2:33: a file's name would become code of bash here, and whoever names a file would say what is run; "
        'pass it by a variable, env: {FILE: "{path}"}, and use that there',
    ),
    (
        "secrets: ['{stem}']",
        "2:11: a file's name does not say what a session may do, so secrets holds no {path} or {stem}",
    ),
    (
        "network: ['{stem}:443']",
        "2:11: a file's name does not say what a session may do, so network holds no {path} or {stem}",
    ),
    (
        "run: {command: ['true'], env: {BASH_ENV: '{path}'}}",
        "2:42: programs take this variable for code, or for where code lies, so it holds no {path} or {stem}; use a name of your own, such as FILE",
    ),
    ("priorty: 5", "2:1: unknown key 'priorty' in this session; did you mean 'priority'?"),
    ("priority: 500", "2:11: priority is 500; expected at most 100"),
]


@pytest.mark.parametrize(("text", "words"), WRONG, ids=[words[:40] for _, words in WRONG])
def test_what_is_wrong_in_a_template_is_told_once_with_its_place(text: str, words: str, tmp_path: Path) -> None:
    """This holds also if no file matches yet."""
    for files in ((), ("t/a.md", "t/b.md")):
        reading = read(project(tmp_path, *files, template=f"for_each: t/*.md\n{text}\n"))
        assert [str(problem) for problem in reading.problems["sessions.d/ticket@.yaml"]] == [
            f"sessions.d/ticket@.yaml:{words}"
        ]
        assert not reading.sessions and list(reading.refused) == ["ticket@"]


def test_a_script_keeps_its_own_braces(tmp_path: Path) -> None:
    """Shell code has many braces, and no value is put into a script."""
    text = "for_each: t/*.md\nrun:\n  env: {FILE: '{path}'}\n  script: |\n    f() { echo \"${FILE}\"; }; f\n"
    spec = one(tmp_path, "t/a.md", template=text)
    assert spec.run is not None and "${FILE}" in getattr(spec.run, "text", "") and spec.run.env == {"FILE": "t/a.md"}


def test_for_each_without_the_mark_and_the_mark_without_for_each_are_refused(tmp_path: Path) -> None:
    """Each message says what to rename or to add."""
    project(tmp_path, template="objective: x\n")
    (tmp_path / "sessions.d/plain.yaml").write_text("objective: x\nfor_each: t/*.md\n")
    told = read(tmp_path).refused
    assert told["ticket@"].endswith(
        "a name that ends in @ is a template; add `for_each: tickets/*.md`, or rename the file"
    )
    assert told["plain"].endswith(
        "plain.yaml:2:1: for_each makes a template, and a template's name ends in @; rename the file to plain@.yaml"
    )


@pytest.mark.parametrize("name", ["@.yaml", "a@b@.yaml"])
def test_a_template_has_one_mark_behind_a_word(name: str, tmp_path: Path) -> None:
    """Otherwise the template of a name would be ambiguous."""
    project(tmp_path)
    (tmp_path / "sessions.d" / name).write_text(TICKET)
    assert "has one @, at its end and behind a word" in read(tmp_path).problems[f"sessions.d/{name}"][0].text


def test_the_same_stem_in_two_folders_is_refused_and_says_both(tmp_path: Path) -> None:
    """The other files are sessions nevertheless."""
    reading = read(
        project(tmp_path, "t/a/x.md", "t/b/x.md", "t/b/y.md", template="for_each: t/**/*.md\nobjective: x\n")
    )
    assert list(reading.sessions) == ["ticket@y"]
    assert reading.refused == {
        "ticket@x": "sessions.d/ticket@.yaml:1:11: for_each: 't/a/x.md' and 't/b/x.md' would both be session ticket@x; rename one of the files"
    }


def test_names_with_spaces_and_signs_are_made_fit_and_the_stem_stays_as_it_is(tmp_path: Path) -> None:
    """A session's name can be typed. The run gets the real name of the file."""
    spec = one(tmp_path, "tickets/Fix: login bug (2).md", template=TICKET)
    assert spec.name == "ticket@Fix-login-bug-2" and spec.objective == "Answer the ticket Fix: login bug (2)."


def test_a_file_name_is_data_never_yaml(tmp_path: Path) -> None:
    """Quotes, colons and braces in the name of a file stay part of the value."""
    name = '"], priority: 99, x: {stem} #.md'
    spec = one(tmp_path, f"t/{name}", template='for_each: t/*.md\nrun: {command: [cat, "{path}"]}\nobjective: x\n')
    assert spec.priority == 50 and isinstance(spec.run, CommandRun) and spec.run.argv == ("cat", f"t/{name}")


def test_a_file_name_is_no_part_of_a_prompt(tmp_path: Path) -> None:
    """A stranger may choose the name of a file, and an agent obeys its prompt.

    Other braces in a prompt stay as they are.
    """
    template = "for_each: t/*.md\nobjective: x\nagent: a\nrun: {prompt: %s}\n"
    project(tmp_path, "t/a.md", template=template % '"Answer {path}."')
    (tmp_path / "sessions.d" / "agents").mkdir()
    (tmp_path / "sessions.d" / "agents" / "a.yaml").write_text("model: anthropic:claude-sonnet-4-5\n")
    assert "never becomes part of a prompt" in read(tmp_path).refused["ticket@"]
    (tmp_path / "sessions.d" / "ticket@.yaml").write_text(template % '"Answer as {\\"a\\": 1}."')
    assert read(tmp_path).sessions["ticket@a"].run == PromptRun(prompt='Answer as {"a": 1}.')


def test_a_file_name_in_a_pattern_means_itself(tmp_path: Path) -> None:
    """`[draft]*.md` is one file, not many."""
    spec = one(tmp_path, "tickets/[draft]*.md", template=TICKET)
    pattern = next(b.pattern for b in spec.bindings if isinstance(b, FileBinding))
    assert pattern == "tickets/[[]draft][*].md"


ODD = [b"new\nline.md", b"\xff\xfe.md", b"-rf.md", b"---.md", b"\x1b[31m.md", b"x" * 220 + b".md"]


@pytest.mark.parametrize("name", ODD, ids=[str(i) for i in range(len(ODD))])
def test_odd_file_names_are_refused_with_words_and_harm_nobody(name: bytes, tmp_path: Path) -> None:
    """Each refusal is one printable line, and the other files are declared."""
    project(tmp_path, "tickets/good.md")
    with open(os.path.join(os.fsencode(tmp_path), b"tickets", name), "wb"):
        reading = read(tmp_path)
    assert list(reading.sessions) == ["ticket@good"]
    ((key, words),) = reading.refused.items()
    assert (
        key.startswith("ticket@") and key.isprintable() and words.isprintable() and words.endswith("; rename the file")
    )


def test_hidden_files_and_what_editors_leave_are_no_sessions(tmp_path: Path) -> None:
    """The same names are ignored as in sessions.d itself."""
    reading = read(
        project(
            tmp_path,
            "t/.#a.md",
            "t/.hidden/b.md",
            "t/node_modules/c.md",
            "t/d.md~",
            "t/e.md",
            template="for_each: t/**\nobjective: x\n",
        )
    )
    assert list(reading.sessions) == ["ticket@e"] and not reading.problems


def test_many_unfit_files_are_counted_not_listed(tmp_path: Path) -> None:
    """A wrong glob gives a short list, not a long one."""
    reading = read(project(tmp_path, *(f"tickets/-{i}.md" for i in range(50))))
    assert len(reading.refused) == 21 and "30 more files cannot be sessions" in reading.refused["ticket@…"]


def test_a_spec_of_its_own_takes_a_session_out_of_its_template(tmp_path: Path) -> None:
    """ticket@a.yaml gives one of a thousand sessions a spec of its own."""
    project(tmp_path, "tickets/a.md", "tickets/b.md")
    (tmp_path / "sessions.d/ticket@a.yaml").write_text("objective: special\n")
    reading = read(tmp_path)
    assert reading.sessions["ticket@a"].objective == "special" and sorted(reading.sessions) == ["ticket@a", "ticket@b"]


def test_links_round_in_circles_end(tmp_path: Path) -> None:
    """A link back up is entered once."""
    project(tmp_path, "t/a.md", template="for_each: t/**/*.md\nobjective: x\n")
    (tmp_path / "t/loop").symlink_to(tmp_path / "t")
    (tmp_path / "t/nothing.md").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "t/pipe.md")
    assert list(read(tmp_path).sessions) == ["ticket@a"]


def test_defaults_are_merged_under_a_template_and_keep_their_braces(tmp_path: Path) -> None:
    """The defaults of wakeful.yaml are the same for every spec."""
    project(tmp_path, "tickets/a.md")
    (tmp_path / "wakeful.yaml").write_text("defaults:\n  priority: 7\n  run: {env: {FORMAT: '{json}'}}\n")
    spec = ProjectReader(tmp_path / "sessions.d", {}).read().declared["ticket@a"].spec
    assert spec.priority == 7 and spec.run is not None and spec.run.env == {"FORMAT": "{json}"}


def test_what_a_value_becomes_is_judged_for_each_file(tmp_path: Path) -> None:
    """A value from the name of a file may not be a number."""
    reading = read(
        project(tmp_path, "t/5.md", "t/five.md", template="for_each: t/*.md\nobjective: x\npriority: '{stem}'\n")
    )
    assert reading.sessions["ticket@5"].priority == 5
    assert reading.refused == {
        "ticket@five": "sessions.d/ticket@.yaml:1:11: priority: 'five' is not a whole number (for 't/five.md')"
    }


def test_the_folders_of_a_glob_are_told_also_where_they_are_not_there_yet(tmp_path: Path) -> None:
    """A watch on these folders reports a change there."""
    project(tmp_path)
    assert str(tmp_path) in read(tmp_path).folders
    (tmp_path / "tickets").mkdir()
    assert str(tmp_path / "tickets") in read(tmp_path).folders


def test_only_files_that_come_and_go_are_news(tmp_path: Path) -> None:
    """The content of a ticket concerns bindings, not declarations."""
    reading = ProjectReader(project(tmp_path, "tickets/a.md") / "sessions.d", {}).read()
    folder = str(tmp_path / "tickets")
    (tmp_path / "tickets/b.md").touch()
    (tmp_path / "tickets/b.txt").touch()
    assert [name for name in ("a.md", "b.md", "b.txt") if reading.is_news(folder, name)] == ["b.md"]
    (tmp_path / "tickets/a.md").unlink()
    assert reading.is_news(folder, "a.md")


def test_names_tell_their_template() -> None:
    """The first @ of the last part counts."""
    names = ["ticket@17", "hr/ticket@a@b", "ticket@", "plain", "a@b/plain"]
    assert [find_template(name) for name in names] == ["ticket@", "hr/ticket@", "ticket@", None, None]
