"""Columns that became wider while a job runs: it is opened again with them."""

from __future__ import annotations

from velostream.errors import JobError


class ColumnsWidenedError(JobError):
    """Not a failure: discovered columns became wider, and the job is opened again with them at once."""

    code = "job.columns_widened"
    retryable = True
