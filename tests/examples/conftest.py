"""A copy of the examples in a folder of its own, and a way to run one of their programs in it as a session would.

Every test of this folder works on such a copy: the repository's own files are read, never written.
"""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True)
class Ended:
    code: int
    stdout: str
    stderr: str


@dataclass(frozen=True)
class Tree:
    """A root as a run finds it: sessions.d/ beside examples/, and the environment a run is given."""

    root: Path

    def run(self, program: str, **environment: str) -> Ended:
        ended = subprocess.run(
            [sys.executable, program],
            cwd=self.root,
            env={"PATH": os.environ["PATH"], **environment},
            capture_output=True,
            encoding="utf-8",
            timeout=30,
            check=False,
        )
        return Ended(ended.returncode, ended.stdout, ended.stderr)

    def succeed(self, program: str, **environment: str) -> str:
        ended = self.run(program, **environment)
        assert (ended.code, ended.stderr) == (0, ""), ended
        return ended.stdout

    def read(self, path: str) -> str:
        return (self.root / path).read_text(encoding="utf-8")

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text, encoding="utf-8")

    def replace(self, path: str, old: str, new: str) -> None:
        text = self.read(path)
        assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {path}"
        self.write(path, text.replace(old, new))

    def files(self) -> dict[str, bytes]:
        return {
            str(path.relative_to(self.root)): path.read_bytes()
            for path in sorted(self.root.rglob("*"))
            if path.is_file() and "__pycache__" not in path.parts
        }


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    root = tmp_path / "root"
    # What programs made in the checkout must not be mistaken for what they make here.
    leave_out = shutil.ignore_patterns("out", "__pycache__")
    for folder in ("sessions.d", "examples", "daemon/wakeful/core"):
        shutil.copytree(REPOSITORY / folder, root / folder, ignore=leave_out)
    return Tree(root)
