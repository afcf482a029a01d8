"""What passes between conversation, analysis and forensics has types: no signature and no field there says `Any`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "rtmp_spark"
TYPED = ("conversation", "analysis", "forensics")


def untyped(tree: ast.AST) -> Iterator[str]:
    """Functions with `Any` in an annotation, aliases of functions with it, and fields of classes."""
    for node in ast.walk(tree):
        places: list[tuple[str, ast.expr | None]] = []
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            given = node.args
            every = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
            places = [(node.name, arg.annotation) for arg in every if arg is not None]
            places.append((node.name, node.returns))
        elif isinstance(node, ast.ClassDef):
            fields = [line for line in node.body if isinstance(line, ast.AnnAssign)]
            places = [(f"{node.name}.{ast.unparse(field.target)}", field.annotation) for field in fields]
        elif isinstance(node, ast.Assign) and "Callable[" in ast.unparse(node.value):
            places = [(ast.unparse(node.targets[0]), node.value)]
        yield from (name for name, annotation in places if annotation is not None and says_any(annotation))


def says_any(annotation: ast.expr) -> bool:
    return any(
        (isinstance(part, ast.Name) and part.id == "Any")
        or (
            isinstance(part, ast.Constant)
            and isinstance(part.value, str)
            and says_any(ast.parse(part.value).body[0].value)
        )  # type: ignore[attr-defined]
        for part in ast.walk(annotation)
    )


@pytest.mark.parametrize("package", TYPED)
def test_no_signature_says_any(package: str) -> None:
    paths = sorted((ROOT / package).rglob("*.py"))
    found = [f"{path.relative_to(ROOT)}: {name}" for path in paths for name in untyped(ast.parse(path.read_text()))]
    assert len(paths) > 15 and found == []


@pytest.mark.parametrize(
    "source",
    [
        "def f(x: Any) -> None: ...",
        "def f() -> dict[str, Any]: ...",
        "async def f(*x: list[Any]) -> None: ...",
        "class A:\n    def f(self, *, x: 'Any | None') -> None: ...",
        "class A(NamedTuple):\n    x: list[Any]",
        "Send = Callable[[Any], None]",
    ],
)
def test_any_is_found(source: str) -> None:
    assert list(untyped(ast.parse(source)))
