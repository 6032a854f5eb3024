"""Each mutant's text must occur in its source file.

Otherwise a rule would not be broken any more, which only the long run would show.
"""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from mutants import MUTANTS, Mutant

PACKAGE = Path(__file__).parent.parent.parent / "daemon" / "wakeful"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_text_of_each_mutant_stands_in_its_file_once(mutant: Mutant) -> None:
    """If the text does not occur once, write the mutant again for the present source."""
    assert (PACKAGE / mutant.file).read_text().count(mutant.old) == 1
