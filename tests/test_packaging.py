"""The wheel: it holds the whole package and nothing else, with its licence, its command and its dependencies.

The wheel is built once, without a network, from a copy of the package and of its metadata files. Other files in a
contributor's checkout must not affect it. The Makefile is run in folders of its own.
"""

import configparser
import email
import os
import shutil
import subprocess
import sys
import time
import tomllib
import zipfile
from collections.abc import Iterator
from email.message import Message
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parent.parent
PACKAGE = REPOSITORY / "daemon" / "wakeful"
SHOW_PROGRESS = REPOSITORY / "scripts" / "show_progress.py"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the files that the wheel is made of."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        if (REPOSITORY / name).exists():
            shutil.copy(REPOSITORY / name, folder)
    shutil.copytree(PACKAGE, folder / "daemon" / "wakeful", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(REPOSITORY / "systemd", folder / "systemd")
    return folder


@pytest.fixture(scope="module")
def wheel(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    """Build the wheel and open it."""
    dist = tmp_path_factory.mktemp("dist")
    built = subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--no-deps",
            "--no-build-isolation",
            "--no-index",
            "--wheel-dir",
            dist,
            checkout,
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    [path] = dist.iterdir()
    with zipfile.ZipFile(path) as archive:
        yield archive


def read_info(wheel: zipfile.ZipFile, name: str) -> str:
    [member] = [member for member in wheel.namelist() if member.endswith(f".dist-info/{name}")]
    return wheel.read(member).decode()


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Message:
    return email.message_from_string(read_info(wheel, "METADATA"))


def test_the_wheel_holds_the_whole_package(wheel: zipfile.ZipFile, checkout: Path) -> None:
    """The wheel has every file of the package: modules, SQL of migrations, systemd units and all other files."""
    source = checkout / "daemon"
    expected = {path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()}
    expected |= {f"wakeful/systemd/{path.name}" for path in (checkout / "systemd").iterdir()}
    assert "wakeful/systemd/wakeful@.socket" in expected
    packed = {member for member in wheel.namelist() if ".dist-info/" not in member}
    assert packed == expected
    assert "wakeful/__init__.py" in packed


def test_an_installed_wheel_finds_the_units_it_brought(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    """`wakeful install` needs no checkout: the package contains the units it writes."""
    wheel.extractall(tmp_path)
    script = "import wakeful.cli.systemd_units as units; print(units.__file__); print(units.render_user('/usr/bin/wakeful', None, None)['wakeful.service'])"
    told = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        cwd="/",
        env={"PYTHONPATH": str(tmp_path)},
    )
    assert told.stdout.startswith(str(tmp_path)) and "ExecStart=/usr/bin/wakeful daemon" in told.stdout, told.stderr


def test_the_wheel_claims_one_import_name(wheel: zipfile.ZipFile) -> None:
    """Only `wakeful` is installed into site-packages. `daemon` and `tests` are names of other projects."""
    tops = {member.split("/")[0] for member in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"wakeful"}


def test_the_wheel_carries_its_licence(wheel: zipfile.ZipFile, metadata: Message) -> None:
    """The metadata names Apache-2.0, and the wheel contains the full text."""
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["License-File"] == "LICENSE"
    assert read_info(wheel, "licenses/LICENSE") == (REPOSITORY / "LICENSE").read_text()
    assert "END OF TERMS AND CONDITIONS" in read_info(wheel, "licenses/LICENSE")


def test_the_wheel_installs_the_command(wheel: zipfile.ZipFile) -> None:
    """The only command is `wakeful`."""
    scripts = configparser.ConfigParser()
    scripts.read_string(read_info(wheel, "entry_points.txt"))
    assert dict(scripts["console_scripts"]) == {"wakeful": "wakeful.cli:main"}


def test_the_version_has_one_home(metadata: Message) -> None:
    """The metadata's version is the package's own, and Requires-Python names the oldest supported Python."""
    text = (PACKAGE / "__init__.py").read_text()
    assert f'__version__ = "{metadata["Version"]}"' in text
    assert metadata["Requires-Python"] == ">=3.11"


def test_a_plain_install_brings_no_test_tools(metadata: Message) -> None:
    """pytest and similar packages come only with the extra `test`."""
    plain = [need for need in metadata.get_all("Requires-Dist") if "extra ==" not in need]
    assert plain and not [need for need in plain if need.startswith(("pytest", "hypothesis", "hatchling"))]


def test_every_dependency_gives_its_reason() -> None:
    """A comment above each dependency in pyproject.toml gives its reason."""
    lines = (REPOSITORY / "pyproject.toml").read_text().splitlines()
    project = tomllib.loads("\n".join(lines))["project"]
    for dependency in project["dependencies"]:
        [number] = [number for number, line in enumerate(lines) if line.strip() == f'"{dependency}",']
        assert lines[number - 1].strip().startswith("# "), dependency


def test_the_repository_holds_no_lock_and_no_address_to_fetch_from() -> None:
    """The machine decides where packages come from: there is no lock file, and no index in any configuration."""
    assert [path.name for path in REPOSITORY.glob("*.lock")] == []
    for name in ("pyproject.toml", "Makefile", ".ci/run"):
        text = (REPOSITORY / name).read_text()
        assert "index-url" not in text and "://" not in text, name


def make(target: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the Makefile in a folder of its own, as in a fresh checkout."""
    shutil.copy(REPOSITORY / "Makefile", folder)
    shutil.copy(REPOSITORY / "pyproject.toml", folder)
    words = [f"{name}={value}" for name, value in variables.items()]
    return subprocess.run(["make", target, *words], cwd=folder, capture_output=True, text=True, timeout=60)


def test_make_clean_never_touches_the_log(tmp_path: Path) -> None:
    """`make clean` removes files that can be made again. .wakeful/ cannot."""
    kept, removed = tmp_path / ".wakeful" / "__pycache__" / "log", tmp_path / "tests" / "__pycache__" / "waiting.pyc"
    for path in (kept, removed):
        path.parent.mkdir(parents=True)
        path.write_text("x")
    assert make("clean", tmp_path).returncode == 0
    assert kept.exists()
    assert not removed.parent.exists()


@pytest.mark.parametrize(
    ("lack", "said"),
    [
        ("raise ImportError('ensurepip')", "apt install python3-venv"),
        ("sys.version_info = (3, 10, 0)", "needs Python 3.11"),
    ],
)
def test_make_setup_says_what_the_machine_lacks(
    lack: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Python that is too old, or that lacks ensurepip, is refused with a remedy, before anything is made."""
    shims = tmp_path / "shims"
    shims.mkdir()
    # Debian's python3 without python3-venv has no ensurepip. The other shim reports an old version.
    name = "ensurepip.py" if "ImportError" in lack else "sitecustomize.py"
    (shims / name).write_text(f"import sys\n{lack}\n")
    monkeypatch.setenv("PYTHONPATH", str(shims))
    refused = make("setup", tmp_path, PYTHON=sys.executable)
    assert refused.returncode != 0
    assert said in refused.stderr
    assert not (tmp_path / ".venv").exists()


@pytest.mark.parametrize(
    ("target", "sets"),
    [
        ("run", ["."]),
        ("wheel", ["."]),
        ("agents", [".", ".[agents]"]),
        ("check", [".", ".[agents,check]"]),
        ("test", [".", ".[test,agents]"]),
        ("setup", [".[test,agents,check]"]),
        ("test-long", [".", ".[test,agents]", ".[test,agents,long]"]),
    ],
)
def test_each_target_fetches_what_it_needs(target: str, sets: list[str], tmp_path: Path) -> None:
    """A person who only wants to run wakeful does not wait for the packages of tests and agents."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(REPOSITORY / name, tmp_path)
    told = subprocess.run(["make", "--dry-run", target], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert told.returncode == 0, told.stderr
    installed = [line.split("--editable ")[1].strip("'") for line in told.stdout.splitlines() if "--editable" in line]
    assert installed == sets


def test_a_command_that_takes_long_shows_that_it_goes_on(tmp_path: Path) -> None:
    """The script prints a line at the start, then regularly lines with the last output of the command."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    slow = f"print('fetching this'); print('WARNING: never mind', flush=True); open({str(gate)!r}).read()"
    with subprocess.Popen(
        [sys.executable, SHOW_PROGRESS, "setting up", sys.executable, "-c", slow], stdout=subprocess.PIPE, text=True
    ) as shown:
        assert shown.stdout is not None
        assert shown.stdout.readline() == "setting up\n"
        first = time.monotonic()
        while "fetching this" not in (line := shown.stdout.readline()):
            assert line.startswith("setting up: ") and time.monotonic() - first < 60, line
        gate.write_text("go on")
        *_, last = shown.stdout
    assert shown.returncode == 0 and last.startswith("setting up: done in ")


def test_a_command_that_fails_is_shown_in_full() -> None:
    """The exit code and the whole output of the command are passed on."""
    bad = "import sys; print('first'); print('why', file=sys.stderr); sys.exit(3)"
    done = subprocess.run(
        [sys.executable, SHOW_PROGRESS, "setting up", sys.executable, "-c", bad],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 3 and "setting up: failed" in done.stdout
    assert "first\n" in done.stderr and "why\n" in done.stderr
