"""Warnings of `check` and `new` about beginners' mistakes: signs of a shell, missing programs, patterns without a
match."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from in_process_command import run_command

# A PATH that certainly has a python3.
PATH = f"{Path(sys.executable).parent}:/usr/bin:/bin"


def warn(folder: Path, spec: str, **files: str) -> list[str]:
    """Return the warnings of `check` as `line:column: words`. The folder must pass the check all the same."""
    (folder / "sessions.d").mkdir(exist_ok=True)
    (folder / "sessions.d" / "a.yaml").write_text(f"objective: x\n{spec}")
    done = run_command("check", "--json", environment={"PATH": PATH}, folder=folder)
    found = json.loads(done.stdout)
    assert done.returncode == 0 and found["ok"], done.stdout + done.stderr
    alone = run_command("check", "--json", "sessions.d/a.yaml", environment={"PATH": PATH}, folder=folder)
    assert json.loads(alone.stdout)["warnings"] == found["warnings"]
    return [f"{one['line']}:{one['column']}: {one['text']}" for one in found["warnings"]]


def test_signs_of_a_shell_in_a_command_are_told_with_the_script_to_write(tmp_path: Path) -> None:
    """The offered script can be pasted, and `check` gives no warning for it."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.csv").write_text("1\n2\n")
    [told] = warn(tmp_path, 'run: {command: [cat, "data/*.csv", "|", wc, -l, ">", x]}\n')
    assert told.startswith("2:22: ") and "no shell reads a command" in told
    offered = yaml.safe_load("{" + told[told.index("script: ") :] + "}")
    assert offered == {"script": "cat data/*.csv | wc -l > x"}
    assert warn(tmp_path, "run:\n  script: |\n    cat data/*.csv | wc -l > x\n") == []


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("run: {command: [pyhton3, x]}\n", "2:17: no program 'pyhton3' in PATH; did you mean 'python3'?"),
        ("run: {command: [zzqqy-none, x]}\n", f"2:17: no program 'zzqqy-none' in PATH ({PATH[:40]}"),
        ("run: {command: [env, A=1, zzqqy-none]}\n", "2:27: no program 'zzqqy-none' in PATH"),
        (
            "run: {command: [cd, src]}\n",
            "2:17: 'cd' is a word of the shell, and no program; write instead: script: \"cd src\"",
        ),
        ("run: {command: [./none.sh]}\n", "2:17: './none.sh' does not exist; the path begins at "),
        ("run: {command: [python3, none.py]}\n", "2:26: 'none.py' does not exist; the path begins at "),
        (
            "run: {command: [./plain.sh]}\n",
            "2:17: './plain.sh' may not be executed; chmod +x plain.sh, or name its interpreter first: [sh, ./plain.sh]",
        ),
        (
            "run: {command: [./lost.sh]}\n",
            "2:17: './lost.sh' asks in its first line for /opt/none/bash, which is not there",
        ),
        (
            "run: {command: [./env.sh]}\n",
            "2:17: './env.sh' asks in its first line for zzqqy-none, which is not in PATH",
        ),
        ("run: {command: [./dos.sh]}\n", "2:17: './dos.sh' ends its first line with a carriage return"),
        ("run: {script: 'true', check: [zzqqy-none]}\n", "2:31: no program 'zzqqy-none' in PATH"),
        ("bindings: {p: {probe: [zzqqy-none]}}\nrun: {script: 'true'}\n", "2:24: no program 'zzqqy-none' in PATH"),
        (
            "run:\n  script: |\n    #!/usr/bin/env python3\n    print(1)\n",
            "3:11: a script is read by sh, whatever its first line says; put it into a file, and write command: [python3, FILE]",
        ),
        (
            "bindings:\n  notes: {file: 'notes/*.md'}\nrun: {script: 'true'}\n",
            "3:17: no file matches notes/*.md: there is no folder ",
        ),
        ("bindings:\n  notes: {file: 'dta/*.md'}\nrun: {script: 'true'}\n", "did you mean 'data'?"),
        ("bindings:\n  notes: {file: 'data/*.md'}\nrun: {script: 'true'}\n", "3:17: no file matches data/*.md"),
        ("bindings:\n  notes: {file: rates.csv}\nrun: {script: 'true'}\n", "3:17: there is no rates.csv"),
    ],
)
def test_a_likely_mistake_is_told_at_its_place(spec: str, told: str, tmp_path: Path) -> None:
    """Each mistake gives one warning, which says what to do."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.csv").write_text("1\n")
    for name, first in (
        ("plain", "#!/bin/sh"),
        ("lost", "#!/opt/none/bash"),
        ("env", "#!/usr/bin/env zzqqy-none"),
        ("dos", "#!/bin/sh\r"),
    ):
        path = tmp_path / f"{name}.sh"
        path.write_bytes(f"{first}\ntrue\n".encode())
        path.chmod(0o644 if name == "plain" else 0o755)
    found = warn(tmp_path, spec)
    assert len(found) == 1 and told in found[0], found


def test_what_is_there_or_will_be_is_not_warned_of(tmp_path: Path) -> None:
    """There is no warning for an output of another session, a file that is waited for, a script with its interpreter,
    or a pattern that the program itself reads."""
    (tmp_path / "sessions.d").mkdir()
    (tmp_path / "sessions.d" / "up.yaml").write_text(
        "objective: x\nbindings: {o: {file: out/, access: write}}\nrun: {script: 'true'}\n"
    )
    (tmp_path / "tool.sh").write_text("#!/usr/bin/env -S sh -eu\ntrue\n")
    (tmp_path / "tool.sh").chmod(0o755)
    bound = "bindings: {i: {file: 'out/*.csv'}, w: {file: later.csv, missing: wait}}\n"
    assert warn(tmp_path, f"{bound}run: {{command: [./tool.sh]}}\n") == []
    assert "does not exist" not in "".join(warn(tmp_path, f"{bound}run: {{command: [python3, out/made.py]}}\n"))
    assert warn(tmp_path, f"{bound}run: {{command: [find, ., -name, '*.sh']}}\n") == []
    assert warn(tmp_path, f"{bound}run: {{command: [mytool], env: {{PATH: '{tmp_path}/bin'}}}}\n") != []
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "mytool").symlink_to("/bin/true")
    assert warn(tmp_path, f"{bound}run: {{command: [mytool], env: {{PATH: '{tmp_path}/bin'}}}}\n") == []


def test_new_writes_a_script_where_the_line_is_for_a_shell(tmp_path: Path) -> None:
    """For any other line `new` writes a command. Neither spec gives a warning, and the script does its work."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.csv").write_text("1\n2\n")
    line = "cat data/*.csv | wc -l > x"
    made = run_command(
        "new", "sums", "--file", "data/*.csv", "--writes", "x", "--command", line, environment={}, folder=tmp_path
    )
    assert made.returncode == 0 and "written as a script" in " ".join(made.stdout.split()), made.stdout + made.stderr
    assert yaml.safe_load((tmp_path / "sessions.d/sums.yaml").read_text())["run"]["script"].strip() == line
    run_command(
        "new", "words", "--file", "data/*.csv", "--command", "wc -w data/a.csv", environment={}, folder=tmp_path
    )
    assert yaml.safe_load((tmp_path / "sessions.d/words.yaml").read_text())["run"]["command"] == [
        "wc",
        "-w",
        "data/a.csv",
    ]
    checked = run_command("check", "--json", environment={"PATH": PATH}, folder=tmp_path)
    assert json.loads(checked.stdout)["warnings"] == []
    once = [sys.executable, "-m", "wakeful", "daemon", "--once", "--state", "state", "--socket", "socket"]
    done = subprocess.run(once, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0 and (tmp_path / "x").read_text().strip() == "2", done.stdout + done.stderr


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("command: ls -l | wc", 'it needs a shell; write instead: script: "ls -l | wc"'),
        ("command: wc -l a", "write [wc, -l, a]"),
        ("command: [true], check: 'ls | wc'", 'write [sh, -c, "ls | wc"]'),
    ],
)
def test_a_shell_string_is_refused_with_what_works(line: str, advice: str, tmp_path: Path) -> None:
    """The advice for `ls -l | wc` is a script, not a list with a pipe among its words."""
    (tmp_path / "sessions.d").mkdir()
    (tmp_path / "sessions.d" / "a.yaml").write_text(f"objective: x\nrun: {{{line}}}\n")
    done = run_command("check", "--json", environment={}, folder=tmp_path)
    assert done.returncode == 1 and advice in json.loads(done.stdout)["problems"][0]["text"], done.stdout


def test_sessions_whose_programs_reach_the_same_are_one_line(tmp_path: Path) -> None:
    """Five examples that all run python3 are reported in one line."""
    for name in ("sessions.d", "tools"):
        (tmp_path / name).mkdir()
    (tmp_path / "build.sh").write_text("./tools/e.sh\n")
    (tmp_path / "tools" / "e.sh").write_text("#!/bin/sh\n")
    (tmp_path / "tools" / "e.sh").chmod(0o755)
    for name in ("a", "b"):
        (tmp_path / "sessions.d" / f"{name}.yaml").write_text("objective: x\nrun: {command: [sh, build.sh]}\n")
    told = run_command("check", environment={"PATH": PATH}, folder=tmp_path).stdout
    assert told == "a, b: their programs also reach tools/e.sh\n2 sessions: all good\n"
