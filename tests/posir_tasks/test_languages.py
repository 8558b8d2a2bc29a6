"""The table of languages: what is in it fits mteb, and a wrong row is refused with what to do."""

import re
import subprocess
import sys

import pytest

from posir_tasks.errors import PosirError
from posir_tasks.languages import LANGUAGES, PIVOT, Language, check_iso_codes, unique_languages

FINNISH = Language("Finnish", "fin-Latn")
ENDING = re.escape('A row of LANGUAGES is Language("Finnish", "fin-Latn").') + "$"


def test_the_table_fits_mteb():
    check_iso_codes([*LANGUAGES, FINNISH])
    assert PIVOT.code == "eng-Latn"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "Finnish"}, "code is missing; expected an ISO 639-3 code"),
        ({"code": "fin-Latn"}, "name is missing; expected an English name"),
        ({"name": "Finnish", "code": None}, "code is missing"),
        ({"name": "Finnish", "code": "fi"}, "code 'fi' is not an ISO 639-3 code, a hyphen and an ISO 15924 code"),
        ({"name": "Finnish", "code": "fin_Latn"}, "code 'fin_Latn' is not"),
        ({"name": "Finnish", "code": "fin-latn"}, "code 'fin-latn' is not"),
        ({"name": "Finnish", "code": "fin-Latn\n"}, "code 'fin-Latn\\n' is not"),
        ({"name": "finnish", "code": "fin-Latn"}, "name 'finnish' is not an English name of letters A to Z"),
        ({"name": "Old Finnish", "code": "fin-Latn"}, "name 'Old Finnish' is not"),
        ({"name": "Finnish-English", "code": "fin-Latn"}, "name 'Finnish-English' is not"),
        ({"name": 1, "code": "fin-Latn"}, "name 1 is not"),
    ],
)
def test_an_invalid_row_is_refused_with_the_expected_form(fields, message):
    with pytest.raises(PosirError, match=r"^posir_tasks/languages\.py: Language\(.*" + re.escape(message) + ".*" + ENDING):
        Language(**fields)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (Language("Suomi", "eng-Latn"), "the code 'eng-Latn' is a duplicate; remove one of the rows"),
        (Language("English", "fin-Latn"), "the name 'English' is a duplicate"),
        (LANGUAGES[3], "the name 'German' is a duplicate"),
    ],
)
def test_a_duplicate_is_refused_and_the_later_row_named(row, message):
    named = re.escape(f"Language({row.name!r}, {row.code!r}): {message}")
    with pytest.raises(PosirError, match=named + ".*" + ENDING):
        unique_languages(*LANGUAGES, FINNISH, row)


@pytest.mark.parametrize(
    ("code", "message"),
    [("qqq-Latn", "ISO 639-3 has no code 'qqq'"), ("fin-Lant", "ISO 15924 has no code 'Lant'"), ("eng-Code", "'Code'")],
)
def test_a_code_that_no_standard_has_is_refused(code, message):
    with pytest.raises(PosirError, match=re.escape(message) + ".*" + ENDING):
        check_iso_codes([FINNISH, Language("Finnish", code)])


def test_the_table_costs_no_import_of_mteb():
    code = "import sys, posir_tasks.languages; sys.exit('mteb' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
