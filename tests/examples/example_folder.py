"""The folder tree in which the example programs run: tests edit its files, run programs and read results."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Ended:
    code: int
    stdout: str
    stderr: str


@dataclass(frozen=True)
class Tree:
    """A root folder as a run finds it, with sessions.d/ beside examples/. Programs get only a minimal environment."""

    root: Path

    def run(self, program: str, **environment: str) -> Ended:
        ended = subprocess.run(
            [sys.executable, program],
            cwd=self.root,
            env={"PATH": os.environ["PATH"], **environment},
            capture_output=True,
            encoding="utf-8",
            timeout=60,
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
