"""Parses the values of specs: durations, sizes, booleans, windows, patterns, names. Has the JSON Schema of each.

Each function takes the text of a scalar, and returns a typed value or raises ValueError with a message. pydantic passes
the message to `model_errors`. Only the models use this module, and it does not know the key of a value.
"""

from __future__ import annotations

import difflib
import os
import re
import shlex
from collections.abc import Mapping
from typing import Annotated, Any, get_args
from zoneinfo import ZoneInfo

from pydantic import BeforeValidator, WithJsonSchema

from wakeful.core.looking.patterns import Pattern, PatternError
from wakeful.core.spec.agent import PROVIDERS, split_model
from wakeful.core.spec.http_settings import parse_address
from wakeful.core.spec.session import SECRET_NAME, Role
from wakeful.specs.command_words import has_shell_sign
from wakeful.specs.yaml_text import shorten

_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SIZE = re.compile(r"(\d{1,12}(?:\.\d{1,6})?) ?(B|KB|MB|GB|TB|KiB|MiB|GiB|TiB)", re.IGNORECASE)
_BYTES = {
    "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_WINDOW = re.compile(r"(\d{1,2}):(\d{2})\s*-\s*(\d{1,2}):(\d{2})")
_SERVICE = re.compile(
    r"(tcp://(\[[0-9a-fA-F:.]+\]|[^/:\s]+):\d{1,5}/?|https?://[^/\s]+\S*|mcp:[A-Za-z][A-Za-z0-9_-]{0,63})"
)
_BASE_URL = re.compile(r"https?://([^/\s?#]+)(/[^\s?#]*)?")
_FETCH_HOST = re.compile(
    r"(\[[0-9a-fA-F:.]+\]|(?:\*\.)?[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?\.?)(?::(\d{1,5}))?"
)
# An address without a host is a port that runs may listen on.
_ADDRESS = re.compile(r"(?:\[[0-9a-fA-F:.]+\]|[^\s:/\[\]]+)?:(\d{1,5})")
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?)(?::\d{1,5})?", re.IGNORECASE)
_BINDING_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
# User names as useradd allows them, with the dots and signs of names in a central directory.
_PERSON = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,99}")
_ROLES = get_args(Role)
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORD = re.compile(r"[\w][\w.@:+/-]{0,99}")
_SECRET_NAME = re.compile(SECRET_NAME)
# A part of a session's name. Such a file name can be typed, shown and put in a URL.
_NAME_PART = re.compile(r"[\w@][\w.@-]*")
LONGEST_NAME = 200
_PLAIN_PATTERN = re.compile(r"[^\[\x00]+")


def parse_duration(value: Any) -> float:
    text = _text(value, "a duration such as 500ms, 30s, 5m, 2h or 7d")
    if text == "0":
        return 0.0
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(
            f"'{shorten(text)}' is not a duration; write one number and its unit, such as 500ms, 30s, 5m, 2h or 7d"
        )
    # Rounded, so that 500ms is exactly 0.5, without the error of binary fractions.
    return round(float(found[1]) * _SECONDS[found[2]], 6)


def parse_positive_duration(value: Any) -> float:
    seconds = parse_duration(value)
    if seconds <= 0:
        raise ValueError("0 is too short here; write a duration such as 30s or 5m")
    return seconds


def parse_period(value: Any) -> float:
    seconds = parse_duration(value)
    if seconds < 0.1:
        raise ValueError("a period shorter than 100ms is refused; write one such as 30s or 5m")
    return seconds


def parse_size(value: Any) -> int:
    text = _text(value, "a size such as 64KB or 10MB")
    if text == "0":
        # Zero needs no unit.
        return 0
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ValueError(f"'{shorten(text)}' is not a size; write one number and its unit, such as 64KB, 10MB or 1GB")
    return int(float(found[1]) * _BYTES[found[2].lower()])


def parse_money(value: Any) -> float:
    text = _text(value, "an amount such as 0.50")
    if not re.fullmatch(r"\d+(\.\d+)?", text) or float(text) == 0:
        raise ValueError(f"'{shorten(text)}' is not an amount of money; write a number above 0 such as 0.50")
    return float(text)


def parse_rate(value: Any) -> float:
    """Parse the price of a million tokens. Zero is allowed, for models on one's own machine."""
    text = _text(value, "an amount such as 0.50, or 0")
    if not re.fullmatch(r"\d{1,6}(\.\d{1,9})?", text):
        raise ValueError(
            f"'{shorten(text)}' is not an amount of money; write USD for a million tokens such as 0.50, or 0"
        )
    return float(text)


def parse_boolean(value: Any) -> bool:
    text = _text(value, "true or false")
    if text.lower() not in _BOOLEANS:
        raise ValueError(f"'{shorten(text)}' is neither true nor false")
    return _BOOLEANS[text.lower()]


def parse_whole_number(value: Any) -> int:
    text = _text(value, "a whole number")
    if re.fullmatch(r"-?[0-9]{1,9}", text) is None:
        raise ValueError(f"'{shorten(text)}' is not a whole number")
    return int(text)


def parse_count(value: Any) -> int:
    """Parse a whole number that may have separators between thousands: 1_000_000 or 1,000,000."""
    text = _text(value, "a whole number")
    return parse_whole_number(re.sub(r"(?<=\d)[_,](?=\d{3}(\D|$))", "", text))


def parse_text(value: Any) -> str:
    return _text(value, "text")


def parse_filled_text(value: Any) -> str:
    text = _text(value, "text")
    if not text.strip():
        raise ValueError("empty text; write something, or delete the line")
    return text


def parse_pattern(value: Any) -> str:
    """Parse a path pattern, and expand `~`. core/looking/patterns.py defines what it matches."""
    text = _text(value, "a path such as data/*.csv")
    if text == "~" or text.startswith("~/"):
        text = os.path.expanduser(text)
    # Only `..` and `[` can make a pattern impossible. Parsing every pattern took a tenth of the time of a spec.
    if _PLAIN_PATTERN.fullmatch(text) and ".." not in text:
        return text
    try:
        Pattern.parse(text)
    except PatternError as error:
        raise ValueError(str(error)) from None
    return text


def parse_folder(value: Any) -> str:
    """Parse the path of a folder. It is not a pattern: every character stands for itself."""
    text = _text(value, "a folder")
    if not text:
        raise ValueError("empty path; name a folder, or delete the line")
    return os.path.expanduser(text) if text == "~" or text.startswith("~/") else text


def parse_branch(value: Any) -> str:
    text = _text(value, "a branch such as main or origin/main")
    if text.startswith("-"):
        raise ValueError(
            f"branch '{shorten(text)}' begins with '-', which git takes for an option; name the branch itself"
        )
    if not text or re.search(r"[\s~^:?*\[\\\x00-\x1f\x7f]|\.\.|@\{|//|^/|/$|\.lock$|\.$", text):
        raise ValueError(f"'{shorten(text)}' cannot be a branch; write a name such as main or origin/main")
    return text


def parse_repository_path(value: Any) -> str:
    """Parse a path inside a repository, as git writes it. `.` is the whole tree."""
    text = _text(value, "a path inside the repository such as src/")
    parts = [part for part in text.split("/") if part not in ("", ".")]
    if not text or text.startswith(("/", "~")) or ".." in parts:
        raise ValueError(
            f"'{shorten(text)}' does not lie inside the repository; write a path such as src/, or . for all of it"
        )
    return "/".join(parts) or "."


def parse_argv(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        advice = f"[sh, -c, {_quote(value.strip())}]" if has_shell_sign(value) else _as_list(value)
        raise ValueError(f"a command is a list of words, never a shell string; write {advice}")
    if not isinstance(value, list) or not value:
        raise ValueError("expected a list of words such as [python3, report.py]")
    for word in value:
        if not isinstance(word, str):
            raise ValueError("every word of a command is text; put quotes around one that holds : or {")
    if not value[0].strip():
        raise ValueError("the first word of a command names the program; it is empty here")
    return tuple(value)


def parse_command(value: Any) -> tuple[str, ...]:
    """Parse the command of a run. Only a run also has `script`, which the message suggests."""
    if isinstance(value, str) and has_shell_sign(value):
        raise ValueError(
            f"a command is a list of words, and it needs a shell; write instead: script: {_quote(value.strip())}"
        )
    try:
        return parse_argv(value)
    except ValueError as error:
        raise ValueError(f"{error}, or use script") from None


def parse_words(value: Any) -> tuple[str, ...]:
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, list) or not all(isinstance(word, str) and _WORD.fullmatch(word) for word in words):
        raise ValueError("expected a list of words such as [hr, monthly]: letters, digits and . _ - / : + @")
    return tuple(dict.fromkeys(words))


def parse_secret_names(value: Any) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) and _SECRET_NAME.fullmatch(name) for name in names):
        raise ValueError(
            "expected a list of names such as [gh-token, DB_PASSWORD]: each begins with a letter and goes on with "
            "letters, digits and _ . -"
        )
    variables: dict[str, str] = {}
    for name in names:
        other = variables.setdefault(re.sub("[.-]", "_", name.upper()), name)
        if other != name:
            raise ValueError(f"'{other}' and '{name}' would be one variable; rename one of the two")
    return tuple(dict.fromkeys(names))


def parse_secret_name(value: Any) -> str:
    text = _text(value, "a secret's name")
    if _SECRET_NAME.fullmatch(text) is None:
        # The message does not repeat the text, which may be the secret itself.
        raise ValueError(
            "this is no secret's name: it begins with a letter and goes on with letters, digits and _ . -; set one "
            "with: wakeful secret set NAME"
        )
    return text


def parse_model_name(value: Any) -> str:
    text = _text(value, "a model such as anthropic:claude-sonnet-4-5")
    if split_model(text) is not None:
        return text
    word, colon, model = text.partition(":")
    near = difflib.get_close_matches(word, PROVIDERS, 1) if colon and word not in PROVIDERS else []
    if near:
        raise ValueError(f"there is no provider '{shorten(word)}'; did you mean '{near[0]}:{shorten(model)}'?")
    raise ValueError(
        f"'{shorten(text)}' is no model; write PROVIDER:NAME, such as anthropic:claude-sonnet-4-5; "
        f"providers are {', '.join(PROVIDERS)}"
    )


def parse_base_url(value: Any) -> str:
    text = _text(value, "an address such as http://localhost:11434/v1")
    found = _BASE_URL.fullmatch(text)
    if found is None:
        raise ValueError(
            f"'{shorten(text)}' is not an address; write http://HOST:PORT/PATH or https://…, with nothing behind ? or #"
        )
    if "@" in found[1]:
        raise ValueError("an address holds no password; name the secret under key")
    return text


def parse_server(value: Any) -> Any:
    """Expand the short forms of an MCP server: a list is a command, a text is an address."""
    if isinstance(value, list):
        return {"command": value}
    if not isinstance(value, str):
        return value
    if not value.startswith(("http://", "https://")):
        raise ValueError(
            f"'{shorten(value)}' is no address; write https://…, or the program as a list of words: {_as_list(value)}"
        )
    return {"url": value}


def parse_temperature(value: Any) -> float:
    text = _text(value, "a number such as 0.2")
    if not re.fullmatch(r"\d(\.\d{1,6})?", text) or float(text) > 2:
        raise ValueError(f"'{shorten(text)}' is no temperature; write a number from 0 to 2")
    return float(text)


def parse_share(value: Any) -> float | int:
    """Parse a number of tokens, or a share of the whole such as 80%."""
    text = _text(value, "a number of tokens, or a part such as 80%")
    if found := re.fullmatch(r"(\d{1,2})%", text):
        return int(found[1]) / 100
    return parse_count(value)


def parse_patterns(value: Any) -> tuple[str, ...]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list):
        raise ValueError('expected a list of patterns such as ["*.bak", build/]')
    return tuple(parse_pattern(text) for text in texts)


def parse_environment(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ValueError("expected names and values such as {LANG: C.UTF-8}")
    for name, text in value.items():
        if _ENV_NAME.fullmatch(name) is None:
            raise ValueError(f"'{shorten(name)}' cannot be a variable; use letters, digits and _, no digit first")
        if name.startswith("WAKEFUL_"):
            raise ValueError(f"'{shorten(name)}' belongs to wakeful; choose another name")
        if not isinstance(text, str):
            raise ValueError(f"variable '{shorten(name)}' is text; put quotes around a value that holds : or {{")
    return value


def parse_payload_filter(value: Any) -> dict[str, tuple[str, ...]]:
    """Parse paths in a payload, each with the values that count."""
    if not isinstance(value, dict) or not value:
        raise ValueError("expected paths and values such as {action: opened, repository.full_name: org/repo}")
    found = {}
    for path, values in value.items():
        if not all(path.split(".")):
            raise ValueError(f"'{shorten(path)}' is no path in a payload; write the keys with a dot between them")
        texts = [values] if isinstance(values, str) else values
        if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
            raise ValueError(f"'{shorten(path)}' needs a value, or a list of values such as [opened, reopened]")
        found[path] = tuple(texts)
    return found


def parse_people(value: Any) -> dict[str, str]:
    """Parse the role of each person. A key is a uid or a user name of the system; this check does not look it up."""
    if not isinstance(value, dict):
        raise ValueError("expected names or uids and their roles such as {ann: maintainer, 1001: observer}")
    for name, role in value.items():
        if _PERSON.fullmatch(name) is None:
            raise ValueError(f"'{shorten(name)}' is neither a user's name nor a uid")
        if role not in _ROLES:
            found = f"'{shorten(role)}'" if isinstance(role, str) else "something else"
            raise ValueError(f"'{shorten(name)}' is {found}; expected one of {', '.join(_ROLES)}")
    return value


def parse_window(value: Any) -> tuple[int, int]:
    """Parse a window of the day into its first and last minute. It may end at 24:00."""
    text = _text(value, 'hours such as "08:00-20:00"')
    found = _WINDOW.fullmatch(text)
    if found is None:
        raise ValueError(f"'{shorten(text)}' is not a window; write hours such as \"08:00-20:00\"")
    start, end = int(found[1]) * 60 + int(found[2]), int(found[3]) * 60 + int(found[4])
    if start >= 1440 or end > 1440 or int(found[2]) > 59 or int(found[4]) > 59:
        raise ValueError(f"'{shorten(text)}' has a time that does not exist; write hours such as \"08:00-20:00\"")
    if start == end:
        raise ValueError(f"'{shorten(text)}' is empty; delete it if the session may always run")
    return start, end


def parse_service(value: Any) -> str:
    text = _text(value, "an address such as tcp://localhost:5432")
    if _SERVICE.fullmatch(text) is None:
        raise ValueError(
            f"'{shorten(text)}' is not a service; write tcp://HOST:PORT, http://…, "
            "or mcp:NAME for a server of its agent"
        )
    return text


def parse_network(value: Any) -> bool | tuple[str, ...]:
    """Parse true, false, or addresses. A single address needs no list."""
    if isinstance(value, str) and value.lower() in _BOOLEANS:
        return _BOOLEANS[value.lower()]
    addresses = [value] if isinstance(value, str) else value
    if not isinstance(addresses, list) or not addresses:
        raise ValueError("expected true, false, or a list of addresses such as [api.example.com:443]")
    for address in addresses:
        found = _ADDRESS.fullmatch(address) if isinstance(address, str) else None
        if found is None or not 0 < int(found[1]) < 65536:
            shown = f"'{shorten(address)}'" if isinstance(address, str) else "something that is not text"
            raise ValueError(f"{shown} is not an address; write HOST:PORT such as api.example.com:443, or true for any")
    return tuple(dict.fromkeys(addresses))


def parse_fetch(value: Any) -> tuple[str, ...]:
    """Parse hosts with their ports; the default is 443. `true` means all public hosts, on the usual ports."""
    if isinstance(value, str) and value.lower() in _BOOLEANS:
        return ("*:443", "*:80") if _BOOLEANS[value.lower()] else ()
    hosts = [value] if isinstance(value, str) else value
    if not isinstance(hosts, list) or not hosts:
        raise ValueError(
            "expected true, false, or a list of hosts such as [docs.example.org, '*.example.org', 10.0.0.5:8080]"
        )
    return tuple(dict.fromkeys(map(_parse_fetch_host, hosts)))


def _parse_fetch_host(value: Any) -> str:
    found = _FETCH_HOST.fullmatch(value) if isinstance(value, str) else None
    if found is None or not 0 < int(found[2] or 443) < 65536:
        shown = f"'{shorten(value)}'" if isinstance(value, str) else "something that is not text"
        raise ValueError(
            f"{shown} is not a host; write HOST or HOST:PORT such as docs.example.org, "
            "without https:// and without a path"
        )
    return f"{found[1].lower().rstrip('.')}:{int(found[2] or 443)}"


def parse_places(value: Any) -> tuple[str, ...]:
    """Parse files and folders, and expand `~`. They are not patterns: a folder means everything below it."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list):
        raise ValueError("expected a list of files and folders such as [~/.cache/tool, /opt/data]")
    places = tuple(parse_folder(text) for text in texts)
    if starred := next((place for place in places if "*" in place or "?" in place), None):
        raise ValueError(f"'{shorten(starred)}' is a pattern; name the folder, which means everything below it")
    return places


def find_name_problem(name: str) -> str | None:
    """Explain why a session cannot have this name. None if it can."""
    if not name or len(name) > LONGEST_NAME:
        return f"a name has 1 to {LONGEST_NAME} characters"
    for part in name.split("/"):
        if _NAME_PART.fullmatch(part) is None:
            return (
                f"'{shorten(name)}' cannot be a name; use letters, digits and - _ . @, with / between folders, "
                "no - or . first"
            )
    if name.split("/")[0] == "agents":
        return "'agents/' holds agents; put the session elsewhere"
    return None


def find_binding_name_problem(name: str) -> str | None:
    if _BINDING_NAME.fullmatch(name):
        return None
    return (
        f"'{shorten(name)}' cannot name a binding, because a run finds it as $WAKEFUL_BINDING_<NAME>;"
        " use letters, digits, - and _, a letter first"
    )


def parse_listen(value: Any) -> str:
    text = _text(value, "HOST:PORT")
    if text != "off":
        parse_address(text)
    return text


def parse_hosts(value: Any) -> tuple[str, ...]:
    """Parse host names as a browser sends them in `Host`."""
    names = [value] if isinstance(value, str) else value
    wrong = next((one for one in names if not isinstance(one, str) or _HOST.fullmatch(one) is None), None)
    if not isinstance(names, list) or wrong is not None:
        raise ValueError(
            "expected hosts as a browser sends them, such as [wakeful.example.org], each with its port unless that is "
            "80 or 443"
        )
    return tuple(dict.fromkeys(one.lower() for one in names))


def parse_session_name(value: Any) -> str:
    text = _text(value, "a session's name")
    if problem := find_name_problem(text):
        raise ValueError(problem)
    return text


def _text(value: Any, expected: str) -> str:
    if isinstance(value, str):
        return value
    found = "a list" if isinstance(value, list | tuple) else "keys and values"
    raise ValueError(f"expected {expected}, found {found}")


def _as_list(text: str) -> str:
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    plain = re.compile(r"[\w./@=+-][\w./@=+:-]*")
    return "[" + ", ".join(word if plain.fullmatch(word) else _quote(word) for word in words[:12]) + "]"


def _quote(text: str) -> str:
    """Quote text for one line of YAML."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _typed(parse: Any, schema: dict[str, Any]) -> Any:
    return BeforeValidator(parse), WithJsonSchema(schema)


# An editor reads `3.10` as a number before we read it as text, so the schema of text allows what YAML may make of it.
_TEXT_SCHEMA: dict[str, Any] = {"type": ["string", "number", "boolean"]}
_SIZE_SCHEMA: dict[str, Any] = {
    "anyOf": [{"type": "string", "pattern": r"^(0|\d+(\.\d+)? ?([kKmMgGtT]?[iI]?[bB]))$"}, {"const": 0}]
}
_DURATION_SCHEMA: dict[str, Any] = {
    "anyOf": [{"type": "string", "pattern": r"^(0|\d+(\.\d+)?(ms|s|m|h|d))$"}, {"const": 0}]
}
_ARGV_SCHEMA: dict[str, Any] = {"type": "array", "items": _TEXT_SCHEMA, "minItems": 1}
_WORDS_SCHEMA: dict[str, Any] = {"anyOf": [_TEXT_SCHEMA, {"type": "array", "items": _TEXT_SCHEMA}]}

Text = Annotated[str, *_typed(parse_text, _TEXT_SCHEMA)]
FilledText = Annotated[str, *_typed(parse_filled_text, _TEXT_SCHEMA)]
Duration = Annotated[float, *_typed(parse_duration, _DURATION_SCHEMA)]
PositiveDuration = Annotated[float, *_typed(parse_positive_duration, _DURATION_SCHEMA)]
Period = Annotated[float, *_typed(parse_period, _DURATION_SCHEMA)]
Money = Annotated[float, *_typed(parse_money, {"type": ["number", "string"], "pattern": r"^\d+(\.\d+)?$"})]
Rate = Annotated[float, *_typed(parse_rate, {"type": ["number", "string"], "pattern": r"^\d+(\.\d+)?$"})]
Size = Annotated[int, *_typed(parse_size, _SIZE_SCHEMA)]
Boolean = Annotated[bool, *_typed(parse_boolean, {"anyOf": [{"type": "boolean"}, {"enum": sorted(_BOOLEANS)}]})]
WholeNumber = Annotated[int, BeforeValidator(parse_whole_number)]
Count = Annotated[
    int, *_typed(parse_count, {"anyOf": [{"type": "integer"}, {"type": "string", "pattern": r"^\d[\d_,]*$"}]})
]
PathPattern = Annotated[str, *_typed(parse_pattern, {"type": ["string", "number"], "minLength": 1})]
FolderPath = Annotated[str, *_typed(parse_folder, {"type": ["string", "number"], "minLength": 1})]
PathPatterns = Annotated[tuple[str, ...], *_typed(parse_patterns, _WORDS_SCHEMA)]
Branch = Annotated[str, *_typed(parse_branch, {"type": ["string", "number"], "pattern": "^[^-]"})]
RepositoryPath = Annotated[str, *_typed(parse_repository_path, {"type": ["string", "number"]})]
Argv = Annotated[tuple[str, ...], *_typed(parse_argv, _ARGV_SCHEMA)]
Command = Annotated[tuple[str, ...], *_typed(parse_command, _ARGV_SCHEMA)]
Words = Annotated[tuple[str, ...], *_typed(parse_words, _WORDS_SCHEMA)]
SecretNames = Annotated[
    tuple[str, ...],
    *_typed(
        parse_secret_names, {"type": ["array", "string"], "items": {"type": "string", "pattern": f"^{SECRET_NAME}$"}}
    ),
]
SecretName = Annotated[str, *_typed(parse_secret_name, {"type": "string", "pattern": f"^{SECRET_NAME}$"})]
ModelName = Annotated[str, *_typed(parse_model_name, {"type": "string", "pattern": f"^({'|'.join(PROVIDERS)}):.+"})]
BaseUrl = Annotated[str, *_typed(parse_base_url, {"type": "string", "pattern": "^https?://"})]
Temperature = Annotated[float, *_typed(parse_temperature, {"type": ["number", "string"], "minimum": 0, "maximum": 2})]
Share = Annotated[
    float | int,
    *_typed(parse_share, {"anyOf": [{"type": "integer"}, {"type": "string", "pattern": r"^(\d[\d_,]*|\d{1,2}%)$"}]}),
]
Environment = Annotated[
    dict[str, str], *_typed(parse_environment, {"type": "object", "additionalProperties": _TEXT_SCHEMA})
]
PayloadFilter = Annotated[
    dict[str, tuple[str, ...]],
    *_typed(parse_payload_filter, {"type": "object", "additionalProperties": _WORDS_SCHEMA, "minProperties": 1}),
]
People = Annotated[
    dict[str, Role], *_typed(parse_people, {"type": "object", "additionalProperties": {"enum": list(_ROLES)}})
]
Hours = Annotated[
    tuple[int, int], *_typed(parse_window, {"type": "string", "pattern": r"^\d{1,2}:\d{2}\s*-\s*\d{1,2}:\d{2}$"})
]
ServiceAddress = Annotated[str, *_typed(parse_service, {"type": "string", "pattern": "^((tcp|https?)://|mcp:)"})]
Network = Annotated[
    bool | tuple[str, ...],
    *_typed(
        parse_network,
        {
            "anyOf": [
                {"type": "boolean"},
                {"type": "string"},
                {"type": "array", "items": {"type": "string"}, "minItems": 1},
            ]
        },
    ),
]
FetchHosts = Annotated[
    tuple[str, ...],
    *_typed(
        parse_fetch,
        {
            "anyOf": [
                {"type": "boolean"},
                {"type": "string"},
                {"type": "array", "items": {"type": "string"}, "minItems": 1},
            ]
        },
    ),
]
ListenAddress = Annotated[str, *_typed(parse_listen, {"type": "string"})]
HostNames = Annotated[tuple[str, ...], *_typed(parse_hosts, _WORDS_SCHEMA)]
PlacePaths = Annotated[tuple[str, ...], *_typed(parse_places, _WORDS_SCHEMA)]
SessionName = Annotated[str, *_typed(parse_session_name, {"type": ["string", "number"]})]


LOCALTIME = "/etc/localtime"


def is_zone(name: str) -> bool:
    if name == "UTC":
        # UTC needs no zone database.
        return True
    try:
        ZoneInfo(name)
    # KeyError: an unknown name. ValueError: a path. OSError: a folder such as Europe.
    except (KeyError, ValueError, OSError):
        return False
    return True


def find_local_zone(environ: Mapping[str, str], localtime: str = LOCALTIME) -> str | None:
    """Find the machine's zone: TZ, else the target of /etc/localtime, else UTC as in the C library.

    None if TZ is not a name.
    """
    if declared := environ.get("TZ", "").removeprefix(":"):
        return _zone_of_path(declared) if declared.startswith("/") else (declared if is_zone(declared) else None)
    return _zone_of_path(localtime) if os.path.exists(localtime) else "UTC"


def _zone_of_path(path: str) -> str | None:
    _, found, name = os.path.realpath(path).partition("/zoneinfo/")
    name = name.removeprefix("posix/").removeprefix("right/")
    return name if found and is_zone(name) else _zone_named_in_etc()


def _zone_named_in_etc() -> str | None:
    """Read the zone's name from a file of Debian, for a machine whose /etc/localtime is a copy and not a link."""
    try:
        with open("/etc/timezone", encoding="ascii") as file:
            name = file.read(100).strip()
    except (OSError, UnicodeDecodeError):
        return None
    return name if is_zone(name) else None
