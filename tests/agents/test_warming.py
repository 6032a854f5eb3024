"""What whoever forks runs has done for them: the rest of a run's first turn is its own."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
from wakeful.agents.warm import read_libraries
read_libraries(["anthropic"])
from pydantic_ai.messages import ModelMessagesTypeAdapter
print(ModelMessagesTypeAdapter.pydantic_complete)
"""


def test_what_a_library_leaves_to_its_first_use_is_built_before_the_fork() -> None:
    """Left to each run, it is 0.1 s of its first turn."""
    asked = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert asked.stdout == "True\n"
