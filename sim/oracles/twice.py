"""Small machines of production that are kept twice while a run lasts: by a model of each, too.

What brokers, clients and logs keep in memory has rules that need nobody else: who must have
confirmed what, which locks are anybody's, where a term begins. Mistakes in them do harm at rare
moments, or none that anybody sees. So each object of these classes has a model, whose rules are
written anew; both are told the same, one call after the other, and must say the same. What is found
is told when a run ends: an oracle that sees harm says more.

Source: `sim.oracles.twice_sets`, `twice_tables`, `twice_log`, `twice_queue` have the rules.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final, Protocol

from sim.oracles.base import Violation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

NAME: Final = "A39 kept otherwise than its rules say"
ANY: Final = object()
"""What a model returns that does not judge what is returned."""
KEPT: Final = "_kept"
"""Under this name the class that an object is given has its model."""


class Model(Protocol):
    """Keeps what an object keeps. Its methods are named as those of the object.

    Each is called behind that of the object with what that was told, and returns what must have
    been returned, or `ANY`.
    """

    def differs(self, one: Any) -> str | None:  # noqa: ANN401 - of its class
        """Say how what an object keeps differs from what it should, after the last call."""


class _Kept:
    """The model of one object. Methods of it that others hold outlive that it begins anew."""

    __slots__ = ("depth", "kind", "model")

    def __init__(self, kind: type, model: Any) -> None:  # noqa: ANN401 - of that class
        self.kind = kind
        self.model = model
        self.depth = 0
        """How many calls of its methods are under way: those that it makes itself are its own."""


class Twice:
    """The models of one run."""

    def __init__(self) -> None:
        self._found: list[Exception] = []
        self.calls = 0
        """How many were judged."""

    def raise_first(self) -> None:
        """Tell what was found first. Errors: `Violation`, or an error of a model."""
        if self._found:
            raise self._found[0]

    def follow(self, one: Any, make: Callable[[Any], Any], names: tuple[str, ...]) -> None:  # noqa: ANN401 - of any class
        """Have an object judged from now on, by what it is now."""
        plain_class = type(one)
        kept = _Kept(plain_class, make(one))
        methods: dict[str, Any] = {"__slots__": (), KEPT: kept}
        for name in names:
            methods[name] = self._judged(name, getattr(plain_class, name), kept)
        methods["__hash__"] = plain_class.__hash__
        one.__class__ = type(plain_class.__name__, (plain_class,), methods)

    def _judged(self, name: str, plain: Callable[..., Any], kept: _Kept) -> Callable[..., Any]:
        def judged(one: Any, *args: Any, **named: Any) -> Any:  # noqa: ANN401 - as production
            kept.depth += 1
            try:
                told = plain(one, *args, **named)
            finally:
                kept.depth -= 1
            if not kept.depth and not self._found:
                rule = getattr(kept.model, name)
                self._compare(name, one, kept.model, told, lambda: rule(*args, **named))
            return told

        return judged

    def _compare(
        self, name: str, one: Any, model: Any, told: object, rule: Callable[[], object]  # noqa: ANN401 - of its class
    ) -> None:  # fmt: skip
        self.calls += 1
        try:
            want = rule()
            wrong = model.differs(one)
            if want is not ANY and want != told:
                wrong = f"it returns {told}, and not {want}"
        except Exception as error:  # noqa: BLE001 - the caller is production's code
            self._found.append(error)
            return
        if wrong is not None:
            what = f"{type(one).__name__}.{name}"
            self._found.append(Violation(NAME, f"{what}: {wrong}"))


@contextlib.contextmanager
def kept_twice(
    models: Mapping[type, tuple[Callable[[Any], Any], tuple[str, ...]]],
) -> Iterator[Twice]:
    """Have each object of these classes judged that comes to be meanwhile."""
    twice = Twice()
    former = {one: one.__init__ for one in models}  # type: ignore[misc]  # of the class itself
    try:
        for one, (make, names) in models.items():
            one.__init__ = _following(twice, one, former[one], make, names)  # type: ignore[misc]  # put back below
        yield twice
    finally:
        for one, plain in former.items():
            one.__init__ = plain  # type: ignore[misc]  # as it was


def _following(
    twice: Twice,
    kind: type,
    plain: Callable[..., None],
    make: Callable[[Any], Any],
    names: tuple[str, ...],
) -> Callable[..., None]:
    def begin(one: Any, *args: Any, **named: Any) -> None:  # noqa: ANN401 - as production
        kept: _Kept | None = getattr(type(one), KEPT, None)
        plain(one, *args, **named)
        if kept is not None and kept.kind is kind:
            kept.model = make(one)  # it begins anew
        elif type(one) is kind:
            twice.follow(one, make, names)

    return begin
