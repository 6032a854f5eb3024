"""What whoever forks runs has done for them: the rest of a run's first turn is its own."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
from wakeful.agents.warm import read_libraries
read_libraries(["anthropic"])
from wakeful.agents.models.exchange import find_trust
print("httpx2" in sys.modules, find_trust.cache_info().currsize)
"""


def test_what_a_library_leaves_to_its_first_use_is_made_before_the_fork() -> None:
    """Left to each run, the certificates that are trusted are 0.05 s of its first turn."""
    asked = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert asked.stdout == "True 1\n"
