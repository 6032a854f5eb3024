"""git for tests: one way to call it. Who commits, and that no settings of the machine count, is in the environment (conftest.py)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

# Submodules and clones of folders, folders of other users, and the same first branch with every release.
_SETTINGS = ("-c", "protocol.file.allow=always", "-c", "safe.directory=*", "-c", "init.defaultBranch=main")


def git(folder: Path, *words: str, text: str | None = None, **environ: str) -> str:
    """Run git in a folder and return what it prints, without the last line end. `text` is its standard input.

    Raises CalledProcessError, with the words of git.
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
    """For repositories whose hooks are traps for others."""
    return git(folder, "-c", "core.hooksPath=/dev/null", *words)
