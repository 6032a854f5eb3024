"""A folder of specs: names, defaults, separate refusals of bad files, and a second reading of changed files only."""

import os
import time
from pathlib import Path

import pytest

from wakeful.core.spec.bindings import (
    CommitsBinding,
    CronBinding,
    EveryBinding,
    FileBinding,
    MessageBinding,
    ProbeBinding,
    ServiceBinding,
    SessionBinding,
)
from wakeful.core.spec.session import (
    CommandRun,
    PromptRun,
    Retention,
    ScriptRun,
    SessionSpec,
    Window,
    digest_noticed,
)
from wakeful.specs.command_words import find_program
from wakeful.specs.folder_reading import FolderReading, read_folder, read_text
from wakeful.specs.problem import RefusedSpec
from wakeful.specs.spec_builder import Surroundings
from wakeful.specs.value_parsers import find_local_zone


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / "sessions.d" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def read(folder: Path, previous: FolderReading | None = None) -> FolderReading:
    return read_folder(folder / "sessions.d", Surroundings(str(folder), "Europe/Berlin"), previous=previous)


def parse(text: str, root: str = "/project") -> SessionSpec:
    return read_text(text.encode(), "n", "n.yaml", Surroundings(root, "Europe/Berlin"))[0]


PLAIN = "objective: x\nrun: {command: [echo]}\n"

EVERYTHING = """
agent: hr
objective: Every key.
priority: 80
tags: [a, b]
enabled: no
root: sub
when: all
pace: 1h
window: 22:00-06:00
timezone: Asia/Shanghai
first: adopt
conversation: continue
concurrency: {pool: gpu}
bindings:
  files: {file: "data/**/*.csv", exclude: ["*.bak"], compare: names, missing: wait, settle: 500ms, stale: allow}
  big: {file: /srv/big, compare: stat, wake: false, settle: 0}
  out: {file: out/, access: write}
  again: {file: out2, access: write, wake: true}
  code: {commits: ./src//, repo: ../r, branch: 3.10, each_commit: true, line: all, export: yes}
  monthly: {cron: "0  6 1 * *"}
  daily: {cron: "@daily", timezone: UTC, catch_up: none, catch_up_window: 2d, overlap: skip, jitter: 5m}
  often: {every: 30m}
  mail: {message: any, wake: false}
  up: {session: hr/payroll}
  broken: {session: hr/payroll, on: failed}
  fx: {probe: [psql, -Atc, "select 1"], check_every: 1m, timeout: 5s}
  db: {service: "tcp://localhost:5432"}
run:
  script: |
    echo one
    echo two
  cwd: there
  env: {LANG: C, N: 1}
  timeout: 5m
  grace: 0
  retries: 0
  check: [test, -f, out]
"""


def test_every_key_reaches_the_core_typed_and_resolved() -> None:
    """A spec with every key becomes exactly the values that the core expects, defaults included."""
    day = 86400.0
    assert parse(EVERYTHING) == SessionSpec(
        name="n",
        root="/project/sub",
        agent="hr",
        objective="Every key.",
        priority=80,
        tags=("a", "b"),
        enabled=False,
        when="all",
        pace_seconds=3600.0,
        window=Window(22 * 60, 6 * 60, "Asia/Shanghai"),
        first="adopt",
        conversation="continue",
        pool="gpu",
        bindings=(
            FileBinding(
                name="files", pattern="data/**/*.csv", exclude=("*.bak",), compare="names", missing="wait",
                settle_seconds=0.5, settle_max_seconds=10.0, stale_allowed=True,
            ),
            FileBinding(name="big", pattern="/srv/big", compare="stat", wake=False, settle_seconds=0.0, settle_max_seconds=2.0),
            FileBinding(name="out", pattern="out/", access="write", wake=False),
            FileBinding(name="again", pattern="out2", access="write", wake=True),
            CommitsBinding(name="code", path="src", repo="../r", branch="3.10", each_commit=True, export=True, line="all"),
            CronBinding(name="monthly", expression="0 6 1 * *", timezone="Asia/Shanghai"),
            CronBinding(
                name="daily", expression="@daily", timezone="UTC", catch_up="none", catch_up_window_seconds=2 * day,
                overlap="skip", jitter_seconds=300.0,
            ),
            EveryBinding(name="often", period_seconds=1800.0),
            MessageBinding(name="mail", wake=False),
            SessionBinding(name="up", session="hr/payroll"),
            SessionBinding(name="broken", session="hr/payroll", on="failed"),
            ProbeBinding(name="fx", argv=("psql", "-Atc", "select 1"), check_every_seconds=60.0, timeout_seconds=5.0),
            ServiceBinding(name="db", url="tcp://localhost:5432", wake=False),
        ),
        run=ScriptRun(
            text="echo one\necho two\n", cwd="there", env={"LANG": "C", "N": "1"}, timeout_seconds=300.0, grace_seconds=0.0,
            retries=0, check=("test", "-f", "out"),
        ),
    )  # fmt: skip


def test_a_small_spec_has_its_defaults() -> None:
    """A command alone gives the documented defaults and an implied mailbox, and nothing else."""
    spec = parse("run: {command: [true]}")
    assert spec == SessionSpec(
        name="n", root="/project", bindings=(MessageBinding(name="message"),), run=CommandRun(argv=("true",))
    )
    assert (spec.run.timeout_seconds, spec.run.grace_seconds, spec.run.retries, spec.priority) == (3600.0, 10.0, 2, 50)


def test_a_prompt_is_put_to_the_agent_and_not_tried_again_unless_told() -> None:
    """Each attempt costs money. The other keys of a run are as for commands."""
    spec = parse(
        "agent: docs\nrun: {prompt: Do it., timeout: 5m, check: [make, test]}\ntools: {shell: deny, mcp:git/log: ask}"
    )
    assert spec.run == PromptRun(prompt="Do it.", timeout_seconds=300.0, check=("make", "test"))
    assert (spec.run.retries, spec.tools, spec.program) == (0, {"shell": "deny", "mcp:git/log": "ask"}, None)
    assert parse("agent: docs\nrun: {prompt: Do it., retries: 3}").run.retries == 3


def test_a_session_without_a_run_has_no_mailbox_of_its_own() -> None:
    """A session without a run is not woken by the messages in it."""
    assert parse("objective: talk").bindings == ()


def test_home_is_found_and_the_zone_of_the_machine_is_the_default(private_environment: Path) -> None:
    """`~` becomes the person's home, and a cron without a zone gets the zone of the machine."""
    spec = parse("root: ~\nbindings: {a: {file: ~/x/*.csv}, b: {cron: '0 6 * * *'}}")
    assert spec.root == str(private_environment)
    assert spec.bindings[0].pattern == f"{private_environment}/x/*.csv"
    assert spec.bindings[1].timezone == "Europe/Berlin"


@pytest.mark.parametrize(
    ("environ", "target", "zone"),
    [
        ({"TZ": "Asia/Shanghai"}, None, "Asia/Shanghai"),
        ({"TZ": ":Europe/Paris"}, None, "Europe/Paris"),
        ({"TZ": "CST-8"}, "Europe/Berlin", None),
        ({}, "America/New_York", "America/New_York"),
        ({"TZ": ""}, "Etc/UTC", "Etc/UTC"),
        ({}, None, "UTC"),
    ],
)
def test_the_machine_s_zone_is_named(
    environ: dict[str, str], target: str | None, zone: str | None, tmp_path: Path
) -> None:
    """TZ takes precedence over /etc/localtime, and a zone without a name is not guessed."""
    localtime = tmp_path / "localtime"
    if target:
        localtime.symlink_to(f"/usr/share/zoneinfo/{target}")
    assert find_local_zone(environ, str(localtime)) == zone


PROGRAMS = [
    (("python3", "tools/report.py", "--all"), None, "tools/report.py"),
    (("python3", "-W", "error", "-u", "./tools/report.py"), None, "tools/report.py"),
    (("/usr/bin/env", "LANG=C", "python3.11", "a.py"), None, "a.py"),
    (("python3", "-m", "tools.report", "x.py"), None, None),
    (("sh", "-c", "./x.sh"), None, None),
    (("./x.sh",), None, "x.sh"),
    (("bin/plain",), None, "bin/plain"),
    (("bin/absent",), None, None),
    (("plain",), None, None),
    (("bash", "plain"), "bin", "bin/plain"),
    (("python3", "../tools/report.py"), "bin", "tools/report.py"),
    (("python3", "../outside.py"), None, None),
    (("python3", "/usr/lib/thing.py"), None, None),
    (("node", "a[1].js"), None, None),
    (("python3",), None, None),
    (("env",), None, None),
]


@pytest.mark.parametrize(("argv", "cwd", "program"), PROGRAMS)
def test_the_script_a_command_names_is_bound(
    argv: tuple[str, ...], cwd: str | None, program: str | None, tmp_path: Path
) -> None:
    """Only a script inside root is the session's program, however the command names it."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "plain").touch()
    assert find_program(argv, str(tmp_path), cwd) == program


def test_an_absolute_path_inside_root_is_the_program_too(tmp_path: Path) -> None:
    """The spelling of the path does not matter. Its target does."""
    assert find_program((f"{tmp_path}/x.sh",), str(tmp_path), None) == "x.sh"


def test_folders_become_part_of_the_name_and_agents_are_no_sessions(tmp_path: Path) -> None:
    """`hr/payroll.yaml` is hr/payroll, and agents/ declares agents. Backup files of editors declare nothing."""
    write(tmp_path, "hr/payroll.yaml", "agent: hr\n" + PLAIN)
    write(tmp_path, "nightly.yaml", PLAIN)
    write(tmp_path, "v1.2@x.yaml", PLAIN)
    write(tmp_path, "工资.yaml", PLAIN)
    write(tmp_path, "agents/hr.yaml", "prompt: Be careful.")
    for dropping in (
        ".nightly.yaml.swp",
        ".#nightly.yaml",
        "nightly.yaml~",
        "#nightly.yaml#",
        "README.md",
        ".hidden/x.yaml",
        "4913",
    ):
        write(tmp_path, dropping, "{broken")
    reading = read(tmp_path)
    assert (reading.problems, reading.warnings) == ({}, [])
    assert sorted(reading.sessions) == ["hr/payroll", "nightly", "v1.2@x", "工资"]
    assert set(reading.agents) == {"hr"}
    assert {Path(folder).name for folder in reading.folders} == {"sessions.d", "hr", "agents"}


NAMES = [
    ("-x.yaml", "sessions.d/-x.yaml:1:1: '-x' cannot be a name; use letters, digits and - _ . @, with / between folders, no - or . first;"
     " rename the file"),
    ("a b.yaml", "sessions.d/a b.yaml:1:1: 'a b' cannot be a name; use letters, digits and - _ . @, with / between folders, no - or . first;"
     " rename the file"),
    ("shop@.yaml", "sessions.d/shop@.yaml:1:1: a name that ends in @ is a template; add `for_each: tickets/*.md`, or rename the file"),
]  # fmt: skip


@pytest.mark.parametrize(("file", "words"), NAMES)
def test_a_file_that_cannot_name_a_session_is_refused(file: str, words: str, tmp_path: Path) -> None:
    """A name must be typable on a command line and usable in a URL."""
    write(tmp_path, file, PLAIN)
    assert [str(problem) for problem in read(tmp_path).problems[f"sessions.d/{file}"]] == [words]


@pytest.mark.parametrize("name", [b"a\nb", b"a\x1b[31mb", b"a\xff\nb", "a\u2028b".encode()])
def test_a_name_that_would_break_a_line_is_told_on_one(name: bytes, tmp_path: Path) -> None:
    """Each problem is shown on one line. The name of a file can neither break it nor colour a terminal."""
    write(tmp_path, "good.yaml", PLAIN)
    (Path(os.fsdecode(os.fsencode(tmp_path) + b"/sessions.d/" + name + b".yaml"))).write_text(PLAIN)
    (words,) = read(tmp_path).refused.values()
    assert words.isprintable()
    assert words.startswith("sessions.d/a\\")


def test_a_name_of_bytes_that_are_no_text_is_refused_printably(tmp_path: Path) -> None:
    """A file name that is not UTF-8 does not break the message about it."""
    write(tmp_path, "good.yaml", PLAIN)
    (Path(os.fsdecode(os.fsencode(tmp_path) + b"/sessions.d/caf\xe9.yaml"))).write_text(PLAIN)
    reading = read(tmp_path)
    assert list(reading.sessions) == ["good"]
    assert [str(problems[0]).encode() for problems in reading.problems.values()] != []


def test_a_bad_file_disturbs_no_other(tmp_path: Path) -> None:
    """Broken, empty, unreadable, huge and special files are each refused separately."""
    write(tmp_path, "good.yaml", PLAIN)
    write(tmp_path, "broken.yaml", "a: [")
    write(tmp_path, "empty.yaml", "")
    write(tmp_path, "huge.yaml", "#" * 300_000)
    os.mkfifo(tmp_path / "sessions.d" / "pipe.yaml")
    (tmp_path / "sessions.d" / "nowhere.yaml").symlink_to("not-there")
    (tmp_path / "sessions.d" / "loop").symlink_to(tmp_path / "sessions.d")
    reading = read(tmp_path)
    assert list(reading.sessions) == ["good"]
    assert {name: words.split(": ", 1)[1] for name, words in reading.refused.items()} == {
        "broken": "the file ends inside a [ or {; close it",
        "empty": "the file is empty; write at least `objective: …`, or delete it",
        "huge": "the file is larger than 256 KB; split it into several",
        "pipe": "this is no regular file; replace it by one, or remove it",
    }


def test_a_file_of_another_suffix_is_pointed_out(tmp_path: Path) -> None:
    """A `.yml` file is not read, and a warning says so."""
    write(tmp_path, "a.yml", PLAIN)
    assert [str(warning) for warning in read(tmp_path).warnings] == [
        "sessions.d/a.yml:1:1: ignored, because its name does not end in .yaml; rename it"
    ]


def test_an_agent_must_exist(tmp_path: Path) -> None:
    """A session of an unknown agent is refused at that word. Writing the agent's file mends it."""
    write(tmp_path, "a.yaml", "objective: x\nagent: hrr\n")
    write(tmp_path, "b.yaml", "objective: x\nagent: legal\n")
    write(tmp_path, "agents/hr.yaml", "prompt: x")
    reading = read(tmp_path)
    assert reading.refused == {
        "a": "sessions.d/a.yaml:2:8: agent 'hrr' does not exist; did you mean 'hr'?",
        "b": "sessions.d/b.yaml:2:8: agent 'legal' does not exist; write agents/legal.yaml, or remove the key",
    }
    write(tmp_path, "agents/legal.yaml", "prompt: x")
    assert list(read(tmp_path, reading).sessions) == ["b"]


def test_what_a_session_asks_of_its_agent_is_judged_with_both(tmp_path: Path) -> None:
    """The refusals are an unknown server, and writes that cannot be attributed to a run.

    An edit of the agent's file mends either.
    """
    bindings = "bindings: {gh: {service: mcp:githb}, page: {file: p, access: both}}\n"
    write(tmp_path, "a.yaml", f"objective: x\nagent: hr\n{bindings}run: {{prompt: Do it.}}\n")
    write(tmp_path, "agents/hr.yaml", "model: openai:m\nmcp: {github: https://x}\ntools: {shell: ask}\n")
    reading = read(tmp_path)
    assert reading.refused["a"].splitlines() == [
        "sessions.d/a.yaml:3:26: agent 'hr' has no server 'githb'; did you mean 'mcp:github'?",
        "sessions.d/a.yaml:3:62: access 'both' needs a run whose own writes can be told apart from others, and agent hr has a shell; change that, or use isolation: strict",
    ]
    write(tmp_path, "agents/hr.yaml", "model: openai:m\nmcp: {githb: https://x}\n")
    assert list(read(tmp_path, reading).sessions) == ["a"]


def test_a_session_that_is_not_declared_is_pointed_out(tmp_path: Path) -> None:
    """A session may wait for one that does not exist yet, with a warning."""
    write(tmp_path, "a.yaml", PLAIN + "bindings:\n  up: {session: payrol}\n  other: {session: unheard-of}\n")
    write(tmp_path, "payroll.yaml", PLAIN)
    reading = read(tmp_path)
    assert sorted(reading.sessions) == ["a", "payroll"]
    assert [str(warning) for warning in reading.warnings] == [
        "sessions.d/a.yaml:4:17: session 'payrol' is not declared; did you mean 'payroll'?",
        "sessions.d/a.yaml:5:20: session 'unheard-of' is not declared; this waits until it is",
    ]


def age(path: Path) -> None:
    """Set the file's times to long ago, so that its stat is trusted.

    Its change time cannot be set, and no test waits for it.
    """
    long_ago = time.time_ns() - 10**12
    os.utime(path, ns=(long_ago, long_ago))


def test_reading_again_returns_the_very_same_specs(tmp_path: Path) -> None:
    """A file whose bytes did not change is not parsed again, whatever its times are."""
    path = write(tmp_path, "a.yaml", PLAIN)
    write(tmp_path, "b.yaml", "a: [")
    first = read(tmp_path)
    age(path)
    second = read(tmp_path, first)
    assert second.sessions["a"] is first.sessions["a"]
    assert second.refused == first.refused


def test_an_edit_within_the_same_tick_is_seen(tmp_path: Path) -> None:
    """Equal size and equal times do not hide a change of a file that was fresh when it was read."""
    path = write(tmp_path, "a.yaml", "objective: one\n")
    before = path.stat()
    first = read(tmp_path)
    path.write_text("objective: two\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert read(tmp_path, first).sessions["a"].objective == "two"


def test_a_folder_that_is_not_there_declares_nothing(tmp_path: Path) -> None:
    """A missing folder is like an empty folder."""
    assert read(tmp_path).sessions == {}


@pytest.mark.long
def test_ten_thousand_specs_load_and_reload(tmp_path: Path) -> None:
    """A large folder is read whole, and read again without parsing. The times are printed, not judged."""
    folder = tmp_path / "sessions.d"
    folder.mkdir()
    for number in range(10_000):
        (folder / f"s{number:05}.yaml").write_text(
            f"objective: Session {number}\nbindings:\n  data: {{file: data/{number}/*.csv}}\nrun: {{command: [python3, a.py]}}\n"
        )
    began = time.perf_counter()
    first = read(tmp_path)
    loaded = time.perf_counter()
    second = read(tmp_path, first)
    print(f"10,000 specs: read in {loaded - began:.2f} s, again in {time.perf_counter() - loaded:.2f} s")
    assert len(first.sessions) == 10_000
    assert all(second.sessions[name] is spec for name, spec in first.sessions.items())


def test_people_and_retention_are_part_of_a_spec() -> None:
    """People are names and uids with their roles, and retention limits the records that are kept.

    A run can notice neither.
    """
    spec = parse(PLAIN + "people: {ann: maintainer, 1001: observer}\nretention: {keep: 90d, runs: 500, size: 1GB}\n")
    assert spec.people == {"ann": "maintainer", "1001": "observer"}
    assert spec.retention == Retention(keep_seconds=90 * 86400.0, runs=500, size_bytes=10**9)
    assert digest_noticed(spec) == digest_noticed(parse(PLAIN))


PEOPLE = [
    ("people: ann", "people: expected names or uids and their roles such as {ann: maintainer, 1001: observer}"),
    ("people: {ann: boss}", "people: 'ann' is 'boss'; expected one of maintainer, contributor, observer"),
    ("people: {'a b': observer}", "people: 'a b' is neither a user's name nor a uid"),
    ("people: {ann: [observer]}", "people: 'ann' is something else; expected one of maintainer, contributor, observer"),
    ("retention: {keep: 0}", "keep: 0 is too short here; write a duration such as 30s or 5m"),
    ("retention: {runs: 0}", "runs is 0; expected at least 1"),
    ("retention: 90d", "'retention' needs keys and values, found '90d'; write {key: value}"),
    ("retention: {age: 90d}", "unknown key 'age' in retention; expected one of keep, runs, size"),
]


@pytest.mark.parametrize(("text", "words"), PEOPLE)
def test_wrong_people_and_retention_are_refused_with_words(text: str, words: str) -> None:
    """Each message says what was expected."""
    with pytest.raises(RefusedSpec) as refusal:
        parse(PLAIN + text + "\n")
    assert str(refusal.value).endswith(words)
