"""Verbs that need no daemon: check, schema, new, verify, backup, restore; and `doctor` without a daemon."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from api.small_daemon import RunningDaemon
from cli.conftest import Command, run_wakeful
from wakeful.core.agents.prices import find_meant_model
from wakeful.eventlog.contract import Append, Draft
from wakeful.eventlog.sqlite import open_log
from wakeful.service.offline_store import judge_state
from wakeful.settings import read_known_prices


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "sessions.d").mkdir(parents=True)
    return folder


def spec(reads: str, writes: str) -> str:
    return f"objective: Copy.\nbindings:\n  source: {{file: {reads}}}\n  target: {{file: {writes}, access: write}}\nrun: {{command: [cp, {reads}, {writes}]}}\n"


def test_new_writes_a_spec_that_checks(project: Path) -> None:
    """These are the first two commands of a new user."""
    (project / "notes.txt").write_text("one\n")
    made = run_wakeful("new", "hello", "--file", "*.txt", "--command", "wc -l notes.txt", cwd=project)
    assert made.returncode == 0 and made.stdout.startswith(
        f"{project / 'sessions.d' / 'hello.yaml'} is written; its paths are relative to {project};"
    )
    checked = run_wakeful("check", cwd=project)
    assert checked.returncode == 0 and checked.stdout == "1 session: all good\n"
    again = run_wakeful("new", "hello", cwd=project)
    assert again.returncode == 1 and "exists already" in again.stderr
    assert run_wakeful("new", "../out", cwd=project).returncode == 1


def test_new_without_a_folder_here_makes_one_that_a_daemon_here_reads(
    tmp_path: Path, private_environment: Path
) -> None:
    """`new`, `check` and `daemon` in one folder use the same spec, also if the person has specs elsewhere."""
    (private_environment / ".config/wakeful/sessions.d").mkdir(parents=True)
    made = run_wakeful("new", "hello", cwd=tmp_path)
    assert made.returncode == 0 and made.stdout.startswith(f"{tmp_path / 'sessions.d/hello.yaml'} is written")
    assert run_wakeful("check", cwd=tmp_path).stdout == "1 session: all good\n"
    once = [sys.executable, "-m", "wakeful", "daemon", "--once", "--state", "state", "--socket", "socket"]
    started = subprocess.run(once, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert started.returncode == 0 and f"specs {tmp_path / 'sessions.d'};" in started.stdout, started.stderr
    assert "hello: declared" in started.stdout


def test_check_judges_the_settings_and_says_so(project: Path) -> None:
    """`check` reads wakeful.yaml by name, with the folder, and beside a spec. It reports a mistake in each case."""
    (project / "sessions.d" / "good.yaml").write_text(spec("a.csv", "b.csv"))
    (project / "a.csv").write_text("1\n")
    (project / "wakeful.yaml").write_text("loop_depth: 5\n")
    assert run_wakeful("check", "wakeful.yaml", cwd=project).stdout == "wakeful.yaml: all good\n"
    assert (
        run_wakeful("check", "sessions.d/good.yaml", "wakeful.yaml", cwd=project).stdout
        == "1 session and wakeful.yaml: all good\n"
    )
    assert run_wakeful("check", cwd=project).stdout == "1 session and wakeful.yaml: all good\n"
    (project / "wakeful.yaml").write_text("lop_depth: 5\n")
    for words in (("check",), ("check", "wakeful.yaml")):
        done = run_wakeful(*words, cwd=project)
        assert done.returncode == 1 and done.stdout.startswith("wakeful.yaml:1:1: unknown key 'lop_depth'")


def test_check_of_an_agents_file_says_so(project: Path) -> None:
    """The output names the agent's file instead of counting sessions."""
    (project / "sessions.d" / "agents").mkdir()
    (project / "sessions.d" / "agents" / "hr.yaml").write_text("prompt: Be exact.\n")
    done = run_wakeful("check", "sessions.d/agents/hr.yaml", cwd=project)
    assert (done.returncode, done.stdout) == (0, "sessions.d/agents/hr.yaml: all good\n"), done.stdout + done.stderr


def test_one_of_a_kind_is_counted_in_the_singular(tmp_path: Path) -> None:
    """The output says `1 record of 1 session` and `1 finding`."""
    log = open_log(tmp_path / "state")
    log.append_blocking([Append("a", 0, (Draft("note_added", b"{}", "x"),))], at=1)
    log.close()
    folder = tmp_path / "state"
    assert (
        run_wakeful("verify", "--state", str(folder)).stdout
        == f"verifying the log in {folder}\n1 record of 1 session: all sound\n"
    )
    done = run_wakeful("backup", "copy", "--state", "state", cwd=tmp_path)
    assert done.stdout == f"backing up the log in {folder}\ncopy: 1 record of 1 session, verified\n"
    (tmp_path / "state" / "log" / "anchor").unlink()
    assert run_wakeful("verify", "--state", str(tmp_path / "state")).stdout.endswith(
        "1 record of 1 session: 1 finding\n"
    )


def test_the_name_alone_prints_the_help() -> None:
    """The command prints the help with all verbs. Its exit code is 2, so a script sees a usage error."""
    bare, asked = run_wakeful(), run_wakeful("--help")
    assert (bare.returncode, bare.stderr, bare.stdout) == (2, "", asked.stdout)
    assert "activate" in bare.stdout and "Usage: wakeful" in bare.stdout


def test_check_names_file_line_and_column_and_exits_1(project: Path) -> None:
    """The place of a problem has a form to which an editor can jump."""
    (project / "sessions.d" / "bad.yaml").write_text("objective: x\nbrnach: main\n")
    (project / "sessions.d" / "good.yaml").write_text(spec("a.csv", "b.csv"))
    done = run_wakeful("check", cwd=project)
    assert done.returncode == 1 and done.stdout.startswith("sessions.d/bad.yaml:2:1: ")
    found = json.loads(run_wakeful("check", "--json", cwd=project).stdout)
    assert found["ok"] is False and found["sessions"] == 1 and found["problems"][0]["line"] == 2
    assert run_wakeful("check", "sessions.d/good.yaml", cwd=project).returncode == 0
    assert run_wakeful("check", "sessions.d/bad.yaml", cwd=project).returncode == 1


def test_check_finds_what_only_the_whole_folder_shows(project: Path) -> None:
    """A cycle is refused with its path, for the folder and for the file."""
    (project / "sessions.d" / "a.yaml").write_text(spec("one.csv", "two.csv"))
    (project / "sessions.d" / "b.yaml").write_text(spec("two.csv", "one.csv"))
    done = run_wakeful("check", cwd=project)
    assert done.returncode == 1 and "a cycle" in done.stdout and "b.yaml" in done.stdout
    assert run_wakeful("check", "sessions.d/b.yaml", cwd=project).returncode == 1


def test_check_of_what_is_not_there_is_words(tmp_path: Path) -> None:
    """A missing folder or file gives exit code 1 and an error without a traceback."""
    assert "is not a folder" in run_wakeful("check", cwd=tmp_path).stderr
    assert "is not a file" in run_wakeful("check", "none.yaml", cwd=tmp_path).stderr


@pytest.mark.parametrize("kind", ["session", "agent", "daemon"])
def test_schema_is_json_for_editors(kind: str) -> None:
    """Each kind of file has a JSON schema."""
    assert json.loads(run_wakeful("schema", kind).stdout)["$schema"].startswith("https://json-schema.org/")


def test_verify_works_with_and_without_a_daemon(rested: RunningDaemon, wakeful: Command) -> None:
    """Beside a running daemon its folder is found. Otherwise `--state` names the folder."""
    beside = wakeful("verify", "--json")
    assert beside.returncode == 0 and json.loads(beside.stdout)["sound"] is True
    assert "all sound" in wakeful("verify", "payroll").stdout
    for name in ((), ("payroll",)):
        alone = run_wakeful("verify", *name, "--state", str(rested.small.places.state))
        assert alone.returncode == 0 and "all sound" in alone.stdout
    unknown = run_wakeful("verify", "nobody", "--state", str(rested.small.places.state))
    assert unknown.returncode == 1 and "no session in this log is called 'nobody'" in unknown.stderr


def test_verify_without_a_store_is_words(tmp_path: Path) -> None:
    """A wrong folder is an error, not a sound log."""
    done = run_wakeful("verify", "--state", str(tmp_path))
    assert done.returncode == 1 and "does not exist" in done.stderr


def test_backup_beside_a_daemon_and_restore_when_it_is_gone(tmp_path: Path) -> None:
    """A restore is refused while a daemon runs, and it keeps the former log."""
    backup = tmp_path / "copy.db"
    with RunningDaemon(tmp_path, open_log=open_log) as daemon:
        made = run_wakeful("backup", str(backup), "--socket", str(daemon.socket))
        assert made.returncode == 0 and backup.exists(), made.stderr
        assert run_wakeful("backup", str(backup), "--socket", str(daemon.socket)).returncode == 1
        state = str(daemon.small.places.state)
        refused = run_wakeful("restore", str(backup), "--state", state)
        assert refused.returncode == 1 and "in use" in refused.stderr
    done = run_wakeful("restore", str(backup), "--state", state)
    assert done.returncode == 0 and "kept in" in done.stdout, done.stderr


def test_doctor_names_each_check_and_what_mends_it(rested: RunningDaemon, wakeful: Command) -> None:
    """A good check is one line, a bad one has a command. The exit code is 1 if a check is bad."""
    done = wakeful("doctor")
    assert done.returncode == 0, done.stdout
    for words in ("daemon", "sqlite", "git", "state", "disk", "specs", "bindings"):
        assert words in done.stdout
    rested.small.wrong = {"payroll": "payroll.yaml:1:1: broken"}
    sick = wakeful("doctor", "--json")
    assert sick.returncode == 1
    assert {
        "name": "spec",
        "verdict": "bad",
        "words": "payroll: payroll.yaml:1:1: broken",
        "mend": "wakeful check",
    } in json.loads(sick.stdout)


def test_doctor_names_a_defect_and_how_often_it_was_met(rested: RunningDaemon, wakeful: Command) -> None:
    """The check is bad, and its words name the path that the daemon looked at."""
    rested.small.met = {"a defect of wakeful: KeyError in files.py:7 while looking at /a/b": 3}
    done = wakeful("doctor")
    assert done.returncode == 1
    assert "BAD defect: a defect of wakeful: KeyError in files.py:7 while looking at /a/b, 3 times" in " ".join(
        done.stdout.split()
    )


def test_doctor_without_a_daemon_says_how_to_start_one(tmp_path: Path) -> None:
    """The machine is checked without a daemon, too."""
    done = run_wakeful("doctor", "--socket", str(tmp_path / "none.sock"))
    assert done.returncode == 1 and "wakeful daemon" in done.stdout and "sqlite" in done.stdout


def test_doctor_without_a_daemon_reports_a_log_behind_its_anchor(tmp_path: Path) -> None:
    """A daemon that refuses to start sends people to `doctor`. It says what is missing and how to restore a backup."""
    state, log = tmp_path / "state", open_log(tmp_path / "state")
    log.append_blocking([Append("a", 0, (Draft("note_added", b"{}", "x"),))], at=1)
    log.backup(tmp_path / "copy")
    log.append_blocking([Append("a", 1, (Draft("note_added", b"{}", "x"),))], at=2)
    log.close()
    words = ("doctor", "--json", "--state", str(state), "--socket", str(tmp_path / "none"))
    checks = {check["name"]: check for check in json.loads(run_wakeful(*words).stdout)}
    assert checks["log"]["verdict"] == "good"
    shutil.copy(tmp_path / "copy", state / "log" / "events.db")
    checks = {check["name"]: check for check in json.loads(run_wakeful(*words).stdout)}
    assert checks["log"]["verdict"] == "bad" and "1 of 2 acknowledged" in checks["log"]["words"]
    assert checks["log"]["mend"] == f"wakeful restore BACKUP --state {state}"
    verified = run_wakeful("verify", "--state", str(state))
    assert verified.returncode == 1 and "1 of 2 acknowledged ones: 1 are missing" in verified.stdout
    places = ("--state", str(state), "--specs", str(tmp_path), "--socket", str(tmp_path / "none"))
    started = subprocess.run(
        [sys.executable, "-m", "wakeful", "daemon", *places], capture_output=True, text=True, timeout=60
    )
    assert started.returncode == 1 and "nothing is written to it" in " ".join(started.stderr.split()), started.stderr


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "empty or gone, but acknowledged: 1 record;"),
        (b"", "empty or gone"),
        (b"no database" * 1000, "cannot be read"),
    ],
)
def test_doctor_reports_a_log_whose_database_is_lost(tmp_path: Path, content: bytes | None, words: str) -> None:
    """A database that is gone, emptied or overwritten is reported without a traceback.
    A folder without a log is no finding."""
    log = open_log(tmp_path / "state")
    log.append_blocking([Append("a", 0, (Draft("note_added", b"{}", "x"),))], at=1)
    log.close()
    database = tmp_path / "state" / "log" / "events.db"
    database.unlink()
    if content is not None:
        database.write_bytes(content)
    assert words in (judge_state(tmp_path / "state") or "")
    assert judge_state(tmp_path / "elsewhere") is None


def test_check_warns_of_a_budget_in_money_for_a_model_without_a_price(project: Path) -> None:
    """Such a run would be refused at its first request. A price in wakeful.yaml ends the warning."""
    (project / "sessions.d" / "agents").mkdir()
    (project / "sessions.d" / "agents" / "docs.yaml").write_text(
        "model: openai-compatible:x\nbase_url: http://localhost:1/v1\n"
    )
    (project / "sessions.d" / "ask.yaml").write_text(
        "objective: Ask.\nagent: docs\nrun: {prompt: Do it.}\nbudget: {day: {usd: 1}}\n"
    )
    (project / "sessions.d" / "spend.yaml").write_text(
        "objective: Spend.\nrun: {command: ['true']}\nbudget: {day: {tokens: 1}}\n"
    )
    done = run_wakeful("check", cwd=project)
    assert "spend.yaml:3:9: a budget of tokens does not hold for its command" in done.stdout, done.stdout
    assert done.returncode == 0 and "the price of openai-compatible:x is not known" in done.stdout, (
        done.stdout + done.stderr
    )
    (project / "wakeful.yaml").write_text("prices: {openai-compatible:*: {input: 0, output: 0}}\n")
    assert "price of" not in run_wakeful("check", cwd=project).stdout


@pytest.mark.parametrize(
    ("model", "meant"),
    [
        ("anthropic:claude-sonet-4-5", "anthropic:claude-sonnet-4-5"), ("anthropic:claude-sonnet-45-20250929", "anthropic:claude-sonnet-4-5"), ("openai-chat:gpt5", "openai-chat:gpt-5"),
        ("google:gemini-2.5-flash-light", "google:gemini-2.5-flash-lite"), ("openai:claude-opus-4-1", "anthropic:claude-opus-4-1"),
        ("anthropic:claude-opus-4-1-20250805", None), ("anthropic:claude-sonnet-7", None), ("openai:gpt-6-mini", None), ("openai:gpt-5.1-mini", None), ("google:gemma-3", None),
    ],
)  # fmt: skip
def test_a_misspelt_model_is_told_from_a_newer_one(model: str, meant: str | None) -> None:
    """The list of models is as old as its date. A name with other digits is another version."""
    assert find_meant_model(read_known_prices(), model) == meant


def test_check_warns_of_a_misspelt_model_and_takes_it_all_the_same(project: Path) -> None:
    """The warning has the place in the file and the date of the list.
    With a `base_url`, any name of a model is accepted."""
    (project / "sessions.d" / "agents").mkdir()
    docs = project / "sessions.d" / "agents" / "docs.yaml"
    docs.write_text(
        "prompt: x\nmodel: anthropic:claude-sonet-4-5\nfallback: openai:gpt-5-mimi\ncontext: {compress_by: anthropic:claude-haiko-4-5}\n"
    )
    done = run_wakeful("check", cwd=project)
    assert done.returncode == 0, done.stdout + done.stderr
    words = " ".join(done.stdout.split())
    for told in (
        "docs.yaml:2:8: anthropic:claude-sonet-4-5 is not in the list of models of November 2025; did you mean anthropic:claude-sonnet-4-5?",
        "docs.yaml:3:11: openai:gpt-5-mimi",
        "docs.yaml:4:24: anthropic:claude-haiko-4-5",
    ):
        assert told in words.replace("warning: ", "")
    assert run_wakeful("check", "sessions.d/agents/docs.yaml", cwd=project).stdout.count("did you mean") == 3
    docs.write_text("model: anthropic:claude-sonet-4-5\nbase_url: http://localhost:1\n")
    assert "did you mean" not in run_wakeful("check", cwd=project).stdout


def test_check_warns_of_sub_agents_that_cannot_be_given_work(project: Path) -> None:
    """`check` warns of a sub-agent that does not exist, with the nearest name, and of one without a model.
    It asks for the prices of existing ones."""
    agents = project / "sessions.d" / "agents"
    agents.mkdir()
    (agents / "docs.yaml").write_text("model: anthropic:claude-sonnet-4-5\nsubagents: [reviewr, reviewer, owner]\n")
    (agents / "reviewer.yaml").write_text("model: openai-compatible:x\nbase_url: http://localhost:1/v1\n")
    (agents / "owner.yaml").write_text("prompt: You own.\n")
    (project / "sessions.d" / "ask.yaml").write_text(
        "objective: Ask.\nagent: docs\nrun: {prompt: Do it.}\nbudget: {day: {usd: 1}}\n"
    )
    said = run_wakeful("check", cwd=project).stdout
    assert "agents/docs.yaml:1:1: subagents: agent reviewr does not exist; did you mean 'reviewer'?" in said
    assert "subagents: agent owner has no model" in said and "the price of openai-compatible:x is not known" in said


def test_check_tells_which_files_are_read_and_wake_nobody(project: Path) -> None:
    """The warning has the line that binds the file, which works when pasted.
    `check` also lists files that programs reach but no spec declares."""
    for name in ("rates.csv", "lib.sh", "data.csv"):
        (project / name).touch()
    (project / "build.sh").write_text("./tools/e.sh\n")
    (project / "tools").mkdir()
    (project / "tools/e.sh").write_text("#!/home\n")
    (project / "tools/e.sh").chmod(0o755)
    text = "objective: Build.\nbindings:\n  rates: {file: data.csv}\nrun: {command: [sh, build.sh, data.csv, rates.csv, lib.sh]}\n"
    file = project / "sessions.d/build.yaml"
    file.write_text(text)
    told = run_wakeful("check", cwd=project).stdout
    assert (
        'the run reads rates.csv, but a change of it wakes no session; add to bindings: rates-2: {file: "rates.csv"} (a warning)'
        in told
    )
    assert 'lib: {file: "lib.sh"}' in told and "reads build.sh" not in told and "reads data.csv" not in told
    assert "/home is named as an interpreter, and is not a regular executable file" in told
    assert "build: its programs also reach tools/e.sh" in told and told.endswith("1 session: all good\n")
    file.write_text(
        text.replace("data.csv}\n", 'data.csv}\n  rates-2: {file: "rates.csv"}\n  lib: {file: "lib.sh"}\n', 1)
    )
    found = json.loads(run_wakeful("check", "sessions.d/build.yaml", "--json", cwd=project).stdout)
    assert found["reach"] == {"build": ["tools/e.sh"]} and not any(
        "wakes no session" in one["text"] for one in found["warnings"]
    )
