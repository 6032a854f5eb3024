"""The files at two positions: diffs of texts within bounds, and a note for every file without a diff."""

import os
import time

import pytest

from wakeful.run_files import files_at_positions as positions
from wakeful.run_files.file_record import Entry
from wakeful.run_files.files_at_positions import Files, Held, compare_positions
from wakeful.system.blobs import Blobs


@pytest.fixture
def blobs(tmp_path: os.PathLike[str]) -> Blobs:
    return Blobs(f"{tmp_path}/blobs")


def hold(blobs: Blobs, kind: str = "f", **contents: bytes) -> Files:
    """Store files. An underscore in a name stands for its dot."""
    found = {}
    for name, content in contents.items():
        digest = blobs.add(content).removeprefix("blake2b-")
        path = name.replace("_", ".")
        found[path] = Held("out", Entry(path=path, kind=kind, digest=digest, size=len(content)))
    return found


def test_texts_are_compared_line_by_line(blobs: Blobs) -> None:
    """Files are changed, added, removed and unchanged. A missing newline at the end is shown."""
    a = hold(blobs, changed_txt=b"one\ntwo\nthree\n", gone_txt=b"x\n", same_txt=b"s")
    b = hold(blobs, changed_txt=b"one\n2\nthree", new_txt=b"y\n", same_txt=b"s")
    found = {file["path"]: file for file in compare_positions(blobs, a, b)["files"]}
    assert {path: file["change"] for path, file in found.items()} == {
        "changed.txt": "changed",
        "gone.txt": "removed",
        "new.txt": "added",
    }
    assert (
        "-two\n" in found["changed.txt"]["diff"]
        and "+three\n\\ no newline at the end\n" in found["changed.txt"]["diff"]
    )
    assert found["new.txt"]["diff"].endswith("+y\n") and found["gone.txt"]["diff"].endswith("-x\n")
    assert all(file["note"] is None for file in found.values())


def test_what_has_no_diff_says_why(blobs: Blobs) -> None:
    """The reasons are: binary, too large, too many lines, not kept, gone, a link, only a changed mode."""
    a = hold(
        blobs,
        image_bin=b"\0a",
        latin_txt=b"\xe4",
        large_txt=b"a",
        long_txt=b"a",
        kept_txt=b"a",
        lost_txt=b"a",
        tool_sh=b"a",
        link_txt=b"a",
    )
    b = hold(blobs, image_bin=b"\0b", latin_txt=b"\xf6", large_txt=b"b" * 300_000, long_txt=b"b\n" * 5_000)
    b |= hold(blobs, "x", tool_sh=b"a")
    b["kept.txt"] = Held("out", Entry(path="kept.txt", kind="f", digest="ab" * 16, size=9, not_kept="too large"))
    b["lost.txt"] = Held("out", Entry(path="lost.txt", kind="f", digest="cd" * 16, size=9))
    b["link.txt"] = Held("out", Entry(path="link.txt", kind="l", link="elsewhere"))
    notes = {file["path"]: (file["diff"], file["note"]) for file in compare_positions(blobs, a, b)["files"]}
    assert notes == {
        "image.bin": (None, "binary"), "latin.txt": (None, "binary"), "large.txt": (None, "larger than 256 KiB"),
        "long.txt": (None, "more than 3,000 lines"), "kept.txt": (None, "not kept: too large"), "link.txt": (None, "a link to elsewhere"),
        "lost.txt": (None, "not kept: it changed before it was read, or was removed since"), "tool.sh": (None, "is executable now"),
    }  # fmt: skip


def test_an_answer_is_bounded_and_says_what_was_cut(blobs: Blobs) -> None:
    """The bounds are on the lines of one diff, the lines of all diffs, and the number of paths."""
    long = b"".join(b"line %d\n" % number for number in range(2_500))
    names = {f"n{number:03}_txt": long + b"%d" % number for number in range(8)}
    found = compare_positions(blobs, {}, hold(blobs, **names))["files"]
    assert sum(file["diff"].count("\n") for file in found if file["diff"]) <= positions.MOST_LINES + len(found)
    assert all(file["note"].endswith("more lines of the diff") for file in found) and found[-1]["diff"] is None
    many = {f"n{number:03}_txt": b"%d" % number for number in range(250)}
    bounded = compare_positions(blobs, {}, hold(blobs, **many))
    assert (len(bounded["files"]), bounded["left_out"]) == (200, 50)


def test_texts_that_repeat_their_lines_are_compared_in_time(blobs: Blobs) -> None:
    """The input is the worst case within the bounds."""
    lines = positions.MOST_COMPARED_LINES - 1
    a = hold(blobs, t_txt="".join(f"{number % 110}\n" for number in range(lines)).encode())
    b = hold(blobs, t_txt="".join(f"{number * 7 % 110}\n" for number in range(lines)).encode())
    began = time.process_time()
    assert compare_positions(blobs, a, b)["files"][0]["diff"]
    assert time.process_time() - began < 5
