"""Shell syntax in a line that a person typed and in the words of a command.

It is not reported for a program that reads it itself.
"""

from pathlib import Path

import pytest

from wakeful.specs.command_words import find_signs, has_shell_sign


@pytest.mark.parametrize(
    "line",
    [
        "cat data/*.csv | wc -l > x",
        "make && make install",
        "cd src; make",
        "echo $HOME",
        'echo "in $HOME"',
        "echo `date`",
        "echo $(date)",
        "sort < in.txt",
        "make 2>&1",
        "ls data/?.csv",
        "ls data/[ab].csv",
        "sleep 5 &",
        "cat ~/notes.md",
        "LANG=C sort in.txt",
        "cd src",
        "(make)",
        "make\nmake install",
    ],
)
def test_a_line_for_a_shell_is_known(line: str) -> None:
    """Each kind of shell syntax is found by itself."""
    assert has_shell_sign(line)


@pytest.mark.parametrize(
    "line",
    [
        "wc -w notes/a.md",
        "python3 report.py --all 'two words'",
        "grep -E 'a|b' notes.md",
        "find . -name '*.py'",
        r"find . -name \*.py",
        "awk '{print $1}' in.txt",
        'echo "a; b > c"',
        "[ -f x ]",
        "git show HEAD~1",
        "",
    ],
)
def test_a_plain_line_stays_a_command(line: str) -> None:
    """Quoted text is plain text, and so is a special character in the middle of a word."""
    assert not has_shell_sign(line)


@pytest.mark.parametrize(
    ("words", "seen"),
    [
        (["cat", "a.csv", "|", "wc"], ["|"]),
        (["cat", "a.csv", ">", "x"], [">"]),
        (["make", "&&", "true"], []),
        (["cat", "a.csv", "&&", "true"], ["&&"]),
        (["cat", "a.csv", "2>&1"], ["2>&1"]),
        (["cat", "a.csv", ">out.txt"], [">out.txt"]),
        (["cat", "*.csv"], ["*.csv"]),
        (["cat", "later/*.csv"], ["later/*.csv"]),
        (["cat", "elsewhere/*.csv"], []),
        (["echo", "$HOME"], ["$HOME"]),
        (["echo", "${HOME}"], ["${HOME}"]),
        (["echo", "`date`"], ["`date`"]),
        (["cat", "~/x"], ["~/x"]),
        (["sh", "-c", "cat *.csv | wc -l > $OUT"], []),
        (["find", ".", "-name", "*.csv", "-exec", "wc", "{}", ";"], []),
        (["rg", "-g", "*.csv", "x"], []),
        (["tar", "cf", "x.tar", "--exclude", "*.csv", "."], []),
        (["awk", "$NF > 2", "a.csv"], []),
        (["awk", "$NF", "a.csv"], []),
        (["test", "a", ">", "b"], []),
        (["grep", "a*", "a.csv"], []),
        (["prog", "src/**/*.csv"], []),
    ],
)
def test_words_for_a_shell_are_found_in_a_command(words: list[str], seen: list[str], tmp_path: Path) -> None:
    """A glob counts if it matches files, or if a binding has the same pattern.

    Programs that read such characters themselves are left alone.
    """
    (tmp_path / "a.csv").write_text("x")
    found = [words[sign.place] for sign in find_signs(words, str(tmp_path), ("later/*.csv",))]
    assert found == seen
