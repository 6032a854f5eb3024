"""The hint of a confined run that failed, with the real programs of this machine.

It names the denial, and the line of a spec that allows it.
"""

from __future__ import annotations

import shutil
import sqlite3
import sys
from pathlib import Path

import pytest
import yaml

from runners.conftest import Bench
from wakeful.core.spec.session import Confinement
from wakeful.runners.isolation.bubblewrap import find_obstacle
from wakeful.runners.isolation.landlock import probe_abi
from wakeful.specs.folder_reading import read_text
from wakeful.specs.spec_builder import Surroundings

pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.skipif(not probe_abi(), reason="NOT TESTED: this kernel has no Landlock"),
]
STRICT = find_obstacle()
JAVA = """
public class Reader { public static void main(String[] names) throws Exception { java.nio.file.Files.readString(java.nio.file.Path.of(names[0])); } }
"""
# By program: the command, the denial, and the line that allows it. {folder} is the folder around root.
FILES = {
    "cat": ("cat ../beside", "reading {folder}/beside", "allow: {{read: [{folder}/beside]}}"),
    "sh": ("echo x > kept/made", "writing {root}/kept/made", "bindings: {{made: {{file: kept/made, access: write}}}}"),
    "python": (
        "{python} -c \"open('ke' 'pt/in.txt')\"",
        "reading {root}/kept/in.txt",
        "bindings: {{in: {{file: kept/in.txt}}}}",
    ),
    "perl": (
        'perl -e \'open(F, "<", "../beside") or die "cannot open ../beside: $!"\'',
        "reading {folder}/beside",
        "allow: {{read: [{folder}/beside]}}",
    ),
    "node": (
        "node -e \"require('fs').readFileSync('../beside')\"",
        "reading {folder}/beside",
        "allow: {{read: [{folder}/beside]}}",
    ),
    "java": ("java Reader.java ../beside", "reading {folder}/beside", "allow: {{read: [{folder}/beside]}}"),
    "ruby": ("ruby -e 'File.read(\"../beside\")'", "reading {folder}/beside", "allow: {{read: [{folder}/beside]}}"),
    "sqlite3": (
        "sqlite3 store/app.db 'insert into t values (2)'",
        "writing {root}/store/app.db",
        "bindings: {{app: {{file: store/app.db, access: write}}}}",
    ),
    "sqlite in python": (
        "{python} -c \"import sqlite3; sqlite3.connect('store/app.db').execute('insert into t values (2)')\"",
        "writing {root}/store/app.db",
        "bindings: {{app: {{file: store/app.db, access: write}}}}",
    ),
    "a cache": ("mkdir .ruff_cache", "writing {root}/.ruff_cache", "allow: {{write: [.ruff_cache]}}"),
    "a lock": (
        "{python} -c 'import multiprocessing; multiprocessing.Lock()'",
        "writing /dev/shm/lock",
        "allow: {{write: [/dev/shm]}}",
    ),
}
ADDRESSES = {
    "curl": ("curl -sS https://files.example.com/", "files.example.com:443"),
    "curl to a port": ("curl -sS http://127.0.0.1:8181/", "127.0.0.1:8181"),
    "git over https": ("git clone https://git.example.com:8443/a/b out/b", "git.example.com:8443"),
    "git over ssh": ("git clone git@git.example.com:a/b out/b", "git.example.com:22"),
    "ssh": ("ssh -o BatchMode=yes me@host.example.com true", "host.example.com:22"),
    "node": ("node -e \"require('net').connect(8181, '127.0.0.1')\"", "127.0.0.1:8181"),
    "python": (
        "{python} -c \"import urllib.request as u; u.urlopen('https://api.example.com:8443/')\"",
        "api.example.com:8443",
    ),
    "psql": ("psql -h 127.0.0.1 -p 5433 -U me", "127.0.0.1:5433"),
    "wget": ("wget http://files.example.com/", "files.example.com:80"),
}


def skip_without(command: str) -> None:
    program = command.split()[0]
    if program != "{python}" and shutil.which(program, path="/usr/bin:/bin") is None:
        pytest.skip(f"NOT TESTED: {program} is not installed")


async def fail(bench: Bench, script: str, level: str = "standard", network: bool | tuple[str, ...] = False) -> str:
    """Return the hint of a failed run that reads store/ and writes out/."""
    (bench.root / "out").mkdir(exist_ok=True)
    (bench.root / "kept").mkdir(exist_ok=True)
    (bench.root / "store").mkdir(exist_ok=True)
    (bench.root / "kept" / "in.txt").write_text("in")
    (bench.root / "Reader.java").write_text(JAVA)
    (bench.folder / "beside").write_text("x")
    database = sqlite3.connect(bench.root / "store" / "app.db")
    database.execute("create table if not exists t (x)")
    database.commit()
    database.close()
    order = bench.shell(
        script.format(python=sys.executable),
        reads=("store/*",),
        writes=("out/**",),
        confinement=Confinement(level=level, network=network),  # type: ignore[arg-type]
        cwd=str(bench.root),
        staging=str(bench.state / f"staged-{len(bench.reports)}"),
    )
    ended = await bench.run(order)
    assert ended.exit_code not in (0, None), bench.output(ended)
    assert ended.hint is not None
    return ended.hint


def check_line(line: str, root: Path) -> None:
    """Assert that the line is YAML and that a spec accepts it."""
    text = line + "\nrun: {command: [x]}\n"
    assert isinstance(yaml.safe_load(text), dict)
    read_text(text.encode(), "report", "report.yaml", Surroundings(str(root)))


@pytest.mark.parametrize(("command", "denied", "line"), FILES.values(), ids=FILES)
async def test_a_file_is_named_with_the_line_that_allows_it(bench: Bench, command: str, denied: str, line: str) -> None:
    skip_without(command)
    hint = await fail(bench, command)
    places = {"root": bench.root, "folder": bench.folder}
    assert f"it was denied {denied.format(**places)}; to allow it: {line.format(**places)}" in hint
    check_line(line.format(**places), bench.root)


@pytest.mark.parametrize(("command", "address"), ADDRESSES.values(), ids=ADDRESSES)
async def test_an_address_is_named_with_the_line_that_allows_it(bench: Bench, command: str, address: str) -> None:
    skip_without(command)
    hint = await fail(bench, command)
    assert f'it was denied connecting to {address}; to allow it: network: ["{address}"]' in hint
    check_line(f'network: ["{address}"]', bench.root)


async def test_a_port_that_is_listed_is_not_said_to_be_denied(bench: Bench) -> None:
    """The listed port has no server, so the isolation is not the cause. Another port is denied."""
    skip_without("curl")
    network = ("127.0.0.1:8181",)
    assert "isolation is on" in await fail(bench, "curl -sS http://127.0.0.1:8181/", network=network)
    assert "denied connecting to 127.0.0.1:8182" in await fail(
        bench, "curl -sS http://127.0.0.1:8182/", network=network
    )


@pytest.mark.skipif(STRICT is not None, reason=f"NOT TESTED, nothing can be isolated strictly here: {STRICT}")
async def test_what_a_strict_run_does_not_see_is_named(bench: Bench) -> None:
    """In a strict view the file is missing rather than denied."""
    assert f"denied reading {bench.folder}/beside" in await fail(bench, f"cat {bench.folder}/beside", level="strict")
    assert "isolation is on (strict)" in await fail(bench, "cat missing", level="strict")


@pytest.mark.parametrize("script", ["exit 3", "echo assertion failed; exit 1", "cat missing", "no-such-program"])
async def test_where_nothing_is_known_it_says_that_isolation_is_on(bench: Bench, script: str) -> None:
    """The hint is one short line, and names the command that finds out more."""
    hint = await fail(bench, script)
    assert hint == "isolation is on (standard): `wakeful trace payroll` shows whether it was denied anything"


async def test_a_denial_without_a_name_leads_to_a_trace(bench: Bench) -> None:
    assert "`wakeful trace payroll` finds out what" in await fail(bench, "echo Permission denied; exit 1")


async def test_no_line_is_offered_for_secrets_and_for_much_at_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deceived program asks for keys, or only prints that they were denied."""
    monkeypatch.setenv("HOME", str(bench.folder / "home"))
    key = bench.folder / "home" / ".ssh" / "id_ed25519"
    key.parent.mkdir(parents=True)
    key.write_text("PRIVATE")
    for script in (f"cat {key}", f'echo "cat: {key}: Permission denied"; exit 1'):
        hint = await fail(bench, script)
        assert str(key) in hint and "to allow it" not in hint and "secrets" in hint
    hint = await fail(bench, "ls / /root || cat /etc/shadow")
    assert "to allow it" not in hint and "/etc/shadow" in hint


async def test_what_it_had_is_not_said_to_be_denied(bench: Bench) -> None:
    """The program prints a denial of a file that it may read, so no line of a spec would help."""
    hint = await fail(bench, "echo 'cat: /usr/bin/env: Permission denied'; exit 1")
    assert "to allow it" not in hint


async def test_many_denials_are_told_in_one_line(bench: Bench) -> None:
    for name in "abcdefgh":
        (bench.folder / name).write_text("x")
    hint = await fail(bench, "cat ../a ../b ../c ../d ../e ../f ../g ../h")
    assert hint.count("it was denied reading") == 3 and "and 5 more: `wakeful trace payroll` lists all" in hint


async def test_a_name_that_yaml_would_read_otherwise_is_quoted(bench: Bench) -> None:
    (bench.root / "kept").mkdir()
    (bench.root / "kept" / "a: b, {c}.txt").write_text("x")
    hint = await fail(bench, "cat 'kept/a: b, {{c}}.txt'; {python} -c \"open('kept/a: b, {{c}}.txt')\"")
    assert 'to allow it: bindings: {a-b-c: {file: "kept/a: b, {c}.txt"}}' in hint


async def test_a_run_that_is_not_confined_or_did_not_fail_has_no_hint(bench: Bench) -> None:
    ended = await bench.run(bench.shell("cat nothing", confinement=Confinement(level="none")))
    assert ended.exit_code == 1 and ended.hint is None
    ended = await bench.run(bench.shell("cat ../nothing || true"))
    assert ended.exit_code == 0 and ended.hint is None
