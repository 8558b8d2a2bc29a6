"""An option has one name in all commands."""

from tests.support.cli import leaf_commands

#: Names that are refused, and the one that all commands use.
SYNONYMS = {
    "--output": {"--output-folder", "--output-dir", "--output-file", "--out", "--folder", "--output-path"},
    "--format": {"--json", "--output-format"},
    "--html": {"--page", "--html-file"},
    "--png": {"--figures", "--pictures"},
    "--language": {"--languages", "--lang"},
    "--documents": {"--max-documents", "--docs"},
    "--data": {"--dataset", "--datasets"},
    "--revision": {"--model-revision"},
    "--task": {"--tasks"},
    "--benchmark": {"--benchmarks"},
    "--config": {"--settings"},
    "--quiet": {"--silent", "--no-progress"},
}
#: Pairs that only look like singular and plural: a field of the texts and scores to show; a view and a table of models.
DIFFERENT = {"--columns", "--architectures"}


def option_names():
    """Every option with the commands that have it."""
    names = {}
    for name, command in leaf_commands().items():
        for option in (option for parameter in command.params for option in getattr(parameter, "opts", ())):
            if option.startswith("--"):
                names.setdefault(option, set()).add(name)
    return names


def test_no_command_has_a_synonym_of_another_commands_option():
    names = option_names()
    assert {name: names[name] for refused in SYNONYMS.values() for name in refused & names.keys()} == {}
    assert {name for name in names if f"{name}s" in names and f"{name}s" not in DIFFERENT} == set()


def test_an_option_has_the_same_short_name_in_all_commands():
    short = {}
    for command in leaf_commands().values():
        for option in command.params:
            flags = [name for name in getattr(option, "opts", ()) if name.startswith("-")]
            for letter in (name for name in flags if not name.startswith("--")):
                short.setdefault(letter, set()).update(name for name in flags if name.startswith("--"))
    assert {letter: names for letter, names in short.items() if len(names) > 1} == {}
