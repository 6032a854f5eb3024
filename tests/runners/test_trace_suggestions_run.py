"""A trace proposes the smallest sufficient permissions.

Real programs are traced once, get the proposed lines, and are then denied nothing that they need.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from runners.conftest import Bench
from wakeful.core.record.observations import ProcessEnded
from wakeful.core.spec.session import Confinement, SessionSpec
from wakeful.runners.isolation import trace as tracing
from wakeful.runners.isolation.landlock import probe_abi
from wakeful.runners.isolation.program_places import find_base, find_installation
from wakeful.specs.folder_reading import read_text
from wakeful.specs.spec_builder import Surroundings
from wakeful.specs.trace_suggestions import spell, suggest

OBSTACLE = tracing.find_obstacle() if probe_abi() else "this kernel has no Landlock"
pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.skipif(OBSTACLE is not None, reason=f"NOT TESTED, nothing can be traced here: {OBSTACLE}"),
]
PLAIN = "run: {command: [x]}\n"


def read_spec(text: str, root: Path) -> SessionSpec:
    return read_text(text.encode(), "report", "report.yaml", Surroundings(str(root)))[0]


async def run(bench: Bench, script: str, text: str, *, is_traced: bool) -> ProcessEnded:
    """Run the script with the permissions of this spec, and with out/ writable."""
    spec = read_spec(text, bench.root)
    (bench.root / "out").mkdir(exist_ok=True)
    reads = tuple(one.pattern for one in spec.files if one.access == "read")
    writes = tuple(one.pattern for one in spec.files if one.access == "write")
    confinement = Confinement(
        level="standard",
        network=spec.confinement.network,
        allow_read=spec.confinement.allow_read,
        allow_write=spec.confinement.allow_write,
    )
    return await bench.run(
        bench.shell(
            script,
            reads=reads,
            writes=(*writes, "out/**"),
            confinement=confinement,
            is_traced=is_traced,
            cwd=str(bench.root),
        )
    )


async def trace(bench: Bench, script: str) -> tuple[ProcessEnded, list[str]]:
    """Trace the script, and return its end and the proposed lines."""
    ended = await run(bench, script, PLAIN, is_traced=True)
    assert ended.trace is not None and ended.trace.words is None, ended
    paste = suggest(
        read_spec(PLAIN, bench.root),
        ended.trace.denied,
        root=os.path.realpath(bench.root),
        home=os.path.expanduser("~"),
        has_passed=ended.exit_code == 0,
    )
    return ended, spell(paste)


async def follow(bench: Bench, script: str, lines: list[str]) -> ProcessEnded:
    """Follow the proposal as a person does. Missing folders are made first, as the trace says."""
    told: dict[str, Any] = yaml.safe_load("\n".join(lines)) or {}
    for place in told.get("allow", {}).get("write", ()):
        (bench.root / Path(place).expanduser()).mkdir(parents=True, exist_ok=True)
    return await run(bench, script, PLAIN + "\n".join(lines), is_traced=False)


async def test_caches_are_allowed_and_not_bound(bench: Bench) -> None:
    """The caches are like those of linters and test runners: a folder, a file in it, and a file put in place by a
    rename.
    """
    script = """
        mkdir -p .ruff_cache/0.1 && echo x > .ruff_cache/0.1/x
        mkdir -p .pytest_cache/v && echo x > .pytest_cache/v/new && mv .pytest_cache/v/new .pytest_cache/v/lastfailed
        mkdir -p node_modules/.cache && echo x > node_modules/.cache/x
        mkdir -p .mypy_cache && echo x > .mypy_cache/x
    """
    (bench.root / "node_modules").mkdir()
    ended, lines = await trace(bench, "set +e\n" + script + "\nexit 1")
    assert ended.exit_code == 1
    assert lines == ["allow:", "  write: [.mypy_cache, .pytest_cache, .ruff_cache, node_modules/.cache]"]
    assert (await follow(bench, script, lines)).exit_code == 0


@pytest.mark.long
async def test_the_tests_of_a_project_run_under_what_their_trace_proposes(bench: Bench) -> None:
    """The real pytest makes its cache under another name and renames it."""
    (bench.root / "test_it.py").write_text("def test_it():\n    assert True\n")
    script = f"cp test_it.py out/ 2> /dev/null; exec {sys.executable} -m pytest -q -p no:xdist -p no:asyncio --rootdir . test_it.py"
    ended, lines = await trace(bench, script)
    assert not any("access: write" in line for line in lines), lines
    assert [line for line in lines if "write:" in line] == ["  write: [.pytest_cache]"], (lines, bench.output(ended))
    assert (await follow(bench, script, lines)).exit_code == 0


@pytest.mark.parametrize("way", ["its python", "its modules"])
async def test_a_virtual_environment_elsewhere_is_opened_at_once(bench: Bench, way: str) -> None:
    """All its modules are opened, and the Python that it was made from. One trace is enough."""
    environment = bench.folder / "environments" / "report"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    modules = next(environment.glob("lib/python3*/site-packages"))
    for name in ("first", "second", "third"):
        (modules / name).mkdir()
        (modules / name / "__init__.py").write_text("from . import part\n")
        (modules / name / "part.py").write_text("VALUE = 1\n")
    (bench.root / "app.py").write_text(
        "import os, sys\nsys.path[:0] = [os.environ['MODULES']] if 'MODULES' in os.environ else []\nimport first, second, third\nprint('all there')\n"
    )
    # The place is hidden from the command, because places that a command names are opened without a trace.
    (bench.root / "out").mkdir()
    (bench.root / "out" / "where").write_text(
        str(environment / "bin" / "python") if way == "its python" else str(modules)
    )
    start = '"$(cat out/where)"' if way == "its python" else f'MODULES="$(cat out/where)" {sys.executable}'
    script = f"exec env {start} app.py" if way == "its modules" else f"exec {start} app.py"
    ended, lines = await trace(bench, script)
    assert ended.exit_code != 0, bench.output(ended)
    read = yaml.safe_load("\n".join(lines))["allow"]["read"]
    assert str(environment) in read and not any(place.startswith(f"{environment}/") for place in read), lines
    ended = await follow(bench, script, lines)
    assert (ended.exit_code, b"all there" in bench.output(ended)) == (0, True), (lines, bench.output(ended))


async def test_a_run_that_passed_without_the_network_is_offered_none(bench: Bench) -> None:
    """The program tried a port and went on. The trace reports it and proposes nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        text = f"import socket\ntry: socket.create_connection(('127.0.0.1', {server.getsockname()[1]}))\nexcept OSError: pass\n"
        (bench.root / "app.py").write_text(text)
        ended, lines = await trace(bench, f"exec {sys.executable} app.py")
    assert ended.exit_code == 0 and lines == []
    assert ended.trace is not None and [one.access for one in ended.trace.denied] == ["connect"]


async def test_the_address_that_was_asked_for_is_offered(bench: Bench) -> None:
    """The kernel refused the socket before it got an address. The program's message names the address."""
    _, lines = await trace(bench, "curl -sS http://127.0.0.1:8181/")
    assert lines == ['network: ["127.0.0.1:8181"]']


async def test_environments_and_their_python_are_found_by_their_files(tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    (environment / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
    (environment / "pyvenv.cfg").write_text("version = 3.11\nhome = /opt/python/bin\n")
    assert find_installation(str(environment / "lib" / "python3.11" / "site-packages" / "a.py")) == str(environment)
    assert find_base(str(environment)) == "/opt/python" and find_base(str(tmp_path)) is None
    assert find_installation("/opt/x/lib/python3.12/encodings/__init__.py") == "/opt/x"
    assert find_installation("/srv/app/node_modules/a/node_modules/b/index.js") == "/srv/app/node_modules"
    assert (
        find_installation("/home/me/.local/lib/python3.11/site-packages/a.py")
        == "/home/me/.local/lib/python3.11/site-packages"
    )
    assert find_installation("/srv/app/lib/figures.py") is None
