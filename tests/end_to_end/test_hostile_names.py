"""Names in result files that control a terminal are shown as escapes by every command, in every
format.
"""

import json

import numpy as np
import pytest

from posir_tasks.values.profile import RANKS, PositionProfile
from posir_tasks.values.schemes import RelativePositions
from tests.support.cli import call_posir
from tests.support.results import write_result

HOSTILE = "\x1b]0;title\x07\x1b[31m\u202e\x9b"
ESCAPED = r"\x1b]0;title\x07\x1b[31m\u202e\x9b"


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    output, axes = tmp_path_factory.mktemp("results"), RelativePositions().axes
    drawn = np.random.default_rng(0).integers(
        0, 9, (len(axes.lengths), len(axes.positions), len(RANKS))
    )
    for model, counts in {"a": drawn, "b": drawn[..., ::-1]}.items():
        profile = PositionProfile(axes, counts, counts.sum(axis=1))
        names = {
            "task": f"Mine{HOSTILE}",
            "model": f"org/{model}{HOSTILE}",
            "revision": f"1{HOSTILE}",
        }
        file = write_result(output, {f"sports{HOSTILE}": profile}, **names)
        data = json.loads(file.read_text())
        (scores,) = data["scores"]["test"]
        scores["position_run"]["data_revision"] = f"local{HOSTILE}"
        file.write_text(json.dumps(data))
    return output


@pytest.mark.parametrize(
    "arguments",
    [
        *(("report", "--format", form) for form in ("text", "markdown", "csv", "json", "latex")),
        ("report", "--bins"),
        *(
            ("compare", "--results", "--format", form)
            for form in ("text", "markdown", "csv", "json")
        ),
    ],
    ids=" ".join,
)
def test_no_control_character_is_printed(results, arguments, caplog):
    command, *options = arguments
    words = (
        [command, str(results), *options]
        if command == "report"
        else [command, "--results", str(results), *options[1:]]
    )
    done = call_posir(words, catch_exceptions=False)
    printed = done.stdout + done.stderr + caplog.text
    assert done.exit_code == 0, printed
    assert "Mine" in done.stdout
    assert not {*"\x1b\x07\u202e\x9b"} & {*printed}


@pytest.mark.slow
def test_the_page_has_no_control_character(results, tmp_path):
    page = tmp_path / "page.html"
    assert call_posir(["report", str(results), "--html", str(page)]).exit_code == 0
    assert not {*"\x1b\x07\u202e\x9b"} & {*page.read_text().partition("<script")[0]}
