"""Analyses the words of a command: which are code, which hold shell syntax, and which name a script of the project.

- `templates` asks for code (program text, SQL, a shell command, an option). A file's name must not be part of such a
  word, because then the person who names the file would decide what is run.
- `new` and `check` ask for shell syntax (pipes, redirections, globs, variables), which only a shell interprets.
- `spec_builder` asks for the script, which becomes the implied `program` binding (specs.md).

The functions work on text, with two exceptions: `find_signs` expands globs, and `find_program` looks for the script.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

_VERSION = re.compile(r"[-\d.]*(\.exe)?$")

# Programs that run their words as a command, or as part of a command.
_COMMANDS = {
    "ssh", "slogin", "mosh", "autossh", "dbclient", "plink", "rsh", "eval", "tmux", "screen", "watch", "watchexec",
    "parallel", "hyperfine",
    "at", "batch", "crontab", "make", "gmake", "m4", "redis-cli", "entr", "nix-shell", "expect", "xdotool", "ed", "ex",
}  # fmt: skip
# Programs whose names are also everyday words. They count only as the first word of a command, or after a wrapper.
_EVERYDAY = {"at", "batch", "make", "watch", "screen", "parallel", "eval", "script", "ex", "ed", "sg", "su", "git", "R"}
# Programs that start another program named in their words.
_WRAPPERS = {
    "env", "sudo", "doas", "nice", "ionice", "nohup", "setsid", "stdbuf", "timeout", "time", "chroot", "unshare",
    "nsenter", "strace", "ltrace",
    "xargs", "find", "busybox", "chrt", "taskset", "systemd-run", "bwrap", "firejail", "flock", "fakeroot",
    "valgrind", "sshpass", "command",
    "exec", "docker", "podman", "kubectl", "nerdctl", "lxc", "incus",
}  # fmt: skip


class CodeWords(NamedTuple):
    """The words that a program runs as code.

    `code` are the options before code, `values` the options before data. `first`: the first plain word is code, unless
    an option of `code` or `files` gave the code.
    """

    code: frozenset[str] = frozenset()
    values: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()
    first: bool = False


def _take(code: str = "", values: str = "", files: str = "", *, first: bool = False) -> CodeWords:
    return CodeWords(frozenset(code.split()), frozenset(values.split()), frozenset(files.split()), first)


_SHELL = _take("-c --command -Command -EncodedCommand --rcfile --init-file")
_TAKERS = {
    **dict.fromkeys(
        ("sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "csh", "tcsh", "fish", "pwsh", "nu", "xonsh", "rbash"),
        _SHELL,
    ),
    **dict.fromkeys(("python", "pypy", "ipython"), _take("-c -m")),
    **dict.fromkeys(("node", "bun", "deno"), _take("-e -p -r --eval --print --require --import eval")),
    **dict.fromkeys(("lua", "luajit", "texlua"), _take("-e -l")),
    **dict.fromkeys(("R", "Rscript", "r"), _take("-e --expression")),
    **dict.fromkeys(("mysql", "mariadb"), _take("-e --execute --init-command")),
    **dict.fromkeys(
        ("vi", "vim", "nvim", "emacs", "emacsclient"),
        _take("-c -S -l -f --cmd --eval --execute --load --funcall -eval"),
    ),
    **dict.fromkeys(("su", "runuser", "script", "flock", "sg"), _take("-c --command --session-command")),
    **dict.fromkeys(
        ("awk", "gawk", "mawk", "nawk"),
        _take("-e --source -v --assign -i --include -l --load", "-F --field-separator", "-f --file", first=True),
    ),
    **dict.fromkeys(("sed", "gsed"), _take("-e --expression", "-l --line-length", "-f --file", first=True)),
    **dict.fromkeys(("jq", "gojq", "jaq", "yq", "xq"), _take("-L", "--indent", "-f --from-file", first=True)),
    "perl": _take("-e -E -M -m -I -x"),
    "ruby": _take("-e -r -I"),
    "php": _take("-r -B -R -E -d -z"),
    "julia": _take("-e -E --eval --print -L --load"),
    "osascript": _take("-e"),
    "octave": _take("--eval"),
    "elixir": _take("-e --eval --rpc-eval -r"),
    "erl": _take("-eval -s -run"),
    "groovy": _take("-e"),
    "scala": _take("-e"),
    "clojure": _take("-e --eval -M -X -Sdeps"),
    "guile": _take("-c -l -e"),
    "racket": _take("-e --eval"),
    "sbcl": _take("--eval --load"),
    "gdb": _take("-ex -iex -x -ix --eval-command --command"),
    "duckdb": _take("-c -cmd -s"),
    "mongosh": _take("--eval"),
    "mongo": _take("--eval"),
    "clickhouse-client": _take("-q --query"),
    "sqlcmd": _take("-Q -q"),
    "dc": _take("-e --expression"),
    "env": _take("-S --split-string"),
    "tar": _take("-I --use-compress-program --to-command --checkpoint-action"),
    "openssl": _take("-engine -provider"),
    "curl": _take("-K --config"),
    "wget": _take("-e --execute --use-askpass"),
}
# Programs in which a file's name may stand only after these options.
_ONLY_AFTER = {"psql": ("-f", "--file"), "git": ("--",)}
_REMOTE_COPIES = {"scp", "rsync", "sftp"}
_DATABASES = {"sqlite3", "sqlite"}

# Environment variables that a shell, a loader, an interpreter or git reads as code, or as the place of code.
_CODE_VARIABLE = re.compile(
    r"(LD_|DYLD_|GIT_|PYTHON|PERL5|RUBY|NODE_|LUA_|BASH_|GCONV_|JAVA_TOOL|_JAVA|JDK_|MAKE|DOTNET_|PHP_|PSQL|PG|SSH_"
    r"|RUSTC|CARGO_|npm_config)\w*"
    r"|ENV|PATH|IFS|SHELL|PS[0-4]|PROMPT_COMMAND|EDITOR|VISUAL|PAGER|MANPAGER|BROWSER|LESSOPEN|LESSCLOSE|AWKPATH"
    r"|AWKLIBPATH|ZDOTDIR|HOME|CDPATH|NLSPATH|TERMINFO"
)


def find_code(words: Sequence[str], named: Iterable[int]) -> Iterator[tuple[int, str]]:
    """Yield those words of `named` in which a file's name would be code, each with a description of the code."""
    programs = list(_find_programs(words))
    for index in named:
        fixed = words[index].partition("{")[0]
        if fixed.startswith("-") and not ("=" in fixed or "/" in fixed):
            yield index, "an option"
            continue
        for at in programs:
            if at < index and (what := _judge(words, at, index)) is not None:
                yield index, what
                break


def takes_code(variable: str) -> bool:
    return _CODE_VARIABLE.fullmatch(variable) is not None


def _find_programs(words: Sequence[str]) -> Iterator[int]:
    """Yield the index of each listed program. After a wrapper such as `sudo`, the program may be any later word."""
    is_wrapped = bool(words) and _name(words[0]) in _WRAPPERS
    for index, word in enumerate(words):
        name = _name(word)
        if (index == 0 or is_wrapped or name not in _EVERYDAY) and _is_listed(name):
            yield index


def _is_listed(name: str) -> bool:
    return name in _COMMANDS or name in _TAKERS or name in _ONLY_AFTER or name in _REMOTE_COPIES or name in _DATABASES


def _name(word: str) -> str:
    """Return the program's name without its folder and version: `/usr/bin/python3.11` is python."""
    name = os.path.basename(word)
    return name if _is_listed(name) else _VERSION.sub("", name)


def _judge(words: Sequence[str], at: int, index: int) -> str | None:
    """Describe the word at `index` if the program at `at` would run it as code; else None."""
    name, word = _name(words[at]), words[index]
    if name in _COMMANDS:
        return f"a command of {name}"
    if name in _ONLY_AFTER:
        is_let = any(
            words[place] in _ONLY_AFTER[name] for place in (range(at + 1, index) if name == "git" else [index - 1])
        )
        return None if is_let else f"an option or code of {name}"
    if name in _REMOTE_COPIES:
        # For a remote copy, the text before a colon is a host, and the text after it is expanded on that host.
        return (
            None
            if word.startswith("{path}") or "/" in word.partition("{")[0].partition(":")[0]
            else f"a place on another host to {name}"
        )
    if name in _DATABASES:
        first = next((place for place in range(at + 1, len(words)) if not words[place].startswith("-")), None)
        return None if first == index and words[index - 1] not in ("-cmd", "-init") else f"SQL of {name}"
    return _judge_taker(name, _TAKERS[name], words, at, index)


def _judge_taker(name: str, taker: CodeWords, words: Sequence[str], at: int, index: int) -> str | None:
    if words[index].startswith(("-", "+")):
        return f"an option of {name}"
    if name in ("perl", "ruby") and any(re.fullmatch(r"-[a-zA-Z0]*[npi]\S*", word) for word in words[at + 1 : index]):
        return f"what {name} opens, and a name that ends or begins with | is a command to it"
    is_given = is_awaited = False
    place = at + 1
    while place <= index:
        word = words[place]
        if _is_option(word, taker.code):
            # Options of a shell may stand between `-c` and its text.
            is_given = is_awaited = True
        elif _is_option(word, taker.files):
            is_given, place = True, place + 1
        elif word in taker.values:
            place += 1
        elif word.startswith("--arg") and taker.first:
            # jq's `--arg` takes a name and a value.
            place += 2
        elif (word == "-" or not word.startswith("-")) and (is_awaited or (taker.first and not is_given)):
            if place == index:
                return f"code of {name}"
            is_given, is_awaited = True, False
        place += 1
    return None


def _is_option(word: str, options: frozenset[str]) -> bool:
    """Is this word the option itself (`-c`), or a group of short options that ends with it (`-ec`)?"""
    if word in options:
        return True
    return bool(re.fullmatch(r"-[a-zA-Z]+", word)) and f"-{word[-1]}" in options


# Characters that a shell interprets: outside of quotes, and inside of double quotes.
_ACTIVE = frozenset("|&;<>()*?$`\n")
_ACTIVE_IN_QUOTES = frozenset("$`")
_OPERATOR = re.compile(r"\|\|?|\|&|&&|&|;|\d?(>>?|<<?)(&\d|-)?|&>>?")
# Redirections without a space, such as `>out.txt` and `2>/dev/null`.
_REDIRECTION = re.compile(r"[12]?>>?&?[\w./~-]+|<[\w./~-]+")
_VARIABLE = re.compile(r"\$([A-Za-z_]\w*|[A-Za-z_]?\{[A-Za-z_]\w*\}|\(.*\)|\{[A-Za-z_].*\})|`[^`]+`")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_WILDCARD = re.compile(r"[*?]|\[[^\]]+\]")
# Programs that have these signs as operators or separators of their own.
_OWN_SIGNS = {"test", "[", "expr", "find", "parallel", "tmux"}
# Programs that take patterns for names or text themselves.
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
# Words of a shell that are not programs on PATH.
SHELL_WORDS = frozenset(
    "cd export source . set unset if for while until case alias ulimit umask eval exec trap read shift wait "
    "local function pushd popd let declare".split()
)


class Sign(NamedTuple):
    """A word that a shell would interpret and a program would not: its index, and a description."""

    place: int
    words: str


def has_shell_sign(line: str) -> bool:
    """Would a shell do more with this line than split it into words? A sign in quotes is text."""
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
    return _ASSIGNMENT.match(line) is not None or (line.split()[:1] != [] and line.split()[0] in SHELL_WORDS)


def _opens(line: str, index: int, character: str, is_new_word: bool) -> bool:
    """Does this character begin a home folder (`~`), a comment (`#`), or a set of characters (`[...]`) that ends in the
    same word?
    """
    if character == "[":
        return not is_new_word and "]" in line[index:].split(maxsplit=1)[0]
    return is_new_word and (character == "#" or (character == "~" and line[index + 1 : index + 2] in ("", "/", " ")))


def find_signs(argv: Sequence[str], cwd: str, bound: Sequence[str] = ()) -> Iterator[Sign]:
    """Find the words of a command that look like shell syntax.

    `bound` are the patterns of the session's files.
    """
    program = os.path.basename(argv[0])
    code = {index for index, _ in find_code(argv, range(len(argv)))}
    for index, word in enumerate(argv[1:], 1):
        if index in code:
            continue
        if _OPERATOR.fullmatch(word) or _REDIRECTION.fullmatch(word):
            if program not in _OWN_SIGNS:
                yield Sign(index, f"'{word}' is shell syntax")
        elif _VARIABLE.fullmatch(word) or word.startswith("~/"):
            if program not in _OWN_PATTERNS:
                yield Sign(index, f"'{word}' is expanded only by a shell")
        elif _is_glob(word, argv[index - 1], program, cwd, bound):
            yield Sign(index, f"'{word}' is a glob, which only a shell expands")


def _is_glob(word: str, before: str, program: str, cwd: str, bound: Sequence[str]) -> bool:
    """Is the word a glob that matches files here? After an option, or with `**`, the program expands it itself."""
    if _WILDCARD.search(word) is None or "**" in word or any(character.isspace() for character in word):
        return False
    if program in _OWN_PATTERNS or before.startswith("-") or word.startswith("-"):
        return False
    return word in bound or next(glob.iglob(os.path.join(glob.escape(cwd), word)), None) is not None


_INTERPRETER = re.compile(
    r"(python|pypy|node|deno|bun|ruby|perl|php|lua|Rscript|julia|bash|dash|zsh|ksh|sh|fish|tclsh|awk|gawk)[\d.]*"
)
# Options after which there is no script, because the program text is in the words or in a module.
_NO_SCRIPT = ("-c", "-m", "-e", "-", "--eval", "-p", "-E", "-r")
_SCRIPT_SUFFIXES = (
    ".py", ".sh", ".bash", ".zsh", ".js", ".mjs", ".cjs", ".ts", ".rb", ".pl", ".php", ".lua", ".r",
    ".jl", ".awk", ".tcl",
)  # fmt: skip
_PATTERN_SIGN = re.compile(r"[*?\[]")


def find_program(argv: tuple[str, ...], root: str, cwd: str | None) -> str | None:
    """Find the script of a command, as a path relative to root. None if there is none."""
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
        # A word that neither is a file nor looks like one is an option's value, such as `error` in `-W error`.
        if (found := _inside(word, root, cwd)) is not None:
            return found
    return None


def skip_environment(argv: tuple[str, ...]) -> int:
    """Return the index of the program, after `env` and variables."""
    is_before = (os.path.basename(word) == "env" or re.match(r"[A-Za-z_]\w*=", word) is not None for word in argv)
    return next((index for index, is_skipped in enumerate(is_before) if not is_skipped), len(argv))


def _inside(word: str, root: str, cwd: str | None) -> str | None:
    is_script = word.lower().endswith(_SCRIPT_SUFFIXES)
    path = os.path.join(root, cwd or "", word)
    if not is_script and not os.path.isfile(path):
        return None
    path = os.path.normpath(path)
    prefix = root if root.endswith("/") else f"{root}/"
    if not path.startswith(prefix) or _PATTERN_SIGN.search(path, len(prefix)):
        return None
    return path[len(prefix) :]
