"""Progress: bars on a terminal, lines in a log, nothing for library calls and with `--quiet`."""

import io
import re
import threading
from contextlib import nullcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posir_tasks.base import progress as module
from posir_tasks.base.progress import (
    BRIEF_SECONDS,
    LINE_SECONDS,
    LineReporter,
    format_seconds,
    log_progress,
    report_progress,
    track,
    track_items,
)


class Clock:
    def __init__(self):
        self.now = 1_000.0

    def __call__(self):
        return self.now


@pytest.fixture
def log():
    clock, lines = Clock(), []
    return LineReporter(lines.append, clock), clock, lines


#: Stages (number of steps, delay, and pairs of elapsed seconds and finished steps), with the
#: expected lines.
STAGES = {
    "a line at the beginning and one every minute": (
        (1_200, 0.0, [(LINE_SECONDS, 300), (0, 0), (LINE_SECONDS, 300)]),
        [
            "Stage: 0 of 1,200",
            "Stage: 300 of 1,200, 0:01:00 elapsed, 0:03:00 left",
            "Stage: 600 of 1,200, 0:02:00 elapsed, 0:02:00 left",
        ],
    ),
    "no line for a short stage": (
        (4, BRIEF_SECONDS, [(BRIEF_SECONDS - 0.1, 0), (0.1, 1)]),
        ["Stage: 1 of 4, 0:00:02 elapsed, 0:00:06 left"],
    ),
    "an unfinished long step does not increase the time left": (
        (3, 0.0, [(300, 1), (LINE_SECONDS, 0), (LINE_SECONDS, 0)]),
        [
            "Stage: 0 of 3",
            *(
                f"Stage: 1 of 3, 0:0{passed}:00 elapsed, 0:{15 - passed:02}:00 left"
                for passed in (5, 6, 7)
            ),
        ],
    ),
    "unknown total": (
        (None, 0.0, [(0, 7), (3 * LINE_SECONDS, 0)]),
        ["Stage", "Stage: 0:03:00 elapsed"],
    ),
    "no time left before the first step": (
        (10, 0.0, [(LINE_SECONDS, 0)]),
        ["Stage: 0 of 10", "Stage: 0 of 10, 0:01:00 elapsed"],
    ),
}


@pytest.mark.parametrize(("stage", "expected"), STAGES.values(), ids=STAGES)
def test_log_lines_contain_finished_steps_and_the_time_left(log, stage, expected):
    reporter, clock, lines = log
    total, delay, events = stage
    with reporter.show("Stage", total, delay) as advance:
        for seconds, steps in events:
            clock.now += seconds
            advance(steps) if steps else None
            reporter.write_due()
    clock.now += 10 * LINE_SECONDS
    reporter.write_due()
    assert lines == expected


@given(st.integers(1, 500), st.integers(0, 500), st.integers(1, 10_000))
def test_the_time_left_is_exact_for_steps_of_equal_length(done, left, seconds):
    clock, lines = Clock(), []
    reporter = LineReporter(lines.append, clock)
    with reporter.show("Steps", done + left, 1.0) as advance:
        clock.now += done * seconds
        advance(done)
        reporter.write_due()
    assert lines[0].endswith(f", {format_seconds(left * seconds)} left")


def test_a_log_is_written_while_a_step_blocks(capsys, monkeypatch):
    written = threading.Event()
    monkeypatch.setattr(module, "TICK_SECONDS", 0.001)
    monkeypatch.setattr(LineReporter, "write_due", lambda _: written.set())
    with report_progress(quiet=False), track("Loading"):
        assert written.wait(30)
    assert capsys.readouterr().err == "Loading\n"


@pytest.mark.parametrize(
    "context", [nullcontext(), report_progress(quiet=True)], ids=["library", "quiet"]
)
def test_a_library_call_and_quiet_print_nothing(context, capsys):
    with context, track("Stage", 3):
        assert list(track_items([1, 2], "Loop")) == [1, 2]
        log_progress("a job is done")
    assert capsys.readouterr() == ("", "")


def test_a_log_is_written_to_the_original_stream(capsys, monkeypatch):
    with report_progress(quiet=False):
        monkeypatch.setattr("sys.stderr", io.StringIO())
        with track("Training"):
            log_progress("1/2 done")
        monkeypatch.undo()
    assert capsys.readouterr().err == "Training\n1/2 done\n"


def test_a_bar_shows_the_time_left_after_a_step(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(module, "FLASH_SECONDS", 0.0)
    for total, steps, expected in (
        (None, 0, "0:00:00 elapsed"),
        (4, 0, "0 of 4, 0:00:00 elapsed"),
        (4, 4, "elapsed, 0:00:00 left"),
    ):
        monkeypatch.setattr("sys.stderr", screen := io.StringIO())
        with track(
            "A stage with a description that is longer than a narrow terminal line", total
        ) as advance:
            advance(steps)
            module._bars.refresh()
        shown = re.sub(r"\x1b\[[^a-zA-Z]*[a-zA-Z]", "", screen.getvalue())
        assert expected in shown
        assert ("left" in shown) == (steps > 0)


def test_bars_of_nested_stages_end_in_any_order(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(module, "FLASH_SECONDS", 0.0)
    screen = io.StringIO()
    monkeypatch.setattr("sys.stderr", screen)
    outer, inner = track_items([1, 2, 3], "Outer [stage]"), track_items([1], "Inner")
    assert (next(iter(outer)), next(iter(inner))) == (1, 1)
    outer.close()
    inner.close()
    assert "Outer [stage]" in screen.getvalue()
    assert "Inner" in screen.getvalue()
    monkeypatch.setattr(module, "FLASH_SECONDS", 1.0)
    with track("Next"):
        pass
    assert "Next" not in screen.getvalue(), "a short stage must not flash"
