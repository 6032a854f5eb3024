"""Which script of the project a command runs: the implied `program` binding (specs.md).

Called by build with a command's words. Names a script inside root or nothing: an interpreter, a program
from PATH and a file outside root are the machine's, and no reason to wake.
"""

from __future__ import annotations

import os
import re

_INTERPRETER = re.compile(
    r"(python|pypy|node|deno|bun|ruby|perl|php|lua|Rscript|julia|bash|dash|zsh|ksh|sh|fish|tclsh|awk|gawk)[\d.]*"
)
# After these the program is in the words themselves, or is a module.
_NO_SCRIPT = ("-c", "-m", "-e", "-", "--eval", "-p", "-E", "-r")
_SCRIPT_SUFFIXES = (
    ".py", ".sh", ".bash", ".zsh", ".js", ".mjs", ".cjs", ".ts", ".rb", ".pl", ".php", ".lua", ".r", ".jl", ".awk",
    ".tcl",
)  # fmt: skip
_WILDCARD = re.compile(r"[*?\[]")


def find_program(argv: tuple[str, ...], root: str, cwd: str | None) -> str | None:
    """The script relative to root, or None."""
    words = argv[skip_environment(argv) :]
    if not words:
        return None
    if not _INTERPRETER.fullmatch(os.path.basename(words[0])):
        return _inside(words[0], root, cwd) if "/" in words[0] else None
    for word in words[1:]:
        if word in _NO_SCRIPT:
            return None
        if word.startswith("-"):
            continue
        # `-W error` and the like: a word that neither is a file nor looks like one is an option's value.
        if (found := _inside(word, root, cwd)) is not None:
            return found
    return None


def skip_environment(argv: tuple[str, ...]) -> int:
    """The index of the program itself: `env` and variables may stand before it."""
    is_before = (os.path.basename(word) == "env" or re.match(r"[A-Za-z_]\w*=", word) is not None for word in argv)
    return next((index for index, is_skipped in enumerate(is_before) if not is_skipped), len(argv))


def _inside(word: str, root: str, cwd: str | None) -> str | None:
    is_script = word.lower().endswith(_SCRIPT_SUFFIXES)
    path = os.path.join(root, cwd or "", word)
    if not is_script and not os.path.isfile(path):
        return None
    path = os.path.normpath(path)
    prefix = root if root.endswith("/") else f"{root}/"
    if not path.startswith(prefix) or _WILDCARD.search(path, len(prefix)):
        return None
    return path[len(prefix) :]
