"""The declarations report each look's differences as one batch, nothing if nothing changed, and keep the last good
spec.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from thread_user import acting_as
from wakeful.core.record.observations import AgentsRead, SettingsRead, SpecsRead
from wakeful.core.spec.agent import AgentSpec
from wakeful.settings import ProjectReader
from wakeful.sources.declarations import LEAST_POLL_SECONDS, Declarations

GOOD = "objective: {}\nrun: {{command: [echo]}}\n"


class Project:
    """A folder of specs on disk, and the reports of its declarations since the last look."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.specs = folder / "sessions.d"
        self.specs.mkdir()
        self.reports: list[SpecsRead | SettingsRead | AgentsRead] = []
        self.declarations = Declarations(ProjectReader(self.specs), self.reports.append)

    def write(self, name: str, text: str) -> None:
        path = self.specs / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def look(self) -> list[SpecsRead | SettingsRead | AgentsRead]:
        self.reports.clear()
        self.declarations.take(self.declarations.look())
        return list(self.reports)

    def batch(self) -> tuple[dict[str, str | None], tuple[str, ...], dict[str, str]]:
        """Return the only SpecsRead of a look: declared objectives, removed names and refusals."""
        (report,) = self.look()
        assert isinstance(report, SpecsRead)
        return {d.spec.name: d.spec.objective for d in report.declared}, report.removed, report.refused


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project with two good sessions, not looked at yet."""
    project = Project(tmp_path)
    project.write("a", GOOD.format("one"))
    project.write("hr/b", GOOD.format("two"))
    return project


def test_the_first_look_reports_everything(project: Project) -> None:
    """Settings come first, so that the sessions declared after them find their concurrency."""
    settings, specs = project.look()
    assert isinstance(settings, SettingsRead)
    assert isinstance(specs, SpecsRead)
    assert [declaration.spec.name for declaration in specs.declared] == ["a", "hr/b"]
    assert specs.declared[0].spec.root == str(project.folder)


def test_the_first_look_at_an_empty_folder_is_reported_too(tmp_path: Path) -> None:
    """The core must learn that nothing is declared. Otherwise sessions of the log would stay armed."""
    assert Project(tmp_path).look()[1] == SpecsRead()


def test_nothing_new_is_no_report(project: Project) -> None:
    """A look that finds nothing new reports nothing, also after a touch."""
    project.look()
    os.utime(project.specs / "a.yaml")
    assert project.look() == []


def test_differences_come_as_one_batch(project: Project) -> None:
    """An edit, a new file, a removed file and a broken file are one report."""
    project.look()
    project.write("a", GOOD.format("one, edited"))
    project.write("c", GOOD.format("three"))
    project.write("d", "priorty: 3")
    (project.specs / "hr" / "b.yaml").unlink()
    words = "sessions.d/d.yaml:1:1: unknown key 'priorty' in this session; did you mean 'priority'?"
    assert project.batch() == ({"a": "one, edited", "c": "three"}, ("hr/b",), {"d": words})
    assert project.look() == []


def test_a_changed_comment_is_declared_by_its_digest(project: Project) -> None:
    """The text is part of the record even if the spec means the same."""
    project.look()
    project.write("a", "# why\n" + GOOD.format("one"))
    assert project.batch() == ({"a": "one"}, (), {})


@pytest.mark.parametrize("text", ["", "objective: [", "objective: x\nrun: {}\n"])
def test_a_broken_file_keeps_its_last_good_spec(project: Project, text: str) -> None:
    """A half-saved file is refused with a message, and neither removes nor declares the session.

    The look after the repair lifts the refusal.
    """
    project.look()
    project.write("a", text)
    declared, removed, refused = project.batch()
    assert (declared, removed, list(refused)) == ({}, (), ["a"])
    assert refused["a"].startswith("sessions.d/a.yaml:")
    assert project.look() == []
    project.write("a", GOOD.format("one"))
    assert project.batch() == ({"a": "one"}, (), {})


def test_a_broken_file_that_vanishes_is_removed(project: Project) -> None:
    """The session of a broken file is removed with the file, and so is the refusal of a file that never was valid."""
    project.write("never", "a: [")
    project.look()
    project.write("a", "a: [")
    project.look()
    (project.specs / "a.yaml").unlink()
    (project.specs / "never.yaml").unlink()
    assert project.batch() == ({}, ("a", "never"), {})


def test_an_edited_agent_wakes_no_one(project: Project) -> None:
    """An agent's file applies from the next wake.

    An edit of it declares no session. A mistake in it is reported, and withdrawn when it is mended.
    """
    project.write("agents/hr", "prompt: Be careful.")
    project.write("a", "agent: hr\n" + GOOD.format("one"))
    project.look()
    project.write("agents/hr", "prompt: Be very careful.")
    (agents,) = project.look()
    assert agents == AgentsRead(agents={"hr": AgentSpec(name="hr", prompt="Be very careful.")})
    project.write("agents/hr", "promt: x")
    agents, specs = project.look()
    assert (specs.declared, specs.removed, list(specs.refused)) == ((), (), ["agents/hr"])
    assert agents == AgentsRead(
        agents={"hr": AgentSpec(name="hr", prompt="Be very careful.")}, refused={"hr": specs.refused["agents/hr"]}
    )
    project.write("agents/hr", "prompt: x")
    agents, specs = project.look()
    assert (agents, specs) == (
        AgentsRead(agents={"hr": AgentSpec(name="hr", prompt="x")}),
        SpecsRead(removed=("agents/hr",)),
    )
    assert project.look() == []


def test_agents_are_told_before_the_specs_that_ask_them(project: Project) -> None:
    """Agents are reported before the specs, at the first reading and at each later one.

    The file of a prompt is watched, too.
    """
    (project.folder / "role.md").write_text("Be exact.")
    project.write("agents/docs", "prompt: {file: role.md}\nmodel: openai:a")
    project.write("a", "agent: docs\nobjective: x\nrun: {prompt: Do it.}")
    assert [type(report) for report in project.look()] == [SettingsRead, AgentsRead, SpecsRead]
    assert str(project.folder) in project.declarations.folders()
    assert project.declarations.is_news(str(project.folder), "role.md") and not project.declarations.is_news(
        str(project.folder), "other.md"
    )
    (project.folder / "role.md").write_text("Be brief.")
    (agents,) = project.look()
    assert isinstance(agents, AgentsRead) and agents.agents["docs"].prompt == "Be brief."


def test_an_agent_that_vanishes_holds_its_sessions_at_their_last_spec(project: Project) -> None:
    """The session is refused with a message, not removed. It is declared again when the agent returns."""
    project.write("agents/hr", "prompt: x")
    project.write("a", "agent: hr\n" + GOOD.format("one"))
    project.look()
    (project.specs / "agents" / "hr.yaml").unlink()
    words = "sessions.d/a.yaml:1:8: agent 'hr' does not exist; write agents/hr.yaml, or remove the key"
    assert project.look() == [AgentsRead(), SpecsRead(refused={"a": words})]
    project.write("agents/hr", "prompt: x")
    agents, specs = project.look()
    assert isinstance(specs, SpecsRead) and [one.spec.objective for one in specs.declared] == ["one"]
    assert agents == AgentsRead(agents={"hr": AgentSpec(name="hr", prompt="x")})


def test_settings_are_read_again(project: Project) -> None:
    """A new wakeful.yaml is one report. A broken one keeps the last good settings, and the report says why."""
    project.look()
    path = project.folder / "wakeful.yaml"
    path.write_text("concurrency: 7")
    (report,) = project.look()
    assert isinstance(report, SettingsRead)
    assert report.settings.concurrency == 7
    path.write_text("concurrency: many")
    assert project.batch() == ({}, (), {"wakeful.yaml": "wakeful.yaml:1:14: concurrency: 'many' is not a whole number"})
    path.write_text("concurrency: 7")
    assert project.batch() == ({}, ("wakeful.yaml",), {})


def test_new_defaults_are_declared_in_every_session_they_change(project: Project) -> None:
    """`defaults` of wakeful.yaml reach the sessions without an edit of their files.

    Only the sessions whose spec differs are declared.
    """
    project.write("a", "priority: 9\n" + GOOD.format("one"))
    project.look()
    (project.folder / "wakeful.yaml").write_text("defaults: {priority: 9}")
    assert project.batch() == ({"hr/b": "two"}, (), {})


def test_the_folders_to_watch_are_named(project: Project) -> None:
    """These are every folder of specs, and the folder in which wakeful.yaml and sessions.d/ may appear or vanish."""
    project.look()
    names = [os.path.relpath(folder, project.folder) for folder in project.declarations.folders()]
    assert names == ["sessions.d", "sessions.d/hr", "."]
    project.write("legal/c", GOOD.format("three"))
    project.look()
    assert str(project.specs / "legal") in project.declarations.folders()


def test_a_folder_that_was_moved_away_removes_its_sessions_and_brings_them_back(project: Project) -> None:
    """Without the folder nothing is declared. When it returns, all sessions are."""
    project.look()
    away = project.specs.rename(project.folder / "away")
    assert project.batch() == ({}, ("a", "hr/b"), {})
    away.rename(project.specs)
    assert project.batch()[0] == {"a": "one", "hr/b": "two"}


@contextmanager
def out_of_reach(folder: Path) -> Iterator[None]:
    """Make the folder unreadable, and act as an ordinary user if the test runs as root."""
    folder.chmod(0)
    try:
        with acting_as(65534) if os.geteuid() == 0 else nullcontext():
            yield
    finally:
        folder.chmod(0o755)


def test_a_folder_that_cannot_be_listed_is_not_an_empty_one(project: Project) -> None:
    """An unreadable folder is not a deleted one.

    Its sessions stay, and the folder is refused with a message until it is readable again.
    """
    project.look()
    with out_of_reach(project.folder):
        declared, removed, refused = project.batch()
    assert (declared, removed) == ({}, ())
    assert refused == {
        "sessions.d": "sessions.d/:1:1: cannot be listed: Permission denied; check its permissions",
        "wakeful.yaml": "wakeful.yaml:1:1: cannot be read: Permission denied; check its permissions",
    }
    assert project.batch() == ({}, ("sessions.d", "wakeful.yaml"), {})


def test_a_reopened_session_is_declared_once_more(project: Project) -> None:
    """A session that is opened again needs its declaration although its file did not change.

    If the file is gone, the report says so.
    """
    project.look()
    project.reports.clear()
    project.declarations.report_again("a")
    (report,) = project.reports
    assert isinstance(report, SpecsRead)
    assert [declaration.spec.name for declaration in report.declared] == ["a"]
    project.reports.clear()
    project.declarations.report_again("unheard-of")
    assert project.reports == [SpecsRead(removed=("unheard-of",))]


def test_a_reopened_session_whose_file_is_broken_is_not_said_to_be_gone(project: Project) -> None:
    """The problem is reported once more, with the last good spec if this daemon knows one."""
    project.write("hr/b", "nonsense: 1\n")
    project.look()
    project.write("a", "nonsense: 1\n")
    project.look()
    for name, known in (("a", ["a"]), ("hr/b", [])):
        project.reports.clear()
        project.declarations.report_again(name)
        (report,) = project.reports
        assert isinstance(report, SpecsRead) and list(report.refused) == [name] and report.removed == ()
        assert [declaration.spec.name for declaration in report.declared] == known


def test_looking_unasked_is_paced_by_what_it_costs(project: Project) -> None:
    """A small folder is polled often."""
    project.look()
    project.look()
    assert LEAST_POLL_SECONDS <= project.declarations.poll_seconds < 300
