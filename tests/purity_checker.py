"""Find functions of the core that change their arguments although their names ask a question.

`test_architecture.py` calls `is_question` and `find_changes` for every function of the core. `test_purity_checker.py`
tests them. The checker reads one function at a time and follows the names inside it. It does not follow calls of our
own functions.
"""

import ast
from typing import TypeAlias

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef

# A name that begins with one of these words is a question: the function answers it and changes none of its arguments.
# The same holds for properties.
QUESTIONS = {
    "are", "can", "changed", "charge", "choose", "contains", "could", "count", "counts", "covers", "delta", "describe", "digest", "estimate",
    "find", "fold", "has", "have", "is", "last", "latest", "leads", "list", "matches", "may", "measure", "merge", "minds", "name", "names",
    "next", "owed", "parse", "quote", "read", "refuse", "say", "select", "show", "split", "starts", "sum", "takes", "version", "view",
    "waits", "was",
}  # fmt: skip
# Questions whose names begin with another word.
ALSO_QUESTIONS = {"judge_start", "start_versions", "upstream_position", "gather_causes"}
# Modules and packages of the core in which every function is a question, whatever its name.
CHANGE_NOTHING = (
    ("wakeful", "core", "spec"),
    ("wakeful", "core", "agents"),
    ("wakeful", "core", "record", "fold"),
    ("wakeful", "core", "record", "fold_runs"),
    ("wakeful", "core", "record", "fold_history"),
    ("wakeful", "core", "record", "flat_state"),
    ("wakeful", "core", "record", "stages"),
    ("wakeful", "core", "deciding", "owed"),
    ("wakeful", "core", "deciding", "may_start"),
    ("wakeful", "core", "deciding", "holds"),
)
# A question may write only its memo: the function and the attribute. The same question gets the same answer.
MEMOS = {("delta_since", "told"), ("latest_until", "_neighbours"), ("find", "_known")}
CHANGING_METHODS = {
    "add", "append", "appendleft", "clear", "difference_update", "discard", "extend", "extendleft", "insert", "intersection_update",
    "move_to_end", "pop", "popitem", "popleft", "remove", "reverse", "rotate", "setdefault", "sort", "symmetric_difference_update", "update",
}  # fmt: skip
# Functions of heapq, bisect, operator, msgspec and the language that change their first argument.
CHANGING_FUNCTIONS = {
    "heapify", "heappop", "heappush", "heappushpop", "heapreplace", "insort", "insort_left", "insort_right", "setitem", "delitem",
    "setattr", "delattr", "__setattr__", "force_setattr",
}  # fmt: skip
# Methods that return a part of their object.
HANDING_METHODS = {"get", "items", "keys", "pop", "setdefault", "values"}
# A conversation is a frozen value: its `add` returns another one.
ADDS_TO_A_COPY = {"conversation"}


def is_question(function: Function, module: tuple[str, ...] = ()) -> bool:
    """Tell by name, decorator or module whether this function only answers."""
    if module in CHANGE_NOTHING or module[:3] in CHANGE_NOTHING:
        return True
    name = function.name.lstrip("_")
    is_property = any(isinstance(one, ast.Name) and one.id == "property" for one in function.decorator_list)
    return is_property or name.split("_")[0] in QUESTIONS or name in ALSO_QUESTIONS


def find_changes(function: Function) -> list[ast.AST]:
    """Return the assignments and calls that change an argument, also through another name."""
    changes = Changes(function)
    for statement in function.body:
        changes.visit(statement)
    return changes.found


class Changes(ast.NodeVisitor):
    """Walk a function in the order of its lines and track the names that refer to its arguments."""

    def __init__(self, function: Function) -> None:
        arguments = function.args
        named = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg)
        self.given = {one.arg for one in named if one is not None}
        self.memos = {attribute for name, attribute in MEMOS if name == function.name}
        self.found: list[ast.AST] = []

    def is_given(self, node: ast.expr) -> bool:
        """Tell whether this expression is an argument or a part of one."""
        match node:
            case ast.Name(id=name):
                return name in self.given
            case ast.Attribute(value=owner) | ast.Subscript(value=owner) | ast.Starred(value=owner):
                return self.is_given(owner)
            case ast.NamedExpr(value=value):
                return self.is_given(value)
            case ast.Call(func=ast.Attribute(value=owner, attr=method)) if method in HANDING_METHODS:
                return self.is_given(owner)
            case ast.IfExp(body=one, orelse=other):
                return self.is_given(one) or self.is_given(other)
            case ast.BoolOp(values=values):
                return any(self.is_given(one) for one in values)
            case _:
                return False

    def names_given(self, node: ast.expr) -> bool:
        return any(isinstance(one, ast.Name) and one.id in self.given for one in ast.walk(node))

    def assign(self, target: ast.expr, is_given: bool) -> None:
        match target:
            case ast.Name(id=name):
                (self.given.add if is_given else self.given.discard)(name)
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                for part in parts:
                    self.assign(part, is_given)
            case ast.Starred(value=part):
                self.assign(part, is_given)
            case ast.Attribute(value=ast.Name(id="self"), attr=attribute) if attribute in self.memos:
                pass
            case _ if self.is_given(target):
                self.found.append(target)

    def assign_value(self, target: ast.expr, value: ast.expr) -> None:
        match target, value:
            case ast.Tuple(elts=parts), ast.Tuple(elts=values) if len(parts) == len(values):
                for part, one in zip(parts, values, strict=True):
                    self.assign_value(part, one)
            case _:
                self.assign(target, self.is_given(value))

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        for target in node.targets:
            self.assign_value(target, node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)
            self.assign_value(node.target, node.value)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.visit(node.value)
        self.assign_value(node.target, node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.visit(node.value)
        # For a number or string this binds the name anew. A list, set or dict is changed in place.
        in_place = (ast.List, ast.Set, ast.Dict, ast.ListComp, ast.SetComp, ast.DictComp)
        if self.is_given(node.target) and (not isinstance(node.target, ast.Name) or isinstance(node.value, in_place)):
            self.found.append(node)

    def visit_Delete(self, node: ast.Delete) -> None:
        self.found += [one for one in node.targets if not isinstance(one, ast.Name) and self.is_given(one)]

    def visit_For(self, node: ast.For) -> None:
        self.visit(node.iter)
        self.assign(node.target, self.names_given(node.iter))
        for statement in (*node.body, *node.orelse):
            self.visit(statement)

    def visit_withitem(self, node: ast.withitem) -> None:
        self.visit(node.context_expr)
        if node.optional_vars is not None:
            self.assign(node.optional_vars, self.names_given(node.context_expr))

    def visit_comprehension(self, node: ast.comprehension) -> None:
        self.visit(node.iter)
        self.assign(node.target, self.names_given(node.iter))
        for test in node.ifs:
            self.visit(test)

    def visit_made(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> None:
        """Visit a comprehension: the sources of its names first, then the expression made of them."""
        before = set(self.given)
        for part in node.generators:
            self.visit(part)
        for made in (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,):
            self.visit(made)
        self.given = before

    visit_ListComp = visit_SetComp = visit_GeneratorExp = visit_DictComp = visit_made

    def visit_Call(self, node: ast.Call) -> None:
        for called in (node.func.body, node.func.orelse) if isinstance(node.func, ast.IfExp) else (node.func,):
            match called:
                case ast.Attribute(value=owner, attr=method) if method in CHANGING_METHODS and self.is_given(owner):
                    is_copy = method == "add" and getattr(owner, "attr", getattr(owner, "id", "")) in ADDS_TO_A_COPY
                    self.found += [] if is_copy else [node]
                case ast.Attribute(attr=name) | ast.Name(id=name) if name in CHANGING_FUNCTIONS:
                    self.found += [node] if node.args and self.is_given(node.args[0]) else []
        self.generic_visit(node)
