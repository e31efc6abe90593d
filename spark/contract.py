"""What a run promised, and whether the faults that took effect were more than it promised for.

The promise is ``run.json``'s ``contract``: ``durability`` (quorum or none) and ``flush``. Only
witnessed faults count. Source: spec/proof.md 4.3 (Contract).
"""

from typing import Any

from chaos.catalogue.faults import exceeds
from spark.context import Fault
from spark.result import Contract


def evaluate_contract(run: dict[str, Any], faults: list[Fault], quorum: int) -> Contract:
    """Return the contract of a run; exceeded if a majority of nodes lost what it relied on."""
    stated = run.get("contract")
    stated = dict(stated) if isinstance(stated, dict) else {}
    if str(stated.get("durability", "quorum")) == "none":
        return Contract(
            stated=stated, exceeded=True, reasons=("the contract promises no durability",)
        )
    flush = str(stated.get("flush", "ASYNC_FLUSH")).lower()
    hit = {t for f in faults if f.effective and exceeds(f.kind, flush) for t in f.targets}
    if len(hit) < max(1, quorum):
        return Contract(stated=stated, exceeded=False, reasons=())
    reason = f"faults took the disks of {', '.join(sorted(hit))}: a majority under flush={flush}"
    return Contract(stated=stated, exceeded=True, reasons=(reason,))
