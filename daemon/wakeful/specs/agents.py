"""Turns an agent's valid keys into the core's AgentSpec, with every default resolved and the rules between keys
checked.

Called by `folder_reading` for each file of agents/. Returns findings instead of raising, as `spec_builder` does for
sessions. Reads only the files of the prompt and the skills, and only inside the project, so that another author's spec
cannot read a person's keys.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from ipaddress import ip_address
from urllib.parse import urlsplit

from wakeful.core.spec.agent import (
    DEFAULT_COMPRESS_SHARE,
    DEFAULT_CONTEXT_TOKENS,
    USUAL_KEYS,
    AgentLimits,
    AgentSpec,
    ExternalAgentSettings,
    McpServer,
    ModelSettings,
    ModelSpec,
    Skill,
    TokenWindow,
    find_most_output,
    split_model,
)
from wakeful.specs.model_errors import SERVER_NAME, Finding, find_nearest, find_server, find_tool_problem
from wakeful.specs.models import (
    AcpKeys,
    AgentKeys,
    AgentLimitKeys,
    McpKeys,
    ModelKeys,
    ModelSettingKeys,
    TokenWindowKeys,
)
from wakeful.specs.prompt_file import PromptFile, read_prompt
from wakeful.specs.skills import read_skills
from wakeful.specs.spec_builder import Surroundings, build_budget
from wakeful.specs.yaml_text import Path, shorten

# Keys that only an agent with `model` may have.
_MODEL_KEYS = ("key", "base_url", "fallback", "settings", "context", "skills")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# The beginnings of providers' keys. A key itself, instead of the name of a secret, would be in a file that others may
# read.
_KEY_ITSELF = re.compile(r"(sk-|AIza|xai-|gsk_|hf_)")


@dataclass(slots=True)
class BuiltAgent:
    """The result of building an agent. `spec` is set exactly if `findings` is empty.

    `prompt` is set if the prompt's text is in a file of its own. The files and folders of its skills are listed.
    """

    spec: AgentSpec | None = None
    prompt: PromptFile | None = None
    skill_files: tuple[PromptFile, ...] = ()
    skill_folders: tuple[PromptFile, ...] = ()
    findings: list[Finding] = field(default_factory=list)
    warnings: list[Finding] = field(default_factory=list)

    def refuse(self, path: Path, text: str, *, is_key: bool = False) -> None:
        self.findings.append((path, is_key, text))


def build_agent(name: str, keys: AgentKeys, around: Surroundings) -> BuiltAgent:
    built = BuiltAgent()
    prompt = _take_prompt(keys, around, built)
    _check_model_source(keys, built)
    models = _build_models(keys, built)
    window = _build_window(keys.context, models, built)
    servers = tuple(_build_server(server, found, built) for server, found in keys.mcp.items())
    outside = _build_outside(keys.acp, built)
    skills = _take_skills(keys, around, built)
    _check_tools(keys, built)
    if built.findings:
        return built
    built.spec = AgentSpec(
        name=name,
        prompt=prompt,
        models=models,
        settings=_build_settings(keys.settings, window),
        tools=dict(keys.tools),
        mcp=servers,
        budget=build_budget(keys.budget, around.local_zone or "UTC"),
        window=window,
        limits=_build_limits(keys.limits),
        acp=keys.acp.command if keys.acp is not None else (),
        outside=outside,
        skills=skills,
        ask_timeout_seconds=keys.ask_timeout,
        subagents=tuple(dict.fromkeys(keys.subagents)),
    )
    return built


# -- the prompt -----------------------------------------------------------------------------------


def _take_prompt(keys: AgentKeys, around: Surroundings, built: BuiltAgent) -> str:
    found = keys.prompt
    if found is None:
        return ""
    if (found.text is None) == (found.file is None):
        built.refuse(("prompt",), "a prompt is text or {file: PATH}; write one of the two")
        return ""
    if found.file is None:
        return found.text or ""
    built.prompt, text, problem = read_prompt(found.file, around)
    if problem is not None:
        built.refuse(("prompt", "file"), problem)
    return text


def _take_skills(keys: AgentKeys, around: Surroundings, built: BuiltAgent) -> tuple[Skill, ...]:
    if not keys.skills:
        return ()
    found = read_skills(keys.skills, around)
    built.skill_files, built.skill_folders = tuple(found.files), tuple(found.folders)
    for place, words in found.problems:
        built.refuse(("skills", place), words)
    built.warnings += [(("skills", place), False, words) for place, words in found.warnings]
    return tuple(found.skills)


# -- models ---------------------------------------------------------------------------------------


def _check_model_source(keys: AgentKeys, built: BuiltAgent) -> None:
    """Refuse `model` together with `acp`, which has a model of its own, and keys about a model without `model`."""
    if keys.model is not None and keys.acp is not None:
        built.refuse(("acp",), "acp brings a model of its own; keep either model or acp", is_key=True)
        return
    if keys.model is not None:
        return
    if keys.subagents and keys.acp is not None:
        built.refuse(
            ("subagents",),
            "an external agent gives no work to others here; remove it, or give the agent a model",
            is_key=True,
        )
    for name in _MODEL_KEYS:
        if getattr(keys, name) is not None:
            words = (
                "acp brings its own; remove it"
                if keys.acp is not None
                else "this agent has none; add model: PROVIDER:NAME"
            )
            built.refuse((name,), f"{name} is about a model, and {words}", is_key=True)


def _build_models(keys: AgentKeys, built: BuiltAgent) -> tuple[ModelSpec, ...]:
    """Build the agent's model, then its fallbacks."""
    if keys.model is None:
        return ()
    own = ModelKeys.model_construct(model=keys.model, key=keys.key, base_url=keys.base_url)
    first = _build_model(own, (), None, built)
    more = [
        _build_model(one, ("fallback", index) if len(keys.fallback or ()) > 1 else ("fallback",), first, built)
        for index, one in enumerate(keys.fallback or ())
    ]
    return (first, *dict.fromkeys(more))


def _build_model(keys: ModelKeys, path: Path, first: ModelSpec | None, built: BuiltAgent) -> ModelSpec:
    found = split_model(keys.model)
    assert found is not None, "the model's name was judged when it was read"
    provider, model = found
    # Another model of the same provider uses the address and key of the first, unless it names its own. A key is never
    # sent to an address for which it was not named.
    is_alike = first is not None and first.provider == provider and keys.base_url is None
    key, base_url = keys.key, keys.base_url
    if is_alike and first is not None:
        key, base_url = key or first.key, first.base_url
    elif key is None:
        key = USUAL_KEYS.get(provider)
    if provider == "openai-compatible" and base_url is None:
        built.refuse(
            (*path, "model"),
            f"{shorten(keys.model)} needs base_url, the address where it is served, such as http://localhost:11434/v1",
        )
    if keys.key is not None:
        _refuse_key_itself(keys.key, (*path, "key"), built)
    if key is not None and base_url is not None and _is_overheard(base_url):
        words = (
            f"{key} would be sent to {shorten(base_url, 80)} unencrypted; write https://, "
            "or leave the key out where none is asked for"
        )
        built.warnings.append(((*path, "base_url"), False, words))
    return ModelSpec(provider=provider, model=model, key=key, base_url=base_url)


def _refuse_key_itself(name: str, path: Path, built: BuiltAgent) -> None:
    if _KEY_ITSELF.match(name):
        built.refuse(
            path,
            "this looks like the key itself; keep it with `wakeful secret set NAME`, change it where it was made, "
            "and write NAME here",
        )


def _is_overheard(url: str) -> bool:
    """Can others on the network read what is sent to this address? False for this machine's own address."""
    parts = urlsplit(url)
    if parts.scheme != "http" or parts.hostname in (None, "localhost"):
        return False
    try:
        return not ip_address(parts.hostname).is_loopback
    except ValueError:
        return True


def _build_outside(keys: AcpKeys | None, built: BuiltAgent) -> ExternalAgentSettings:
    if keys is None:
        return ExternalAgentSettings()
    if keys.key is not None:
        _refuse_key_itself(keys.key, ("acp", "key"), built)
    return ExternalAgentSettings(
        env=dict(keys.env), key=keys.key, login=keys.login, mode=keys.mode, files=keys.files or "ours"
    )


def _build_settings(keys: ModelSettingKeys | None, window: TokenWindow) -> ModelSettings:
    keys = keys or ModelSettingKeys.model_construct()
    output = keys.max_output or find_most_output(window.tokens)
    return ModelSettings(temperature=keys.temperature, effort=keys.effort, images=keys.images, max_output_tokens=output)


def _build_window(keys: TokenWindowKeys | None, models: tuple[ModelSpec, ...], built: BuiltAgent) -> TokenWindow:
    keys = keys or TokenWindowKeys.model_construct()
    tokens = keys.tokens or DEFAULT_CONTEXT_TOKENS
    share = keys.compress_at if keys.compress_at is not None else DEFAULT_COMPRESS_SHARE
    compress_at = int(tokens * share) if isinstance(share, float) else share
    if not 0 < compress_at <= tokens:
        words = (
            f"compress_at is {compress_at:,} tokens, and the context has {tokens:,}; write a number between, "
            "or a part such as 80%"
        )
        built.refuse(("context", "compress_at"), words)
    by = (
        _build_model(keys.compress_by, ("context", "compress_by"), models[0] if models else None, built)
        if keys.compress_by is not None
        else None
    )
    if keys.tokens is not None or not models or models[0].provider != "openai-compatible":
        return TokenWindow(tokens=tokens, compress_at=compress_at, compress_by=by)
    return TokenWindow(
        tokens=tokens,
        compress_at=compress_at,
        compress_by=by,
        is_assumed=True,
        compress_share=share if isinstance(share, float) else None,
    )


def _build_limits(keys: AgentLimitKeys | None) -> AgentLimits:
    if keys is None:
        return AgentLimits()
    usual = AgentLimits()
    return AgentLimits(
        turns=usual.turns if keys.turns is None else keys.turns,
        repeats=usual.repeats if keys.repeats is None else keys.repeats,
        silence_seconds=usual.silence_seconds if keys.silence is None else keys.silence,
    )


# -- tools ----------------------------------------------------------------------------------------


def _build_server(name: str, keys: McpKeys, built: BuiltAgent) -> McpServer:
    path = ("mcp", name)
    if SERVER_NAME.fullmatch(name) is None:
        built.refuse(
            path, f"'{shorten(name)}' cannot name a server; use letters, digits, - and _, a letter first", is_key=True
        )
    if (keys.command is None) == (keys.url is None):
        built.refuse(
            path,
            f"server '{shorten(name)}' needs a command or a url, one of the two, such as [npx, some-server] or {{url: "
            f"https://…}}",
        )
    if keys.key is not None and keys.url is None:
        built.refuse(
            (*path, "key"), "a key is sent to an address, and this server is a program; remove it", is_key=True
        )
    if keys.key is not None and keys.url is not None and _is_overheard(keys.url):
        built.warnings.append(
            ((*path, "url"), False, f"{keys.key} would be sent to {shorten(keys.url, 80)} unencrypted; write https://")
        )
    if keys.url is not None:
        for key in ("env", "secrets"):
            if getattr(keys, key):
                built.refuse(
                    (*path, key),
                    f"{key} are for a program, and this server is an address; remove them, or name a secret under key",
                    is_key=True,
                )
    for place, secret in enumerate(keys.secrets):
        _refuse_key_itself(secret, (*path, "secrets", place), built)
        if _VARIABLE.fullmatch(secret) is None:
            built.refuse(
                (*path, "secrets", place),
                f"'{shorten(secret)}' becomes a variable of the program, and cannot be one; use letters, digits and _, "
                "no digit first",
            )
    _check_variables(keys, path, built)
    start = {} if keys.start_timeout is None else {"start_seconds": keys.start_timeout}
    return McpServer(
        name=name,
        argv=keys.command or (),
        url=keys.url,
        key=keys.key,
        env=dict(keys.env),
        secrets=keys.secrets,
        **start,
    )


def _check_variables(keys: McpKeys, path: Path, built: BuiltAgent) -> None:
    """Refuse variables that look like secrets, or are also in `secrets`. Many people can read a spec."""
    for variable, value in keys.env.items():
        if _KEY_ITSELF.match(value):
            words = (
                f"this looks like a secret itself; keep it with `wakeful secret set {variable}`, change it where "
                f"it was made, and write secrets: [{variable}]"
            )
            built.refuse((*path, "env", variable), words)
        if variable in keys.secrets:
            built.refuse(
                (*path, "env", variable),
                f"{variable} is a variable and a secret at once; keep one of the two",
                is_key=True,
            )


def _check_tools(keys: AgentKeys, built: BuiltAgent) -> None:
    for name in keys.tools:
        server = find_server(name)
        if problem := find_tool_problem(name):
            built.refuse(("tools", name), problem, is_key=True)
        elif server is not None and server not in keys.mcp:
            nearest = find_nearest(server, keys.mcp)
            advice = f"did you mean 'mcp:{nearest}'?" if nearest else f"declare it under mcp: {{{server}: […]}}"
            built.refuse(("tools", name), f"there is no server '{shorten(server)}'; {advice}", is_key=True)
