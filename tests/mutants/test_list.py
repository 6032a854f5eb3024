"""The list of mutants follows the source: a text that moved on would let a rule go unbroken, and unnoticed until the long run."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from mutants import MUTANTS, Mutant

PACKAGE = Path(__file__).parent.parent.parent / "daemon" / "wakeful"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_text_of_each_mutant_stands_in_its_file_once(mutant: Mutant) -> None:
    """Where it does not, the mutant is to be written anew for what stands there now."""
    assert (PACKAGE / mutant.file).read_text().count(mutant.old) == 1
