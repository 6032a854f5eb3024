"""Relations of paths: a folder contains itself and everything below it, but no path that only begins with its name."""

import pytest

from wakeful.core.looking.patterns import contains


@pytest.mark.parametrize(
    ("folder", "path", "is_inside"),
    [
        ("/a/b", "/a/b", True),
        ("/a/b", "/a/b/c/d", True),
        ("/a/b", "/a/bc", False),
        ("/a/b", "/a", False),
        ("/", "/", True),
        ("/", "/a", True),
        ("a", "a/b", True),
        ("a", "ab", False),
    ],
)
def test_a_folder_contains_itself_and_what_is_below_it(folder: str, path: str, is_inside: bool) -> None:
    assert contains(folder, path) is is_inside
