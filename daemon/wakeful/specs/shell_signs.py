"""Signs of a shell in the words of a command: pipes, redirections, globs, variables, which no program but a shell obeys.

`new` asks about a line that a person typed: with such a sign it becomes a script. `check` asks about the words of a list, where each may also
be meant for the program itself (`find -name "*.py"`): it warns only of what is hardly meant so. Pure text, but for the globs that `check` tries.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from wakeful.specs.code_words import find_code

# Outside of quotes, and inside of double ones.
_ACTIVE = frozenset("|&;<>()*?$`\n")
_ACTIVE_IN_QUOTES = frozenset("$`")
_OPERATOR = re.compile(r"\|\|?|\|&|&&|&|;|\d?(>>?|<<?)(&\d|-)?|&>>?")
# `>out.txt` and `2>/dev/null`, without a space in between.
_REDIRECTION = re.compile(r"[12]?>>?&?[\w./~-]+|<[\w./~-]+")
_VARIABLE = re.compile(r"\$([A-Za-z_]\w*|[A-Za-z_]?\{[A-Za-z_]\w*\}|\(.*\)|\{[A-Za-z_].*\})|`[^`]+`")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_WILDCARD = re.compile(r"[*?]|\[[^\]]+\]")
# They compare or end with these signs themselves.
_OWN_SIGNS = {"test", "[", "expr", "find", "parallel", "tmux"}
# They match names or text themselves.
_OWN_PATTERNS = {
    "find",
    "git",
    "grep",
    "egrep",
    "fgrep",
    "rg",
    "ag",
    "fd",
    "sed",
    "awk",
    "gawk",
    "mawk",
    "perl",
    "jq",
    "expr",
    "case",
    "tree",
    "prettier",
    "eslint",
}
# A shell's own words, which no file of PATH stands for.
SHELL_WORDS = frozenset(
    "cd export source . set unset if for while until case alias ulimit umask eval exec trap read shift wait local function pushd popd let declare".split()
)


class Sign(NamedTuple):
    """One word that a shell would read otherwise than a program does: its place in the list, and the words for what is seen."""

    place: int
    words: str


def has_shell_sign(line: str) -> bool:
    """Whether a shell would do more with this line than split it into words. A sign in quotes is text."""
    quote = ""
    is_escaped = False
    is_new_word = True
    for index, character in enumerate(line):
        if is_escaped:
            is_escaped = False
        elif quote:
            if character == quote:
                quote = ""
            elif quote == '"' and character in _ACTIVE_IN_QUOTES:
                return True
            is_escaped = quote == '"' and character == "\\"
        elif character in "'\"":
            quote = character
        elif character == "\\":
            is_escaped = True
        elif character in _ACTIVE or _opens(line, index, character, is_new_word):
            return True
        is_new_word = not quote and not is_escaped and character.isspace()
    return _ASSIGNMENT.match(line) is not None or line.split()[:1] != [] and line.split()[0] in SHELL_WORDS


def _opens(line: str, index: int, character: str, is_new_word: bool) -> bool:
    """A home folder, a comment, or a set of characters that is closed in the same word."""
    if character == "[":
        return not is_new_word and "]" in line[index:].split(maxsplit=1)[0]
    return is_new_word and (character == "#" or (character == "~" and line[index + 1 : index + 2] in ("", "/", " ")))


def find_signs(argv: Sequence[str], cwd: str, bound: Sequence[str] = ()) -> Iterator[Sign]:
    """The words of a command that look as if they were meant for a shell. `bound` are the patterns of the session's files."""
    program = os.path.basename(argv[0])
    code = {index for index, _ in find_code(argv, range(len(argv)))}
    for index, word in enumerate(argv[1:], 1):
        if index in code:
            continue
        if _OPERATOR.fullmatch(word) or _REDIRECTION.fullmatch(word):
            if program not in _OWN_SIGNS:
                yield Sign(index, f"'{word}' is a sign for a shell")
        elif _VARIABLE.fullmatch(word) or word.startswith("~/"):
            if program not in _OWN_PATTERNS:
                yield Sign(index, f"'{word}' is what a shell replaces")
        elif _is_glob(word, argv[index - 1], program, cwd, bound):
            yield Sign(index, f"'{word}' is a glob, which a shell replaces by the files it finds")


def _is_glob(word: str, before: str, program: str, cwd: str, bound: Sequence[str]) -> bool:
    """One that means files here. Behind an option, and with `**`, it is meant for the program."""
    if _WILDCARD.search(word) is None or "**" in word or any(character.isspace() for character in word):
        return False
    if program in _OWN_PATTERNS or before.startswith("-") or word.startswith("-"):
        return False
    return word in bound or next(glob.iglob(os.path.join(glob.escape(cwd), word)), None) is not None
