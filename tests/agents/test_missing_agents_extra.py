"""The libraries of agents come with an extra. Without them a session says how to install them.

A running daemon finds them after the installation.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from agents.provider import Provider, Say
from agents.test_agent_runs import KEY, declare
from e2e.box import Box
from wakeful.system import installation

LIBRARIES = ("httpx2", "acp", "mcp")


@pytest.fixture
def plain_venv(tmp_path: Path) -> Path:
    """Create an environment in which everything is installed except the extra, and return its interpreter."""
    folder = tmp_path / "plain"
    venv.create(folder, symlinks=True)
    place = find_packages(folder)
    for entry in os.scandir(sysconfig.get_path("purelib")):
        if entry.name not in LIBRARIES:
            (place / entry.name).symlink_to(entry.path)
    return folder / "bin" / "python"


def find_packages(folder: Path) -> Path:
    return Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))


@pytest.mark.long
def test_libraries_installed_later_are_found_by_the_daemon_that_runs(
    box: Box, provider: Provider, plain_venv: Path
) -> None:
    """The session says what is missing, with a command for this installation.

    After the installation one activation is enough.
    """
    provider.play([Say("The page is true.")])
    # The environment links to files elsewhere, which a confined run could not read.
    box.write("wakeful.yaml", "allow_unisolated: true\n")
    declare(box, provider, isolation="none")
    box.wrap = (str(plain_venv),)
    box.start(env=KEY)
    box.wait_at_rest("docs", runs=1)
    told = box.words("why", "docs") + box.words("output", "docs")
    checkout = Path(__file__).parents[2]
    assert "not installed" in told and f"{plain_venv} -m pip install" in told.replace("- ", "-"), told
    assert f"{checkout}[agents]" in told, told
    for name in LIBRARIES:
        (find_packages(plain_venv.parents[1]) / name).symlink_to(Path(sysconfig.get_path("purelib")) / name)
    done = box.run("activate", "docs", "--wait")
    assert done.returncode == 0 and provider.requests, done.stdout + done.stderr + box.ask("output", "docs")


@pytest.mark.parametrize(
    ("origin", "named"),
    [
        ({"url": "file:///src/my%20wakeful", "dir_info": {"editable": True}}, "--editable '/src/my wakeful[agents]'"),
        (
            {"url": "file:///src/dist/wakeful-0.1.0-py3-none-any.whl", "archive_info": {}},
            "'/src/dist/wakeful-0.1.0-py3-none-any.whl[agents]'",
        ),
        (None, "'wakeful[agents]'"),
    ],
)
def test_the_command_is_the_one_for_how_it_was_installed(
    origin: dict[str, object] | None, named: str, tmp_path: Path
) -> None:
    """Installed from a checkout, from a wheel in a folder, and from an index, as pip records it."""
    info = tmp_path / "wakeful-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: wakeful\nVersion: 0.1.0\n")
    if origin is not None:
        (info / "direct_url.json").write_text(json.dumps(origin))
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import wakeful.system.installation as one; print(one.offer_agents())"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()
    assert told.startswith(f"{shlex.quote(sys.executable)} -m ") or told.startswith("uv "), told
    assert named in told
    assert ("is not there now" in told) == (origin is not None)
    assert installation.has_agents()
