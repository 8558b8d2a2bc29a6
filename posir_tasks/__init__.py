"""PosIR: position-aware retrieval tasks for mteb.

Importing this package makes mteb know the tasks, whether mteb is imported before or after it. Where the start-up hook is
in use (see `posir doctor`) no import is needed.
"""

import posir_startup

__version__ = "0.1.0"

posir_startup.install()
