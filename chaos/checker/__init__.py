"""The in-process checker: the same questions as the Spark job, answered by other code.

Pure: a history in, results out. Written independently of ``spark/``, so that a mistake in one is
seen as a disagreement with the other.
"""

from chaos.checker.compose import Verdict, check_history, decide, unreadable
from chaos.checker.model import History, Replica, Result

__all__ = ["History", "Replica", "Result", "Verdict", "check_history", "decide", "unreadable"]
