"""`-t A B` means the same as in mteb."""

import argparse

from hypothesis import given
from hypothesis import strategies as st

from posir_run.run_command import expand_values

OPTIONS = {"-t", "--task", "-m"}
VALUES = st.lists(st.sampled_from(["A", "B c", "d/e"]), min_size=1, max_size=3)


@given(st.lists(st.tuples(st.sampled_from(["-t", "--task", "-m", "--engine", "-v"]), VALUES), max_size=5))
def test_several_values_are_read_as_argparse_reads_them(given_):
    args = [arg for option, values in given_ for arg in (option, *values[: {"-v": 0, "--engine": 1}.get(option)])]
    mteb, ours = argparse.ArgumentParser(), argparse.ArgumentParser()
    for parser, how in ((mteb, {"nargs": "+", "action": "extend"}), (ours, {"action": "append"})):
        parser.add_argument("-t", "--task", **how)
        parser.add_argument("-m", **how)
        parser.add_argument("--engine")
        parser.add_argument("-v", action="store_true")
    assert ours.parse_args(expand_values(args, OPTIONS)) == mteb.parse_args(args)


def test_a_value_without_an_option_is_unchanged():
    assert expand_values(["A", "--engine", "ray", "B", "-t", "C"], OPTIONS) == ["A", "--engine", "ray", "B", "-t", "C"]
