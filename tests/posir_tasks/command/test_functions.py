"""Functions of a user are loaded by name."""

import pytest

from posir_tasks.command.functions import load_function
from posir_tasks.errors import PosirError


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("json", "write module:function"),
        ("absent_module:f", "cannot be imported"),
        ("json:absent", "cannot be imported"),
        ("json:__name__", "is str, which cannot be called"),
    ],
)
def test_a_function_that_cannot_be_loaded_is_refused(reference: str, message: str):
    with pytest.raises(PosirError, match=message):
        load_function("--retriever", reference)
