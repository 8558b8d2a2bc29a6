"""Further fields of requests to an endpoint, from the settings of the run."""

from __future__ import annotations

import os

from posir_tasks.base.settings_file import read_overrides
from posir_tasks.models.references import RequestFields

#: Fields of the requests to an endpoint for queries and for documents, `KEY=VALUE`, one a line.
QUERY_FIELD_VARIABLE = "POSIR_QUERY_FIELD"
PASSAGE_FIELD_VARIABLE = "POSIR_PASSAGE_FIELD"
#: The variable of each setting.
REQUEST_FIELDS = {"query_field": QUERY_FIELD_VARIABLE, "passage_field": PASSAGE_FIELD_VARIABLE}


def find_request_fields() -> RequestFields:
    """Read the fields of the run for requests to an endpoint.

    Raises:
        PosirError: A field is not `KEY=VALUE`.
    """
    fields = []
    for name, variable in REQUEST_FIELDS.items():
        lines = filter(str.strip, os.environ.get(variable, "").splitlines())
        fields.append(read_overrides(lines, f"--{name.replace('_', '-')}"))
    return RequestFields(*fields)
