"""`wakeful secret` without a daemon: secrets are set, listed, completed and removed. Their values are never shown."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

WAKEFUL = str(Path(sys.executable).parent / "wakeful")
VALUE = "a value of some length"


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "WAKEFUL_SOCKET": str(tmp_path / "none.sock")}


def run(home: dict[str, str], *words: str, value: str = "", **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [WAKEFUL, "secret", *words], input=value, capture_output=True, text=True, env=home | more, timeout=60
    )


def test_a_secret_is_set_listed_and_removed_without_a_daemon(home: dict[str, str]) -> None:
    assert run(home, "list").stdout == "no secrets; set one with: wakeful secret set NAME\n"
    assert run(home, "set", "gh-token", value=f"{VALUE}\n").stdout == "gh-token set\n"
    path = Path(home["HOME"], ".config/wakeful/secrets/gh-token")
    assert path.read_text() == VALUE
    assert json.loads(run(home, "list", "--json").stdout) == [
        {"name": "gh-token", "source": "file", "problem": None, "sessions": []}
    ]
    path.chmod(0o644)
    assert "chmod 600" in run(home, "list").stdout
    assert run(home, "remove", "gh-token").stdout == "gh-token removed\n" and not path.exists()


@pytest.mark.parametrize(
    ("words", "value", "said"),
    [
        (("set",), VALUE, "say which: wakeful secret set NAME"),
        (("list", "x"), "", "list takes no name"),
        (("set", "../x"), VALUE, "cannot be a secret's name"),
        (("set", "x"), "", "has 0 bytes"),
        (("set", "x"), "seven b\n", "at least 8"),
        (("set", "x", "seven b in an argument"), "", "a value is never an argument"),
        (("remove", "x"), "", "there is no secret x"),
        (("show", "x"), "", "is not one of"),
    ],
)
def test_a_mistake_is_refused_with_words_and_without_the_value(
    home: dict[str, str], words: tuple[str, ...], value: str, said: str
) -> None:
    done = run(home, *words, value=value)
    assert done.returncode != 0 and said in done.stderr
    assert "seven b" not in done.stderr + done.stdout and not Path(home["HOME"], ".config/wakeful/secrets/x").exists()


def test_names_are_completed(home: dict[str, str]) -> None:
    run(home, "set", "gh-token", value=VALUE)
    asked = {"_WAKEFUL_COMPLETE": "zsh_complete", "COMP_WORDS": "wakeful secret remove g", "COMP_CWORD": "3"}
    done = subprocess.run([WAKEFUL], capture_output=True, text=True, env=home | asked, timeout=60)
    assert "gh-token" in done.stdout, done
