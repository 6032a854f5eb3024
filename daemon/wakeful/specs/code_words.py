"""Which words of a command are code: program text, SQL, a command for a shell here or on another host, an option.

Asked for templates: a file's name must not stand in such a word, or whoever names a file says what is run. Programs that are not
known here take their words as data. The lists err to the side of code: whoever is refused passes the name by a variable.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

_VERSION = re.compile(r"[-\d.]*(\.exe)?$")

# All their words are a command, or become part of one.
_COMMANDS = {
    "ssh", "slogin", "mosh", "autossh", "dbclient", "plink", "rsh", "eval", "tmux", "screen", "watch", "watchexec", "parallel", "hyperfine",
    "at", "batch", "crontab", "make", "gmake", "m4", "redis-cli", "entr", "nix-shell", "expect", "xdotool", "ed", "ex",
}  # fmt: skip
# Words of everyday use: only the first word of a command, or what a wrapper starts, is one of these programs.
_EVERYDAY = {"at", "batch", "make", "watch", "screen", "parallel", "eval", "script", "ex", "ed", "sg", "su", "git", "R"}
# They start what stands among their words.
_WRAPPERS = {
    "env", "sudo", "doas", "nice", "ionice", "nohup", "setsid", "stdbuf", "timeout", "time", "chroot", "unshare", "nsenter", "strace", "ltrace",
    "xargs", "find", "busybox", "chrt", "taskset", "systemd-run", "bwrap", "firejail", "flock", "fakeroot", "valgrind", "sshpass", "command",
    "exec", "docker", "podman", "kubectl", "nerdctl", "lxc", "incus",
}  # fmt: skip


class Taker(NamedTuple):
    """The words that a program runs as code. `code`: options before code; `values`: options before data; `first`: its first plain word
    is code unless an option of `code` or `files` gave it."""

    code: frozenset[str] = frozenset()
    values: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()
    first: bool = False


def _take(code: str = "", values: str = "", files: str = "", *, first: bool = False) -> Taker:
    return Taker(frozenset(code.split()), frozenset(values.split()), frozenset(files.split()), first)


_SHELL = _take("-c --command -Command -EncodedCommand --rcfile --init-file")
_TAKERS = {
    **dict.fromkeys(("sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "csh", "tcsh", "fish", "pwsh", "nu", "xonsh", "rbash"), _SHELL),
    **dict.fromkeys(("python", "pypy", "ipython"), _take("-c -m")),
    **dict.fromkeys(("node", "bun", "deno"), _take("-e -p -r --eval --print --require --import eval")),
    **dict.fromkeys(("lua", "luajit", "texlua"), _take("-e -l")),
    **dict.fromkeys(("R", "Rscript", "r"), _take("-e --expression")),
    **dict.fromkeys(("mysql", "mariadb"), _take("-e --execute --init-command")),
    **dict.fromkeys(("vi", "vim", "nvim", "emacs", "emacsclient"), _take("-c -S -l -f --cmd --eval --execute --load --funcall -eval")),
    **dict.fromkeys(("su", "runuser", "script", "flock", "sg"), _take("-c --command --session-command")),
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), _take("-e --source -v --assign -i --include -l --load", "-F --field-separator", "-f --file", first=True)),
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
}  # fmt: skip
# After these options alone a name may stand.
_ONLY_AFTER = {"psql": ("-f", "--file"), "git": ("--",)}
_REMOTE_COPIES = {"scp", "rsync", "sftp"}
_DATABASES = {"sqlite3", "sqlite"}

# Variables that a shell, a loader, an interpreter or git takes for code, or for where code lies.
_CODE_VARIABLE = re.compile(
    r"(LD_|DYLD_|GIT_|PYTHON|PERL5|RUBY|NODE_|LUA_|BASH_|GCONV_|JAVA_TOOL|_JAVA|JDK_|MAKE|DOTNET_|PHP_|PSQL|PG|SSH_|RUSTC|CARGO_|npm_config)\w*"
    r"|ENV|PATH|IFS|SHELL|PS[0-4]|PROMPT_COMMAND|EDITOR|VISUAL|PAGER|MANPAGER|BROWSER|LESSOPEN|LESSCLOSE|AWKPATH|AWKLIBPATH|ZDOTDIR|HOME|CDPATH|NLSPATH|TERMINFO"
)


def find_code(words: Sequence[str], named: Iterable[int]) -> Iterator[tuple[int, str]]:
    """Of the words at `named`, which hold a file's name, those in which it would be code, each with what it would be."""
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
    """The program's name without its folder and version: `/usr/bin/python3.11` is python."""
    name = os.path.basename(word)
    return name if _is_listed(name) else _VERSION.sub("", name)


def _judge(words: Sequence[str], at: int, index: int) -> str | None:
    """Describe the word at `index` if the program at `at` would run it as code. None: it would not."""
    name, word = _name(words[at]), words[index]
    if name in _COMMANDS:
        return f"a command of {name}"
    if name in _ONLY_AFTER:
        is_let = any(
            words[place] in _ONLY_AFTER[name] for place in (range(at + 1, index) if name == "git" else [index - 1])
        )
        return None if is_let else f"an option or code of {name}"
    if name in _REMOTE_COPIES:
        # A name before a colon is a host, and one behind it is expanded there.
        return (
            None
            if word.startswith("{path}") or "/" in word.partition("{")[0].partition(":")[0]
            else f"a place on another host to {name}"
        )
    if name in _DATABASES:
        first = next((place for place in range(at + 1, len(words)) if not words[place].startswith("-")), None)
        return None if first == index and words[index - 1] not in ("-cmd", "-init") else f"SQL of {name}"
    return _judge_taker(name, _TAKERS[name], words, at, index)


def _judge_taker(name: str, taker: Taker, words: Sequence[str], at: int, index: int) -> str | None:
    if words[index].startswith(("-", "+")):
        return f"an option of {name}"
    if name in ("perl", "ruby") and any(re.fullmatch(r"-[a-zA-Z0]*[npi]\S*", word) for word in words[at + 1 : index]):
        return f"what {name} opens, and a name that ends or begins with | is a command to it"
    is_given = is_awaited = False
    place = at + 1
    while place <= index:
        word = words[place]
        if _is_option(word, taker.code):
            # A shell looks for its text behind further options.
            is_given = is_awaited = True
        elif _is_option(word, taker.files):
            is_given, place = True, place + 1
        elif word in taker.values:
            place += 1
        elif word.startswith("--arg") and taker.first:
            # jq: a name and a value.
            place += 2
        elif word == "-" or not word.startswith("-"):
            if is_awaited or (taker.first and not is_given):
                if place == index:
                    return f"code of {name}"
                is_given, is_awaited = True, False
        place += 1
    return None


def _is_option(word: str, options: frozenset[str]) -> bool:
    """`-c`, or several short options of which the last is it: `-ec`."""
    if word in options:
        return True
    return bool(re.fullmatch(r"-[a-zA-Z]+", word)) and f"-{word[-1]}" in options
