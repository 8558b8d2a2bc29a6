"""Types of records: JSON objects, settings, keyword arguments and rows of charts."""

from collections.abc import Mapping
from typing import Any, TypeAlias

#: Values by field.
Record: TypeAlias = dict[str, Any]
#: Values by field that a function only reads.
Fields: TypeAlias = Mapping[str, Any]
