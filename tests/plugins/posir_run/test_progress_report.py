"""What a log says of a run: a line for each unit."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from posir_run.jobs import Done, EvaluationJob, Failed
from posir_run.progress_report import tell, time_left
from posir_tasks.models import ModelReference


def test_a_log_has_a_line_for_each_unit_and_what_failed_is_returned(capsys):
    units = [EvaluationJob(ModelReference("org/[model]"), "PosIR-English", subset, "") for subset in ("game", "sports")]
    failed = Failed(units[1], "bad data", fresh=False)
    assert tell([Done(units[0], None, {}), failed], 2) == [failed]
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("1/2 done: org/[model] · PosIR-English · game, ")
    assert second == "2/2 failed: org/[model] · PosIR-English · sports, 0:00:00 left"


@given(st.integers(1, 500), st.integers(0, 500), st.integers(1, 10_000))
def test_units_that_take_alike_take_as_long_as_is_told(done, left, seconds):
    assert time_left(done * seconds, done, done + left) == timedelta(seconds=left * seconds)
