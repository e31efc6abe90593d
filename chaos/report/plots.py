"""The report's plots as inline SVG: fault bands on each, colours that follow the page's theme.

Ink and grid are drawn in two marker colours that become CSS variables, so one picture serves light
and dark. Knows only `chaos.report.data`. Source: spec/proof.md 4.5.
"""

import io
import re
from collections.abc import Callable
from typing import Any, Final

import matplotlib as mpl
import numpy as np
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from chaos.report.data import STEPS_MAX, FaultRow, RunData

INK: Final = "#010203"
GRID: Final = "#040506"
COLOURS: Final = {"ok": "#2a9d63", "info": "#d99a1c", "fail": "#d04a4a"}
ROLE_COLOURS: Final = {
    "leader": "#2a78c8",
    "follower": "#8fb8dd",
    "candidate": "#d99a1c",
    "pre_candidate": "#e3c27a",
    "no answer": "#b9b9c0",
}
BAND: Final = "#d04a4a"
CYCLE: Final = (
    "#2a78c8",
    "#d0742a",
    "#2a9d63",
    "#9a5cc4",
    "#c74a86",
    "#5aa7a7",
    "#8a8a3a",
    "#777799",
)
WIDTH_IN: Final = 10.0
_STYLE: Final = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": GRID,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": GRID,
    "axes.grid": True,
    "grid.linewidth": 0.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.prop_cycle": cycler(color=CYCLE),
    "legend.frameon": False,
}


def draw_plots(data: RunData) -> list[tuple[str, str, str]]:
    """Return (title, caption, SVG) of every plot that the data allows."""
    plots: list[tuple[str, str, Callable[[RunData, Axes], None], float, bool]] = [
        (
            "Send latency",
            "Acknowledged sends by the second they ended in, of long runs by several: median and "
            "99th percentile.",
            _latency, 3.0, bool(data.sends),
        ),
        (
            "Sends per second",
            "By outcome: ok, info (unknown), fail (definitely not appended).",
            _rate, 2.6, bool(data.sends),
        ),
        (
            "Unseen messages",
            "Acknowledged but not yet delivered to any consumer, per queue.",
            _unseen, 2.6, bool(data.unseen),
        ),
        (
            "Roles",
            "What each node said it was; numbers are terms.",
            _roles, 0.9 + 0.42 * len(data.probes), bool(data.probes),
        ),
        ("Commit index", "Per node, as probed.", _commit, 2.6, bool(data.probes)),
    ]  # fmt: skip
    drawn = []
    for number, (title, caption, draw, height, possible) in enumerate(plots):
        if possible:
            drawn.append((title, caption, _render(data, draw, height, number)))
    return drawn


def _render(
    data: RunData, draw: Callable[[RunData, Axes], None], height: float, number: int
) -> str:
    with mpl.rc_context({**_STYLE, "svg.hashsalt": f"ledgermq-{number}"}):
        figure = Figure(figsize=(WIDTH_IN, height), layout="constrained")
        axes = figure.add_subplot()
        draw(data, axes)
        _bands(data, axes)
        axes.set_xlim(0, max(data.duration, 1.0))
        axes.set_xlabel("seconds since the start")
        out = io.StringIO()
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    svg = out.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r'width="[\d.]+pt" height="[\d.]+pt"', 'width="100%" role="img"', svg, count=1)
    return svg.replace(INK, "var(--ink)").replace(GRID, "var(--grid)")


def _bands(data: RunData, axes: Axes) -> None:
    """Shade the windows of all faults that were switched on; dashed lines separate phases."""
    top = axes.get_xaxis_transform()
    level = 0
    last_label = -1e9
    for fault in data.faults:
        if fault.start is None or fault.status in {"planned", "skipped"}:
            continue
        end = data.duration if fault.end is None else fault.end
        alpha = 0.13 if fault.effective else 0.05
        end = max(end, fault.start + 0.05)
        axes.axvspan(fault.start, end, color=BAND, alpha=alpha, lw=0, zorder=0)
        level = (level + 1) % 3 if fault.start - last_label < data.duration * 0.16 else 0
        last_label = fault.start
        axes.annotate(
            _name(fault), (fault.start, 1.0), (0, 2 + 10 * level), xycoords=top,
            textcoords="offset points", fontsize=7.5, va="bottom", color=BAND,
        )  # fmt: skip
    for _, start, _ in data.phases[1:]:
        axes.axvline(start, color=INK, lw=0.6, ls=(0, (2, 4)), alpha=0.6)


def _name(fault: FaultRow) -> str:
    kind = "" if fault.kind in fault.fault_id else f" {fault.kind}"
    return f"{fault.fault_id}{kind} {fault.targets}"


def _bin_s(seconds: float) -> int:
    """Return how many seconds a point stands for."""
    return 1 + int(seconds / STEPS_MAX)


def _shown(name: str) -> str:
    """Return a name as a legend shows it: one that begins with a line is none to it."""
    return f" {name}" if name.startswith("_") else name


def _legend(axes: Axes) -> None:
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8.5)


def _latency(data: RunData, axes: Axes) -> None:
    ok = data.sends["outcome"] == "ok"
    ended = data.sends["end"][ok]
    width = _bin_s(float(np.ptp(ended))) if len(ended) else 1
    second = np.floor(ended / width).astype(int)
    latency = data.sends["latency"][ok] * 1000
    order = np.argsort(second, kind="stable")
    seconds, starts = np.unique(second[order], return_index=True)
    groups = np.split(latency[order], starts[1:]) if len(seconds) else []
    # A second without an acknowledgement is a hole in the line, not a bridge.
    every = np.arange(seconds[0], seconds[-1] + 1) if len(seconds) else np.array([])
    for quantile, label in ((50, "p50"), (99, "p99")):
        line = np.full(len(every), np.nan)
        for at, group in zip(seconds, groups, strict=True):
            line[at - seconds[0]] = np.percentile(group, quantile)
        axes.plot((every + 0.5) * width, line, label=label, lw=1.6, marker=".", ms=4)
    axes.set_yscale("log")
    axes.set_ylabel("ms")
    _legend(axes)


def _rate(data: RunData, axes: Axes) -> None:
    width = _bin_s(data.duration)
    edges = np.arange(0, int(data.duration) + 2 * width, width)
    for outcome, colour in COLOURS.items():
        times = data.sends["end"][data.sends["outcome"] == outcome]
        counts, _ = np.histogram(times, bins=edges)
        if counts.any() or outcome == "ok":
            axes.step(edges[:-1], counts / width, where="post", color=colour, label=outcome, lw=1.5)
    axes.set_ylabel("per second")
    axes.set_ylim(bottom=0)
    _legend(axes)


def _unseen(data: RunData, axes: Axes) -> None:
    for name, line in data.unseen["queues"].items():
        axes.plot(data.unseen["t"], line, label=_shown(name), lw=1.3)
    axes.set_ylabel("messages")
    axes.set_ylim(bottom=0)
    _legend(axes)


def _roles(data: RunData, axes: Axes) -> None:
    names = list(data.probes)
    shown: set[str] = set()
    for row, name in enumerate(names):
        probe = data.probes[name]
        for start, end, role, term in _stretches(probe, data.duration):
            colour = ROLE_COLOURS.get(role, "#999999")
            axes.barh(
                row, end - start, left=start, height=0.62, color=colour,
                label=None if role in shown else role,
            )  # fmt: skip
            shown.add(role)
            if role == "leader" and term == term:  # noqa: PLR0124 - NaN is no term
                axes.text(start, row, f" {int(term)}", va="center", fontsize=8, color="#ffffff")
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_axisbelow(b=True)
    axes.grid(visible=False, axis="y")
    _legend(axes)


def _stretches(probe: dict[str, Any], duration: float) -> list[tuple[float, float, str, float]]:
    """Return (start, end, role, term) of each stretch of equal answers of a node."""
    stretches: list[tuple[float, float, str, float]] = []
    times, roles, terms = probe["t"], probe["role"], probe["term"]
    begin = 0
    for at in range(1, len(times) + 1):
        last = at == len(times)
        if (
            not last
            and roles[at] == roles[begin]
            and (terms[at] == terms[begin] or roles[at] == "no answer")
        ):
            continue
        end = min(duration, times[-1] + 0.3) if last else times[at]
        stretches.append((float(times[begin]), float(end), str(roles[begin]), float(terms[begin])))
        begin = at
    return stretches


def _commit(data: RunData, axes: Axes) -> None:
    for name, probe in data.probes.items():
        axes.plot(probe["t"], probe["commit"], label=_shown(name), lw=1.4)
    axes.set_ylabel("entries")
    axes.set_ylim(bottom=0)
    _legend(axes)
