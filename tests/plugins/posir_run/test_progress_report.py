"""A log has one line per job."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from posir_run.jobs import Completed, EvaluationJob, Failed
from posir_run.progress_report import remaining_time, report_progress
from posir_tasks.models.references import ModelReference


def test_a_log_has_one_line_per_job_and_failures_are_returned(capsys):
    jobs = [EvaluationJob(ModelReference("org/[model]"), "PosIR-English", subset, "") for subset in ("game", "sports")]
    failed, warnings = Failed(jobs[1], "bad data", restart_worker=False, warnings=("second",)), []
    assert report_progress([Completed(jobs[0], None, {}, warnings=("first",)), failed], 2, warnings.append) == [failed]
    assert warnings == ["first", "second"]
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("1/2 done: org/[model] · PosIR-English · game, ")
    assert second == "2/2 failed: org/[model] · PosIR-English · sports, 0:00:00 left"


@given(st.integers(1, 500), st.integers(0, 500), st.integers(1, 10_000))
def test_the_remaining_time_of_equally_long_jobs_is_exact(done, left, seconds):
    assert remaining_time(done * seconds, done, done + left) == timedelta(seconds=left * seconds)
