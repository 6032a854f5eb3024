"""A session at rest has no process and no thread."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil

from agents.provider import Provider, Say
from e2e.box import Box
from sources.commit_follower import GitRepo
from wait_conditions import eventually
from wakeful.runners.isolation.bubblewrap import find_obstacle

RESTING_DAEMON = Path(__file__).with_name("daemon_short_thread_idle.py")
MOST_THREADS = 8
KEY = {"WAKEFUL_SECRET_ANTHROPIC_API_KEY": "sk-secret-canary-0001"}
COPYING = """
objective: Copy the order.
bindings:
  order: {{file: "{name}/*", settle: 0ms}}
  copy:  {{file: "{name}-out/copy.txt", access: write}}
run: {{script: "cat {name}/* > {name}-out/copy.txt"}}
isolation: {level}
"""


def test_six_sessions_at_rest_have_no_process_but_gits_reader_and_few_threads(box: Box) -> None:
    """The sessions watch files and commits. One has an agent, one is strictly isolated. Each has had two runs."""
    strict = "strict" if find_obstacle() is None else "standard"
    for name, level in (("one", "standard"), ("two", "standard"), ("three", "none"), ("four", strict)):
        box.write(f"{name}/order", "1")
        (box.folder / f"{name}-out").mkdir()
        box.spec(name, COPYING.format(name=name, level=level))
    repository = GitRepo(box.folder / "repo")
    repository.commit("src/a.py", "1")
    box.spec(
        "commits", "objective: Follow.\nroot: repo\nbindings: {code: {commits: src/}}\nrun: {command: [git, log, -1]}\n"
    )
    box.write("wakeful.yaml", "allow_unisolated: true\n")
    with Provider() as provider:
        provider.play([Say("True."), Say("Still true.")])
        (box.specs / "agents").mkdir()
        (box.specs / "agents" / "docs.yaml").write_text(
            f"prompt: You write.\nmodel: anthropic:claude-test\nbase_url: {provider.url}\ntools: {{}}\n"
        )
        box.write("code.py", "1")
        box.spec(
            "docs",
            "agent: docs\nobjective: Watch.\nbindings: {code: {file: code.py, settle: 0ms}}\nrun: {prompt: Look at it.}\n",
        )
        box.program = (sys.executable, str(RESTING_DAEMON))
        box.start(env=KEY)
        names = ("one", "two", "three", "four", "commits", "docs")
        for name in names:
            assert box.wait_at_rest(name, runs=1)["last_run"]["outcome"] == "succeeded", box.ask("output", name)
        for name in ("one", "two", "three", "four"):
            box.save(f"{name}/order", "2")
        box.save("code.py", "2")
        repository.commit("src/a.py", "2")
        for name in names:
            assert box.wait_at_rest(name, runs=2)["last_run"]["outcome"] == "succeeded", box.ask("output", name)
    assert box.daemon is not None
    daemon = psutil.Process(box.daemon.pid)
    eventually(lambda: list_processes(daemon) == [], what="no process but git's reader")
    eventually(lambda: daemon.num_threads() <= MOST_THREADS, what=f"at most {MOST_THREADS} threads")


def list_processes(daemon: psutil.Process) -> list[list[str]]:
    found = [child.cmdline() for child in daemon.children(recursive=True)]
    return [words for words in found if words[:1] != ["git"] or "cat-file" not in words]
