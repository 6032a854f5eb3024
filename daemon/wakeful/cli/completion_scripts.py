"""`wakeful completion`, and how each shell asks for completions: bash in a way of our own, zsh and fish nearly as
click does it.

Bash parts words at `@`, `:` and `=`, and replaces only what stands behind the last of them; click's script does not
know, and names such as `ticket@7` could not be completed. Ours hands the line over as it was typed. Imported when a
shell asks.
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
    """The line up to the cursor comes whole; what bash will keep of the word is left out of the answers."""

    source_template = _BASH

    def source(self) -> str:
        # Not that of click's bash: it would start one to ask for its version, and complain where there is none.
        return ShellComplete.source(self)

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ["COMP_WORDS"]
        words = split_arg_string(line)
        is_new = not words or line[-1:].isspace()
        return (words[1:], "") if is_new else (words[1:-1], words[-1])

    def format_completion(self, item: CompletionItem[str]) -> str:
        return f"{item.type},{item.value[self._kept() :]}" if item.type == "plain" else f"{item.type},"

    def _kept(self) -> int:
        """How many characters of the present word stand before its last break.

        Of these `@` alone belongs to what is replaced.
        """
        breaks = [mark for mark in "@:=" if mark in os.environ.get("COMP_BREAKS", "")]
        word = self.get_completion_args()[1]
        return max((word.rfind(mark) + (mark != "@") for mark in breaks if mark in word), default=0)


class Fish(FishComplete):
    """Click's script for fish parts an answer at its commas,
    and would lose what a description says behind its first one."""

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
