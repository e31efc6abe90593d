"""The report of a run: one static page with verdict, evidence, faults and plots."""

from chaos.report.page import write_report

__all__ = ["write_report"]
