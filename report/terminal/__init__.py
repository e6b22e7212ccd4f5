"""What a person reads on a terminal or in a pipe."""

from d2k.report.terminal.audit import render_audit
from d2k.report.terminal.diff import render_audit_diff, render_report_diff
from d2k.report.terminal.findings import render_report

__all__ = ["render_audit", "render_audit_diff", "render_report", "render_report_diff"]
