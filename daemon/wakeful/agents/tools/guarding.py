"""Becomes another program, inside of a domain of its own: `python -m wakeful.agents.tools.guarding NARROWING PROGRAM …`.

For servers that a library starts for us, and that can be handed no descriptor: they are kept from the run's token, its keys and the control
socket as a shell is. NARROWING is JSON, and holds places, never a key. Where nothing can be confined, nothing is started.
"""

from __future__ import annotations

import os
import sys

import msgspec

from wakeful.agents.tools.keeper import NOT_CONFINED, NOT_FOUND, confine
from wakeful.agents.tools.narrowing import Narrowing, make_domain
from wakeful.errors import OperatorError


def main(words: list[str]) -> int:
    text, *argv = words
    try:
        with make_domain(msgspec.json.decode(text, type=Narrowing)) as domain:
            confine(domain.ruleset_fd, domain.filter)
    except (OperatorError, OSError) as error:
        sys.stderr.write(f"{argv[0]} was not started, since it cannot be confined: {error}\n")
        return NOT_CONFINED
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        sys.stderr.write(f"{argv[0]}: {error.strerror}\n")
        return NOT_FOUND


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
