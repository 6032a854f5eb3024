"""A spec that is copied for another session: the same text, and no output with two writers."""

from __future__ import annotations

import pytest

from wakeful.core.spec.bindings import FileBinding
from wakeful.errors import CallerError, SpecError
from wakeful.specs.folder_reading import read_text
from wakeful.specs.new_spec import copy_spec
from wakeful.specs.spec_builder import Surroundings

PAYROLL = """\
# What payroll is about.
objective: Pay everybody.
bindings:
  # Read.
  rates: {file: rates.csv}
  # Written.
  result:
    file: out.csv
    access: write
  log: {file: log.txt, access: write}
  beat: {every: 1h}
run:
  script: |
    bindings: not a key here
    echo result
"""


def written(text: str) -> list[str]:
    spec, _ = read_text(text.encode(), "b", "b.yaml", Surroundings("/"))
    return [binding.name for binding in spec.bindings if isinstance(binding, FileBinding) and binding.access != "read"]


def test_a_copy_keeps_words_and_comments_and_writes_nothing() -> None:
    """The outputs are commented out line by line, and the rest is unchanged."""
    text = copy_spec(PAYROLL.encode(), "payroll", "b")
    assert written(text) == []
    assert text.split("\n")[2:] == [
        "# What payroll is about.",
        "objective: Pay everybody.",
        "bindings:",
        "  # Read.",
        "  rates: {file: rates.csv}",
        "  # Written.",
        "  # result:",
        "  #   file: out.csv",
        "  #   access: write",
        "  # log: {file: log.txt, access: write}",
        "  beat: {every: 1h}",
        "run:",
        "  script: |",
        "    bindings: not a key here",
        "    echo result",
        "",
    ]


SHAPES = [
    "objective: x\nbindings: {a: {file: a}, b: {file: b, access: write}}\nrun: {command: [cat, 'x y']}\n",
    "objective: x\nbindings:\n  b: {file: b, access: write}\nrun: {command: [echo]}\n",
    "objective: x\nbindings:\n  b:\n    file: b\n    access: write\n\n  # last\n",
    '{"objective": "x", "bindings": {"b": {"file": "b", "access": "write"}}}',
    "objective: x\nbindings:\n  b: {file: b,\n    access: write}\n  a: {file: a}\n",
    "objective: >\n  folded\n  text\nbindings:\n    b: {file: b, access: write} # here\n    a: {file: a}\n",
]


@pytest.mark.parametrize("text", SHAPES)
def test_every_shape_of_yaml_can_be_copied(text: str) -> None:
    """If lines cannot be commented out, the keys are written anew."""
    copy = copy_spec(text.encode(), "a", "b")
    before, _ = read_text(text.encode(), "b", "b.yaml", Surroundings("/"))
    after, _ = read_text(copy.encode(), "b", "b.yaml", Surroundings("/"))
    assert written(copy) == [] and after.objective == before.objective and after.run == before.run
    assert [b for b in before.bindings if b.name != "b"] == list(after.bindings)
    assert "access" in copy, "what was taken out can be read"


def test_without_outputs_the_copy_is_the_text_itself() -> None:
    """The heading does not mention outputs if there are none."""
    assert copy_spec(b"objective: x\n", "a", "b") == "# b: copied from a, with its facts and hand-off.\nobjective: x\n"


def test_what_cannot_be_read_cannot_be_copied() -> None:
    """The error names the first file."""
    with pytest.raises(SpecError, match="a.yaml:1:1"):
        copy_spec(b"", "a", "b")
    with pytest.raises(CallerError, match="is a template"):
        copy_spec(b"for_each: '*.md'\n", "a", "b")
