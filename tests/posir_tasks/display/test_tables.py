"""Tables in each format. A parser of the format reads the original cells, whatever they contain."""

import csv
import io
import itertools
import json
import re
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from rich.console import Console

from posir_tasks.base.wording import escape_controls
from posir_tasks.display.export import format_csv, to_csv, to_json
from posir_tasks.display.labels import (
    EstimateText,
    Label,
    Term,
    Title,
    Tone,
    change_text,
    find_tone,
)
from posir_tasks.display.latex import LATEX_SPECIAL, escape_latex, stack_interval, to_latex
from posir_tasks.display.presentation import Result, print_result
from posir_tasks.display.tables import (
    Column,
    DisplaySection,
    OutputFormat,
    Role,
    Table,
    build_columns,
    print_tables,
    to_markdown,
    wrap,
)

TABLE = Table(
    build_columns(("Model", "Task", "Queries"), ["Queries"]),
    (("org/a", "T1", "1"), ("org/a", "T1", "20"), ("org/b", "T1", "300")),
    notes=("A note.",),
    split_by=Title("{Model}", "{Task}"),
)


def capture_output(*tables, legend=(), width=60, terminal=False):
    console = Console(width=width, file=io.StringIO(), force_terminal=terminal, color_system=None)
    print_tables(console, tables, legend)
    return console.file.getvalue()


def print_to_terminal(table, width):
    return [
        line.rstrip() for line in capture_output(table, width=width, terminal=True).splitlines()
    ]


def test_a_terminal_shows_a_table_for_each_run_of_equal_keys():
    lines = [
        line.rstrip() for line in capture_output(TABLE, legend=["How to read it."]).splitlines()
    ]
    assert lines == [
        *("org/a · T1", "Queries", "      1", "     20", ""),
        *("org/b · T1", "Queries", "    300", ""),
        *("A note.", "How to read it."),
    ]


def test_an_empty_table_has_no_parts_and_names_are_not_markup():
    assert capture_output(Table(TABLE.columns, (), split_by=TABLE.split_by)) == ""
    hostile = "[bold]{Task}[/] \\[x] :smile:"
    table = Table(TABLE.columns, ((hostile, "T", hostile),), split_by=Title("{Model}", "{Task}"))
    assert capture_output(table).count(hostile) == 2


def test_a_terminal_splits_a_wide_table_and_repeats_keys():
    table = Table(
        build_columns(("Length", "Metric", "A", "B")), (("all", "PSI", "a" * 9, "b" * 9),), keys=2
    )
    assert print_to_terminal(table, width=36) == [
        "Length  Metric  A          B",
        "all     PSI     aaaaaaaaa  bbbbbbbbb",
        "",
    ]
    assert print_to_terminal(table, width=35) == [
        *("Length  Metric  A", "all     PSI     aaaaaaaaa", ""),
        *("Length  Metric  B", "all     PSI     bbbbbbbbb", ""),
    ]


def test_a_terminal_folds_the_first_column_and_never_a_number():
    table = Table((Column("Name"), Column("Number", "right")), (("a" * 40, "12,345"),))
    lines = print_to_terminal(table, width=30)
    assert lines == ["Name                    Number", f"{'a' * 22}  12,345", "a" * 18, ""]


@given(
    st.lists(
        st.lists(st.text("ab界", min_size=1, max_size=30), min_size=3, max_size=3), max_size=3
    ),
    st.integers(20, 90),
)
def test_rows_are_single_lines_outside_a_terminal(rows, width):
    table = Table(build_columns(("A", "B", "C")), tuple(map(tuple, rows)))
    assert [line.split() for line in capture_output(table, width=width).splitlines()[1:-1]] == [
        [cell for cell in row if cell] for row in rows
    ]


@pytest.mark.parametrize("columns", [60, 100, 120])
def test_the_variable_columns_applies_to_piped_output(columns, monkeypatch):
    rows = ((f"a model {'m' * 30}", *("word " * 12,) * 3, "+1.0 [+0.5, +1.5]"),)
    table = Table(build_columns(("Model", "A", "B", "C", "Effect")), rows, notes=("note " * 60,))
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = capture_output(table, legend=["legend " * 60]).splitlines()
    assert min(columns, 100) - 10 < max(map(len, lines)) <= columns


def parse_markdown_cells(text):
    """Parse the cells of a Markdown table with an independent parser, headings first."""
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    inline = [
        "".join(child.content for child in token.children)
        for token in tokens
        if token.type == "inline"
    ]
    width = sum(token.type == "th_open" for token in tokens)
    return [inline[start : start + width] for start in range(0, len(inline), width)]


cells = st.text(alphabet="ab\\|- \n:", max_size=12)


@given(st.lists(st.tuples(cells, cells), max_size=4))
def test_markdown_round_trip(rows):
    table = Table((Column("A|B"), Column("C", "right")), tuple(rows))
    expected = [
        ["A|B", "C"],
        *([" ".join(cell.splitlines()).strip() for cell in row] for row in rows),
    ]
    assert parse_markdown_cells(to_markdown(table)) == expected


markup = st.text(alphabet='<>[]()!`*_~&;|\\ab:/#@.w"=- \n', max_size=30)
#: Names that look like HTML, links, images or headings, or end a code block or a table.
HOSTILE_NAMES = (
    "<img src=x onerror=alert(1)>",
    "<!-- hidden",
    "</td><script>alert(1)</script>",
    "[click](http://evil.example)",
    "![seen](http://evil.example/pixel.png)",
    "[click][1]\n\n[1]: http://evil.example",
    "<http://evil.example>",
    "&lt;b&gt; &#60;",
    "a`](http://evil.example)[`",
    "`a`<b>`",
    "``` \n<b>\n```",
    "a\\](b)",
    "# big",
    "x | y |",
)


def find_markup(text):
    """List the markup tokens that an independent parser finds."""
    parser = MarkdownIt("commonmark").enable("table")
    tokens = [inner for token in parser.parse(text) for inner in (token, *(token.children or ()))]
    wrong = (
        "html_inline",
        "html_block",
        "link_open",
        "image",
        "heading_open",
        "blockquote_open",
        "fence",
    )
    return [token for token in tokens if token.type in wrong and token.level < 99]


@given(markup)
def test_cells_are_neither_html_nor_links_and_round_trip(cell):
    text = to_markdown(Table((Column("A"), Column("B")), ((cell, "x"),)))
    assert find_markup(text) == []
    if "`" not in cell:
        expected = " ".join(cell.splitlines()).strip()
        assert parse_markdown_cells(text)[1] == [expected, "x"]


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_names_are_text_everywhere_in_markdown(name):
    table = Table((Column("A"),), ((name,),), title=f"of {name}", notes=(f"Of {name}.",))
    section = DisplaySection(
        title=f"of {name}",
        sentences=(f"Model {name} is best.",),
        tables=(table,),
        commands=(f"posir {name}",),
    )
    kinds = [token.type for token in find_markup(section.to_markdown())]
    assert kinds == ["heading_open", "fence", "heading_open"]


def test_github_does_not_link_addresses_in_cells():
    text = to_markdown(Table((Column("A"),), (("https://evil.example www.evil.example",),)))
    assert not re.search(r"https?://|www\.", text)
    assert parse_markdown_cells(text)[1] == ["https://evil.example www.evil.example"]


def test_code_stays_code_in_cells_and_sentences():
    table = Table((Column("A"),), (("`a\\n<b> | c`",),))
    assert "| `a\\n<b> \\| c` |" in to_markdown(table)
    section = DisplaySection(sentences=("Run `posir run <model> [x](y)` at [-1, +2] (n = 3).",))
    assert section.to_markdown() == "Run `posir run <model> [x](y)` at [-1, +2] (n = 3)."


def test_markdown_contains_title_alignment_and_notes():
    text = to_markdown(Table(TABLE.columns, TABLE.rows[:1], title="T", notes=("One.", "Two.")))
    assert text.split("\n") == [
        *("### T", "", "| Model | Task | Queries |", "| --- | --- | ---: |", "| org/a | T1 | 1 |"),
        *("", "One.", "", "Two."),
    ]


@given(st.text(alphabet=["a", "b", " ", *map(chr, LATEX_SPECIAL)], max_size=20))
def test_escaped_latex_has_no_bare_special_character(text):
    command = r"\$\\(surd|times)\$|\\(text[a-z]+\{\}|ldots\{\}|[&%$#_{}])"
    rule = r"\\rule\{[.\d]+em\}\{[.\d]+em\}"
    left = re.sub(f"{command}|{rule}", "", escape_latex(text))
    assert not set(left) & set("\\{}%&$#_~^<>|–…▁▂▃▄▅▆▇█▏▎▍▌▋▊▉✓✗")
    assert sorted(re.findall("[ab]", left)) == sorted(re.findall("[ab]", text))


@given(
    st.lists(
        st.lists(
            st.text(["a", "[", " ", *map(chr, LATEX_SPECIAL)], max_size=8), min_size=3, max_size=3
        ),
        max_size=4,
    )
)
def test_latex_contains_every_cell(rows):
    table = Table(
        (Column("M"), Column("x", group="G"), Column("y", group="G")), tuple(map(tuple, rows))
    )
    body = to_latex(table, label="tab:t").split("\\midrule\n")[1].split("\n\\bottomrule")[0]
    lines = [line for line in body.split("\n") if line and line != "\\addlinespace"]
    assert [re.split(r"(?<!\\)&", line.removesuffix(" \\\\")) for line in lines] == [
        [f"{{{escape_latex(row[0])}}} ", f" {escape_latex(row[1])} ", f" {escape_latex(row[2])}"]
        for row in rows
    ]


@pytest.mark.parametrize(
    ("cell", "lines"),
    [
        (EstimateText("35.6", "[31.0, 40.4]"), ["35.6", "[31.0, 40.4]"]),
        (EstimateText("35.6"), ["35.6"]),
        (Term("Next", "train"), ["Next: train"]),
        ("58.9", ["58.9"]),
    ],
)
def test_latex_stacks_the_interval_of_any_estimate(cell, lines):
    assert stack_interval(cell).split("\n") == lines


def test_lines_of_sentences_are_markdown_paragraphs():
    section = DisplaySection("T", ("One.", "Two.\nThree."))
    assert section.to_markdown() == "## T\n\nOne. Two.\n\nThree."


@pytest.mark.parametrize("end", ["", ".", "?"])
def test_a_latex_caption_separates_title_and_notes(end):
    table = Table((Column("M"), Column("Bars")), (("m", "▁█▏"),), title=f"T{end}", notes=("N.",))
    text = to_latex(table, label="tab:t")
    assert rf"\caption{{T{end or '.'} N.}}" in text
    heights = [r"\rule{.4em}{0.1em}", r"\rule{.4em}{0.8em}", r"\rule{0.05em}{.8em}"]
    assert f"{{m}} & {''.join(heights)} " in text


@pytest.mark.parametrize("name", ["org/_final_", "a*b*", "~~old~~", "C:\\models\\_x"])
def test_names_in_markdown_titles_and_sentences_are_literal(name):
    section = DisplaySection(name, (f"{name} is better.",))
    tokens = MarkdownIt("commonmark").enable("strikethrough").parse(section.to_markdown())
    texts = [token for token in tokens if token.type == "inline"]
    kinds = {child.type for token in texts for child in token.children or ()}
    assert kinds <= {"text", "text_special"}
    contents = ["".join(child.content for child in token.children or ()) for token in texts]
    assert contents == [name, f"{name} is better."]


def test_latex_groups_columns_and_stacks_the_lines_of_a_cell():
    columns = Column("M"), Column("x", group="G"), Column("y", group="G")
    lines = to_latex(
        Table(columns, (("m\ninterval", "1\n[0, 2]", "3"),), title="T."), label="tab:t"
    ).split("\n")
    assert lines[2:6] == [
        *(
            r"\caption{T.}",
            r"\label{tab:t}\smallskip",
            r"\begin{adjustbox}{max width=\textwidth}",
            r"\begin{tabular}{lcc}",
        )
    ]
    assert lines[6:10] == [
        r"\toprule",
        r" & \multicolumn{2}{c}{G} \\",
        r"\cmidrule(lr){2-3}",
        r"M & x & y \\",
    ]
    rows = [
        r"\midrule",
        r"{m} & 1 & 3 \\",
        r"\scriptsize interval & \scriptsize [0, 2] &  \\",
        r"\bottomrule",
    ]
    assert lines[10:14] == rows


@dataclass(frozen=True)
class Record:
    kind: OutputFormat
    score: float | None


RECORDS = [Record(OutputFormat.TEXT, None), Record(OutputFormat.TEXT, 1 / 3)]


def test_csv_and_json_contain_the_unrounded_records():
    rows = list(csv.DictReader(io.StringIO(to_csv(RECORDS))))
    assert [(row["kind"], row["score"]) for row in rows] == [("text", ""), ("text", repr(1 / 3))]
    expected = [{"kind": "text", "score": None}, {"kind": "text", "score": 1 / 3}]
    assert json.loads(to_json(RECORDS)) == expected
    assert json.loads(to_json({"rows": tuple(RECORDS)})) == {"rows": expected}


FORMULAS = [
    "=cmd|' /C calc'!A0",
    "@SUM(1)",
    "+1+1",
    "-2+3",
    "+",
    "-",
    "\t=1",
    "\r=1",
    "\n=1",
    "\uff1d1+1",
    "-5 apples",
]


def test_spreadsheets_show_formulas_as_text():
    others = ["-0.5", "+4.2", "-.5", "-1e-07", "a=1", "org/model", "'=1"]
    for name in (*FORMULAS, *others):
        (row,) = csv.DictReader(io.StringIO(to_csv([{"name": name, "score": -0.5}]), newline=""))
        assert (row["name"].startswith("'"), row["score"]) == (name in (*FORMULAS, "'=1"), "-0.5")
        assert row["name"] == name or name in FORMULAS


#: Text without control characters, which are escaped.
SHOWN = st.text(st.characters(exclude_categories=["C", "Z"])).filter(
    lambda text: escape_controls(text) == text
)


@given(st.lists(st.lists(SHOWN, min_size=2, max_size=2)))
def test_csv_round_trip(rows):
    _, *read = csv.reader(io.StringIO(format_csv(["a", "b"], rows), newline=""))
    bare, expected = (
        [[cell.removeprefix("'") for cell in row] for row in table] for table in (read, rows)
    )
    assert bare == expected


def test_a_terminal_shows_explanations_only_on_request(capsys):
    shown = Result(
        rows=RECORDS,
        tables=[TABLE],
        sentences=["Found."],
        notes=["How to read it."],
        details=["In depth."],
    )
    print_result(shown, OutputFormat.TEXT)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Found."
    assert lines[-2:] == ["How to read it.", "--explain: all columns."]
    print_result(shown, OutputFormat.TEXT, explain=True)
    assert capsys.readouterr().out.splitlines()[-2:] == ["How to read it.", "In depth."]
    assert "In depth." in shown.to_html()
    for format_, expected in (
        (OutputFormat.CSV, to_csv(RECORDS)),
        (OutputFormat.MARKDOWN, to_markdown(TABLE) + "\n"),
    ):
        print_result(Result(tables=[TABLE], rows=RECORDS), format_)
        assert capsys.readouterr().out == expected


def test_column_groups_are_not_split():
    columns = (
        Column("Method"),
        *(Column(name, group=group) for group in "AB" for name in (group, "Change")),
    )
    table = Table(columns, (("plain", *("0123456789",) * 4),))
    assert [part.headings for part in table.split(40)] == [
        ("Method", "A", "Change"),
        ("Method", "B", "Change"),
    ]
    assert [part.headings for part in table.split(10)] == [
        ("Method", "A", "Change"),
        ("Method", "B", "Change"),
    ]


FIGURES = (
    *("+4.2 [+1.0, +7.4]", "58.9%", "72.1% [68.5, 75.0]", "p 0.035"),
    *("p <0.001", "1 - worst", "chunks(64) (+32.8)", "0.18 USD"),
)


def test_line_breaks_do_not_separate_numbers_from_interval_unit_or_sign():
    for figure, width in itertools.product(FIGURES, range(30, 60)):
        lines = wrap(
            f"An effect of position of a model on a task: {figure} and no more is said in this "
            "sentence.",
            width,
        )
        assert max(map(len, lines)) <= width
        assert any(figure in line for line in lines), (width, lines)


@given(
    st.lists(st.sampled_from([*FIGURES, "a", "longer", "word,", "/path/to/a-file"]), min_size=1),
    st.integers(20, 120),
)
def test_wrapping_keeps_every_word(words, width):
    text = " ".join(words)
    assert " ".join(wrap(text, width)) == text


def test_parts_omit_empty_columns_except_keys():
    rows = (("one", "a", "–", "1", ""), ("one", "b", "–", "2", ""), ("two", "–", "3", "–", "x"))
    table = Table(build_columns(("Task", "Model", "p", "Score", "Mark")), rows, split_by="{Task}")
    assert [part.headings for part in table.split_rows()] == [
        ("Model", "Score"),
        ("Model", "p", "Mark"),
    ]
    assert table.drop_empty_columns() == table


def test_pages_depend_on_roles_and_not_on_headings():
    """A state is in the cell of its difference, and a recommended row is marked."""
    rows = (
        ("a", EstimateText("+1.0", "[+0.5, +1.5]", ["+0.5", "+1.5"]), "better"),
        ("b", EstimateText("0.0", "[-0.5, +0.5]", ["-0.5", "+0.5"]), "equivalent"),
    )

    def render(headings, roles=(), recommended=None):
        columns = build_columns(
            headings, headings[1:2], headings[1:2], dict(zip(headings, roles, strict=False))
        )
        return Result(
            title="T", rows=[], tables=[Table(columns, rows, recommended=recommended)]
        ).to_html()

    plain = render(("Model", "Difference", "Change"))
    assert plain.count("</th>") == 3
    assert 'class="name"' not in plain
    assert 'class="advised"' not in plain
    page = render(("Modell", "Unterschied", "Lage"), (Role.NAME, Role.DIFFERENCE, Role.STATE), 1)
    assert page.count("</th>") == 2
    assert page.count('class="name"') == 2
    assert page.count('data-label="Unterschied" data-role="difference"') == 2
    assert page.count('class="interval"') == 2
    assert page.count('class="advised"') == 1
    assert page.index('class="advised"') > page.index("better")


def test_group_titles_are_not_shortened():
    title = "A title of the rows below that is far longer than the names " * 2
    name = "an-organization-with-a-long-name/a-model-with-a-long-name-" * 2
    columns = build_columns(["Model", "Change", "State"], ["Change"])
    rows = (
        (title, "", ""),
        (name + "a", "+1.0 [+0.5, +1.5]", "better"),
        (name + "b", "0.0 [-0.5, +0.5]", "equivalent"),
    )
    narrowed = Table(columns, rows).shorten_names(80)
    assert narrowed.rows[0] == rows[0]
    assert all(len(row[0]) < len(name) for row in narrowed.rows[1:])
    assert [row[1:] for row in narrowed.rows] == [row[1:] for row in rows]


def test_only_the_tone_colors_a_label():
    def build(*cells):
        return Table(build_columns(("Model", "State")), tuple(("worse", cell) for cell in cells))

    console = Console(width=60, file=io.StringIO(), force_terminal=True, color_system="standard")
    cells = [Label("anything", tone) for tone in Tone]
    print_tables(console, [build(*cells, "worse")])
    lines = [line for line in console.file.getvalue().splitlines() if line][-len(Tone) - 1 :]
    colors = [re.findall(r"\x1b\[(\d+)m", line)[:1] for line in lines]
    assert colors == [["32"], ["31"], ["2"], ["1"], []]
    assert find_tone(change_text(cells[0], str.upper)) is Tone.GOOD


def test_the_text_of_a_result_is_complete_in_a_notebook(monkeypatch):
    """In a notebook, Rich displays printed text itself."""
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    result = Result(title="Models", sentences=("One is better.",))
    assert "One is better." in str(result)
    assert "One is better." in repr(result)
