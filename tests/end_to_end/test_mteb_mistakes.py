"""What `mteb run` says of a mistake in a call."""

from tests.support.commands import run


def test_a_run_without_a_model_is_one_line():
    done = run("mteb", "run", "-t", "PosIR-Mini")
    assert (done.returncode, done.stderr.splitlines()[-1:]) == (
        2,
        ["error: Missing option '-m', a model, such as mteb/baseline-bm25s."],
    )


def test_an_unknown_task_is_one_line_with_the_nearest_name():
    done = run("mteb", "run", "-t", "PosIR-Mni", "-m", "baseline/bm25s")
    said = (
        "error: There is no task or benchmark 'PosIR-Mni'. Did you mean PosIR-Mini? `posir tasks` "
        "lists those with positions."
    )
    assert (done.returncode, done.stderr.splitlines()[-1:]) == (1, [said])
    assert not {"Traceback", "Namespace"} & {*done.stderr.replace("(", " ").split()}
