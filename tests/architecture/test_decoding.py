"""Whoever reads JSON or msgpack is ready for all that the reader raises, not for one half of it.

msgspec raises a `RecursionError`, none of its own errors, for what is nested without end, and a
`UnicodeDecodeError` for what is no text: `tolerant_json.NOT_DECODED` has all of them.
"""

import ast
from collections.abc import Iterator

import pytest

from tests.architecture.tree import python_files, tree

PRODUCT = ("ledgermq", "dledger", "store", "broker", "namesrv", "cli")
ALL = {"NOT_DECODED", "BAD_CONTENT", "Exception"}
OF_MSGSPEC = {"MsgspecError", "DecodeError", "ValidationError"}
TOGETHER = {"RecursionError"}


def names_in(node: ast.AST) -> set[str]:
    return {
        part.id if isinstance(part, ast.Name) else part.attr
        for part in ast.walk(node)
        if isinstance(part, ast.Name | ast.Attribute)
    }


def halves(module: ast.Module) -> Iterator[int]:
    """The lines of what catches or passes over msgspec's errors alone."""
    for node in ast.walk(module):
        if isinstance(node, ast.ExceptHandler) and node.type is not None:
            caught = names_in(node.type)
        elif isinstance(node, ast.Call) and "suppress" in names_in(node.func):
            caught = set().union(*map(names_in, node.args))
        else:
            continue
        if caught & OF_MSGSPEC and not caught & (ALL | TOGETHER):
            yield node.lineno


def test_what_reads_json_is_ready_for_all_that_is_raised() -> None:
    found = [f"{path}:{line}" for path in python_files(*PRODUCT) for line in halves(tree(path))]
    assert not found, f"NOT_DECODED of tolerant_json has all of it: {found}"


@pytest.mark.parametrize(
    "text",
    [
        "try:\n    f()\nexcept msgspec.MsgspecError:\n    pass",
        "try:\n    f()\nexcept (msgspec.DecodeError, UnicodeDecodeError):\n    pass",
        "with suppress(msgspec.ValidationError):\n    f()",
        "with contextlib.suppress(ValueError, DecodeError):\n    f()",
    ],
)
def test_one_half_of_it_is_found(text: str) -> None:
    assert list(halves(ast.parse(text)))


@pytest.mark.parametrize(
    "text",
    [
        "try:\n    f()\nexcept NOT_DECODED:\n    pass",
        "try:\n    f()\nexcept (*NOT_DECODED, OSError):\n    pass",
        "with suppress(*NOT_DECODED):\n    f()",
        "try:\n    f()\nexcept UnicodeDecodeError:\n    pass",
    ],
)
def test_all_of_it_is_let_in(text: str) -> None:
    assert not list(halves(ast.parse(text)))
