"""The API documentation example renders real code, also code that cannot be imported."""

from pathlib import Path

from examples.example_folder import Tree

PROGRAM = "examples/docs/render_api.py"
PAGE = "examples/docs/out/api.md"
SOURCE = '''"""What it owns.

More that is left out.
"""
import a_library_that_is_not_there

class Point(Base, frozen=True):
    """A place."""
    x: int = 0
    _hidden: int = 1

    @property
    def length(self) -> float:
        """How far it is."""

    async def move(self, by: int, *, fast: bool = False) -> "Point": ...

    def _private(self): ...

def measure(points: list[Point], /, *rest: int, **more: str) -> float:
    """Measure them
    all."""

def _private(): ...
'''
RENDERED = """\
# wakeful.core

Made from the code; edits to this page are lost.

- [`wakeful.core.places`](#wakefulcoreplaces)

## wakeful.core.places

What it owns.

### class `Point(Base)`

A place.

- `x: int = 0`
- `length -> float`: How far it is.
- `async move(self, by: int, *, fast: bool=False) -> 'Point'`

### `measure(points: list[Point], /, *rest: int, **more: str) -> float`

Measure them all.
"""


def test_the_core_of_wakeful_is_documented(tree: Tree) -> None:
    """Run by hand in a checkout, the program documents the working tree. A second run has nothing to write."""
    assert "wrote" in tree.succeed(PROGRAM)
    assert "## wakeful.core.spec.session" in tree.read(PAGE)
    assert "### class `FileBinding(Binding)`" in tree.read(PAGE)
    assert "nothing new" in tree.succeed(PROGRAM)


def test_signatures_and_first_paragraphs_are_rendered(tree: Tree, tmp_path: Path) -> None:
    """In a run, the source is the committed tree, which wakeful puts at the binding's path."""
    exported = tmp_path / "exported"
    exported.mkdir()
    (exported / "places.py").write_text(SOURCE)
    tree.succeed(PROGRAM, WAKEFUL_BINDING_CODE=str(exported))
    assert tree.read(PAGE) == RENDERED


def test_code_that_cannot_be_parsed_leaves_the_page_alone(tree: Tree, tmp_path: Path) -> None:
    """The error names the file and its line, and the last good page stays."""
    tree.write(PAGE, "the last good page\n")
    exported = tmp_path / "exported"
    exported.mkdir()
    for text in (b"def broken(:\n", b"x = 1\0\n", b'x = "\xff"\n'):
        (exported / "broken.py").write_bytes(text)
        ended = tree.run(PROGRAM, WAKEFUL_BINDING_CODE=str(exported))
        assert ended.code == 1
        assert "broken.py:" in ended.stderr
        assert "Traceback" not in ended.stderr
    assert tree.read(PAGE) == "the last good page\n"


def test_a_folder_without_code_is_told(tree: Tree, tmp_path: Path) -> None:
    """The program reports an error and writes no page, because an empty page would be wrong."""
    empty = tmp_path / "empty"
    empty.mkdir()
    ended = tree.run(PROGRAM, WAKEFUL_BINDING_CODE=str(empty))
    assert (ended.code, "no Python files" in ended.stderr) == (1, True)
    assert not (tree.root / PAGE).exists()
