"""The recipe of docs/agents.md for Claude Code, taken verbatim from the page and run by an ordinary user.

The program is declared first, installed later, and rebuilt. The next start finds it each time. The address of the model
differs from the page, because no real provider is asked, and so does the port in `network`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agents.provider import Asked, Fail, Provider, Say, Turn
from external.agent_programs import CLAUDE
from ordinary_user import OrdinaryBox
from ordinary_user import ordinary_box as ordinary_box
from ordinary_user import ordinary_user as ordinary_user

pytestmark = pytest.mark.acp

PAGE = Path(__file__).parents[2] / "docs" / "agents.md"
KEY = "sk-scripted-1234567890"
SECONDS = 180.0
PROVIDER = 'network: ["api.anthropic.com:443"]'


def read_recipe(name: str, words: str) -> str:
    """Return the YAML block of the page that begins with this file name and contains these words."""
    [found] = (
        text
        for text in re.findall(rf"```yaml\n# {re.escape(name)}\n(.*?)```", PAGE.read_text(), re.DOTALL)
        if words in text
    )
    return found


class Recipe:
    """A repository with the sessions of the page. The npm package is not installed yet."""

    def __init__(self, box: OrdinaryBox, provider: Provider) -> None:
        self.box = box
        self.provider = provider
        self.runs = 0
        self.write("def pay(): ...\n", "first")
        agent = read_recipe("sessions.d/agents/claude.yaml", "claude-agent-acp")
        # By default it tries ten times, which takes minutes, before it reports the refusal.
        agent = agent.replace(
            "env: {", f"env: {{ANTHROPIC_BASE_URL: {provider.base_url('anthropic')}, CLAUDE_CODE_MAX_RETRIES: '1', "
        )
        session = read_recipe("sessions.d/api-page.yaml", PROVIDER)
        (box.specs / "agents").mkdir()
        (box.specs / "agents" / "claude.yaml").write_text(agent)
        box.spec("api-page", session.replace(PROVIDER, f'network: ["127.0.0.1:{provider.url.rpartition(":")[2]}"]'))

    def write(self, code: str, subject: str) -> None:
        """Write the code and commit it, as the user."""
        folder = self.box.folder
        (folder / "src").mkdir(exist_ok=True)
        (folder / "src/pay.py").write_text(code)
        self.box.user.give(folder)
        who = "git -c user.name=A -c user.email=a@example.com"
        script = f"[ -d .git ] || git init -q -b main; git add src && {who} commit -qm '{subject}'"
        subprocess.run([*self.box.user.wrap, "sh", "-euc", script], cwd=folder, env=self.box.environment(), check=True)

    def set_key(self) -> None:
        command = [*self.box.user.wrap, "wakeful", "secret", "set", "ANTHROPIC_API_KEY"]
        subprocess.run(
            command,
            input=KEY,
            text=True,
            cwd=self.box.folder,
            env=self.box.environment(),
            check=True,
            capture_output=True,
        )

    def install(self, folder: str = ".agents") -> None:
        """Create the folder that `npm install --prefix FOLDER` creates."""
        place = self.box.folder / folder
        place.mkdir()
        subprocess.run(["cp", "-a", str(CLAUDE.place.parent), str(place)], check=True)
        if self.box.user.is_made:
            subprocess.run(["chown", "-hR", f"{self.box.user.uid}:{self.box.user.uid}", str(place)], check=True)

    def remove(self) -> None:
        shutil.rmtree(self.box.folder / ".agents")

    def work(self) -> dict[str, Any]:
        """Wait for one more run, and return the payload of its record."""
        self.runs += 1
        self.box.wait_at_rest("api-page", runs=self.runs, seconds=SECONDS)
        return [record["payload"] for record in self.box.log("api-page") if record["kind"] == "run_finished"][-1]

    def play(self, text: str) -> None:
        path = str(self.box.folder / "docs/api.md")

        def answer(asked: Asked) -> Turn:
            if not asked.tools:
                return Say("A page")
            return Say("The page is true.") if text in asked.text else CLAUDE.write(path, text)

        self.provider.play(answer)

    def read_page(self) -> str:
        return self.box.read("docs/api.md")


@pytest.fixture
def recipe(ordinary_box: OrdinaryBox, provider: Provider) -> Iterator[Recipe]:
    if not CLAUDE.place.is_dir():
        pytest.skip("claude is not installed: `make test-acp` does that")
    yield Recipe(ordinary_box, provider)


def test_the_recipe_works_when_the_program_comes_later_and_when_it_is_rebuilt(recipe: Recipe) -> None:
    """Without the key the session sleeps. Without the program the run fails and says so.

    It works after the installation, after a replacement by a link, and after another installation. The same daemon runs
    all the time.
    """
    box = recipe.box
    recipe.play("page 1")
    box.start()
    row = box.wait_for("api-page", state="sleeping")
    assert "needs a key: ANTHROPIC_API_KEY (wakeful secret set ANTHROPIC_API_KEY)" in row["reason"]
    recipe.set_key()
    finished = recipe.work()
    assert finished["outcome"] == "failed" and "claude-agent-acp" in box.words("why", "api-page"), box.words(
        "why", "api-page"
    )

    recipe.install()
    recipe.runs = box.row("api-page")["runs"]
    box.ask("activate", "api-page")
    finished = recipe.work()
    assert finished["outcome"] == "succeeded", box.ask("output", "api-page")
    assert recipe.read_page() == "page 1"
    assert finished["isolation"]["level"] == "standard" and ".agents/node_modules" in finished["isolation"]["derived"]
    assert recipe.provider.requests and all(asked.key == KEY for asked in recipe.provider.requests)

    # A version manager rebuilds it like this: in another folder, with a link at the first place.
    recipe.remove()
    recipe.install(".agents-2")
    os.symlink(".agents-2", box.folder / ".agents")
    recipe.play("page 2")
    recipe.write("def pay_more(): ...\n", "second")
    finished = recipe.work()
    assert (finished["outcome"], recipe.read_page()) == ("succeeded", "page 2"), box.ask("output", "api-page")


def test_a_key_that_the_provider_refuses_is_told(recipe: Recipe) -> None:
    """The program starts confined and asks the provider, which refuses. The run fails with the provider's words."""
    box = recipe.box
    recipe.provider.play(lambda asked: Fail(401, message="invalid x-api-key", times=None))
    recipe.set_key()
    recipe.install()
    box.start()
    finished = recipe.work()
    assert finished["outcome"] == "failed", finished
    told = f"{box.words('why', 'api-page')} {box.ask('output', 'api-page')}"
    assert "401" in told or "authentication" in told.lower(), told
    assert KEY not in told
