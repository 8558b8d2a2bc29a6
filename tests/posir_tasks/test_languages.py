"""The table of languages says what the papers report, and costs nothing to import."""

import subprocess
import sys

from mteb.languages import ISO_TO_LANGUAGE, ISO_TO_SCRIPT

from posir_tasks.languages import LANGUAGES, PIVOT


def test_the_table_has_the_ten_languages_of_the_paper():
    assert len({language.name for language in LANGUAGES}) == len({language.code for language in LANGUAGES}) == 10
    assert sum(language.cross_lingual_in_paper for language in LANGUAGES) == 8
    assert all(language.code[:3] in ISO_TO_LANGUAGE and language.code[4:] in ISO_TO_SCRIPT for language in LANGUAGES)
    assert PIVOT.code == "eng-Latn"


def test_the_tables_cost_no_import_of_mteb():
    code = "import sys, posir_tasks.languages as c; c.check_code('deu-Latn'); sys.exit('mteb' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
