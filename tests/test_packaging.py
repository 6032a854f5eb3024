"""What people install: a wheel that holds the whole package and nothing else, with its licence, its command and its needs.

The wheel is built once, without a network, from a copy of what git would hand out: what a contributor has lying about in
the checkout must not decide what is inside.
"""

import configparser
import email
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from email.message import Message
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parent.parent
PACKAGE = REPOSITORY / "daemon" / "wakeful"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    """Build the wheel from the package and the files its metadata is made of."""
    checkout, dist = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("dist")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        if (REPOSITORY / name).exists():
            shutil.copy(REPOSITORY / name, checkout)
    shutil.copytree(PACKAGE, checkout / "daemon" / "wakeful", ignore=shutil.ignore_patterns("__pycache__"))
    built = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", dist, checkout],
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


def test_the_wheel_holds_the_whole_package(wheel: zipfile.ZipFile) -> None:
    """Every file of the package is in the wheel: modules, SQL of migrations, and whatever else it reads."""
    expected = {
        path.relative_to(PACKAGE.parent).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    packed = {member for member in wheel.namelist() if ".dist-info/" not in member}
    assert packed == expected
    assert "wakeful/__init__.py" in packed


def test_the_wheel_claims_one_import_name(wheel: zipfile.ZipFile) -> None:
    """Nothing but `wakeful` lands in site-packages: `daemon` and `tests` are names of other projects."""
    tops = {member.split("/")[0] for member in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"wakeful"}


def test_the_wheel_carries_its_licence(wheel: zipfile.ZipFile, metadata: Message) -> None:
    """The metadata names Apache-2.0 and the full text travels with it."""
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["License-File"] == "LICENSE"
    assert read_info(wheel, "licenses/LICENSE") == (REPOSITORY / "LICENSE").read_text()
    assert "END OF TERMS AND CONDITIONS" in read_info(wheel, "licenses/LICENSE")


def test_the_wheel_installs_the_command(wheel: zipfile.ZipFile) -> None:
    """Installing gives the one command, `wakeful`."""
    scripts = configparser.ConfigParser()
    scripts.read_string(read_info(wheel, "entry_points.txt"))
    assert dict(scripts["console_scripts"]) == {"wakeful": "wakeful.cli:main"}


def test_the_version_has_one_home(metadata: Message) -> None:
    """The metadata's version is the package's own, and fits the supported Pythons."""
    text = (PACKAGE / "__init__.py").read_text()
    assert f'__version__ = "{metadata["Version"]}"' in text
    assert metadata["Requires-Python"] == ">=3.11"


def test_a_plain_install_brings_no_test_tools(metadata: Message) -> None:
    """pytest and its kin come with the extra `test` only."""
    plain = [need for need in metadata.get_all("Requires-Dist") if "extra ==" not in need]
    assert plain and not [need for need in plain if need.startswith(("pytest", "hypothesis", "hatchling"))]


def test_every_dependency_gives_its_reason() -> None:
    """Above each dependency of pyproject.toml stands a comment that says what it is for."""
    lines = (REPOSITORY / "pyproject.toml").read_text().splitlines()
    project = tomllib.loads("\n".join(lines))["project"]
    for dependency in project["dependencies"]:
        [number] = [number for number, line in enumerate(lines) if line.strip() == f'"{dependency}",']
        assert lines[number - 1].strip().startswith("# "), dependency


def test_the_repository_holds_no_lock_and_no_address_to_fetch_from() -> None:
    """What is fetched from where is the machine's affair: no lock file, and no index in any configuration."""
    assert [path.name for path in REPOSITORY.glob("*.lock")] == []
    for name in ("pyproject.toml", "Makefile", ".ci/run"):
        text = (REPOSITORY / name).read_text()
        assert "index-url" not in text and "://" not in text, name
