"""Render the API documentation of a source folder: its modules, classes, functions and signatures.

The session `api-docs` runs it when a commit touched that folder. The source is parsed with `ast` and never imported, so
a module that cannot be imported is documented too. A module that cannot be parsed is an error, and the page stays as it
was. Private names (with a leading underscore) are left out.
"""

import ast
import os
import sys
from collections.abc import Iterator
from pathlib import Path

# In a run, this is the clean copy of the committed tree that wakeful makes. Run by hand, it is the working tree.
SOURCE = Path(os.environ.get("WAKEFUL_BINDING_CODE") or "daemon/wakeful/core")
PACKAGE = "wakeful.core"
PAGE = Path("examples/docs/out/api.md")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def main() -> int:
    paths = sorted(path for path in SOURCE.rglob("*.py") if "__pycache__" not in path.parts)
    if not paths:
        return complain(f"{SOURCE}: no Python files; expected the source of {PACKAGE}; commit it or correct SOURCE")
    try:
        modules = {module_name(path): parse_module(path) for path in paths}
    except SyntaxError as error:
        return complain(f"{error.filename}:{error.lineno}: {error.msg}; the page is left as it was; correct the source")
    text = render_page(modules)
    is_new = not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != text
    if is_new:
        write_whole(PAGE, text)
    print(f"{len(modules)} modules of {PACKAGE}: {'wrote' if is_new else 'nothing new for'} {PAGE}")
    return 0


def complain(problem: str) -> int:
    print(problem, file=sys.stderr)
    return 1


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join((PACKAGE, *(parts[:-1] if parts[-1] == "__init__" else parts)))


def parse_module(path: Path) -> ast.Module:
    # Parse the bytes, so that Python honours a coding line and reports a wrong encoding as a SyntaxError.
    try:
        return ast.parse(path.read_bytes(), filename=str(path))
    except (SyntaxError, ValueError) as error:
        # For a null byte, Python gives no line number, and some releases raise ValueError.
        line = getattr(error, "lineno", None) or 1
        raise SyntaxError(getattr(error, "msg", str(error)), (str(path), line, 1, "")) from None


def render_page(modules: dict[str, ast.Module]) -> str:
    lines = [f"# {PACKAGE}", "", "Made from the code; edits to this page are lost.", ""]
    lines += [f"- [`{name}`](#{anchor(name)})" for name in modules]
    lines.append("")
    for name, tree in modules.items():
        lines += [f"## {name}", "", *paragraph(tree), *render_members(tree)]
    return "\n".join(lines).rstrip() + "\n"


def anchor(heading: str) -> str:
    """Return the link fragment that Markdown viewers give a heading. They remove dots."""
    return heading.lower().replace(".", "")


def render_members(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        match node:
            case ast.ClassDef(name=name) if is_public(name):
                yield from render_class(node)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if is_public(name):
                yield from (f"### `{signature(node)}`", "", *paragraph(node))
            case _:
                pass


def render_class(node: ast.ClassDef) -> Iterator[str]:
    bases = ", ".join(ast.unparse(base) for base in node.bases)
    yield from (f"### class `{node.name}({bases})`" if bases else f"### class `{node.name}`", "", *paragraph(node))
    fields = [item for item in node.body if isinstance(item, ast.AnnAssign) and is_public(ast.unparse(item.target))]
    methods = [item for item in node.body if isinstance(item, Function) and is_public(item.name)]
    for field in fields:
        default = f" = {ast.unparse(field.value)}" if field.value else ""
        yield f"- `{ast.unparse(field.target)}: {ast.unparse(field.annotation)}{default}`"
    for method in methods:
        first = " ".join(paragraph(method)).strip()
        yield f"- `{signature(method)}`{f': {first}' if first else ''}"
    if fields or methods:
        yield ""


def signature(node: Function) -> str:
    kinds = {ast.unparse(decorator) for decorator in node.decorator_list}
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    if kinds & {"property", "cached_property", "functools.cached_property"}:
        return f"{node.name}{returns}"
    prefix = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    return f"{prefix}{node.name}({ast.unparse(node.args)}){returns}"


def paragraph(node: ast.Module | ast.ClassDef | Function) -> list[str]:
    """Return the first paragraph of the docstring and an empty line, or an empty list if there is none."""
    text = (ast.get_docstring(node) or "").split("\n\n")[0]
    return [" ".join(text.split()), ""] if text else []


def is_public(name: str) -> bool:
    return not name.startswith("_")


def write_whole(path: Path, text: str) -> None:
    """Write a temporary file and rename it, so that a reader sees the old page or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


if __name__ == "__main__":
    sys.exit(main())
