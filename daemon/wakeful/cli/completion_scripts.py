"""`wakeful completion`, and the completion script of each shell. Zsh uses the script of click, bash and fish our own.

Bash splits words at `@`, `:` and `=`, and replaces only the text after the last of these characters. Click's script
ignores that, so names such as `ticket@7` could not be completed. Our script passes the line as it was typed. This
module is imported only for `wakeful completion` or if a shell asks for completions.
"""

from __future__ import annotations

import os

from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    add_completion_class,
    get_completion_class,
    split_arg_string,
)

from wakeful.cli.client import Options
from wakeful.cli.command import COMPLETE_VARIABLE, wakeful

_BASH = """\
%(complete_func)s() {
    local IFS=$'\\n' line type value
    COMPREPLY=()
    for line in $(COMP_WORDS="${COMP_LINE:0:COMP_POINT}" COMP_BREAKS="$COMP_WORDBREAKS" \\
%(complete_var)s=bash_complete "$1" 2>/dev/null); do
        type="${line%%%%,*}" value="${line#*,}"
        case "$type" in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain) COMPREPLY+=("$value") ;;
        esac
    done
}

complete -F %(complete_func)s %(prog_name)s
"""


class Bash(BashComplete):
    """Completes for bash.

    The script passes the whole line up to the cursor. A completion omits the part of the word that bash keeps.
    """

    source_template = _BASH

    def source(self) -> str:
        # BashComplete.source() would start bash to check its version, and fail if bash is not installed.
        return ShellComplete.source(self)

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ["COMP_WORDS"]
        words = split_arg_string(line)
        is_new = not words or line[-1:].isspace()
        return (words[1:], "") if is_new else (words[1:-1], words[-1])

    def format_completion(self, item: CompletionItem[str]) -> str:
        return f"{item.type},{item.value[self._kept() :]}" if item.type == "plain" else f"{item.type},"

    def _kept(self) -> int:
        """Count the characters of the current word that bash keeps: those before the last break character.

        Bash keeps `:` and `=` but replaces `@`.
        """
        breaks = [mark for mark in "@:=" if mark in os.environ.get("COMP_BREAKS", "")]
        word = self.get_completion_args()[1]
        return max((word.rfind(mark) + (mark != "@") for mark in breaks if mark in word), default=0)


class Fish(FishComplete):
    """Completes for fish. Click's script splits an answer at commas, so a comma would cut off the description."""

    def format_completion(self, item: CompletionItem[str]) -> str:
        return f"{item.type},{item.value}" + (f"\t{item.help.replace(',', ';')}" if item.help else "")


add_completion_class(Bash)
add_completion_class(Fish)


def completion_verb(options: Options, shell: str) -> None:
    print(make_script(shell))


def make_script(shell: str) -> str:
    made = get_completion_class(shell)
    assert made is not None, f"click knows no {shell}"
    return made(wakeful, {}, "wakeful", COMPLETE_VARIABLE).source()
