"""One way to call git in tests. conftest.py sets the committer and hides the machine's settings in the environment."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

# Allow submodules and clones of folders, and folders of other users. The first branch has the same name in every
# release.
_SETTINGS = ("-c", "protocol.file.allow=always", "-c", "safe.directory=*", "-c", "init.defaultBranch=main")


def git(folder: Path, *words: str, text: str | None = None, **environ: str) -> str:
    """Run git in a folder and return its output, without the last line end. `text` is its standard input.

    Raises CalledProcessError with git's error output.
    """
    done = subprocess.run(
        ["git", *_SETTINGS, *words],
        cwd=folder,
        env=os.environ | environ,
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
    )
    if done.returncode != 0:
        failure = subprocess.CalledProcessError(done.returncode, done.args, done.stdout, done.stderr)
        failure.add_note(done.stderr)
        raise failure
    return done.stdout.strip()


def git_without_hooks(folder: Path, *words: str) -> str:
    """Run git without hooks, for repositories whose hooks are traps."""
    return git(folder, "-c", "core.hooksPath=/dev/null", *words)
