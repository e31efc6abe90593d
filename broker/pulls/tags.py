"""Tag expressions: ``A || B`` to the hash codes that a consume queue holds.

Pure. The broker tests hash codes only; clients compare the tags themselves.
Source: spec/wire.md 7.3; RocketMQ FilterAPI, ExpressionMessageFilter.
"""

from __future__ import annotations

from broker.serving_limits import EXPRESSION_LENGTH_MAX, TAGS_MAX
from ledgermq.remoting.protocol.properties import java_string_hash

ALL_TAGS = "*"


def tag_codes(expression: str | None) -> frozenset[int] | None:
    """Return the codes of the tags of an expression, None for "all".

    Raises:
        ValueError: the expression has no tag at all, too many, or is too long.
    """
    if not expression or expression == ALL_TAGS:
        return None
    if len(expression) > EXPRESSION_LENGTH_MAX:
        raise ValueError(f"subscription expression of {len(expression)} characters")
    tags = [tag.strip() for tag in expression.split("||")]
    tags = [tag for tag in tags if tag]
    if not tags or len(tags) > TAGS_MAX:
        raise ValueError(f"bad subscription expression: {expression[:100]}")
    return frozenset(java_string_hash(tag) for tag in tags)
