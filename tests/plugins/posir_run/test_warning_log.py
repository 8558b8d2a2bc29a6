"""Each warning is shown once, whichever process it comes from."""

import logging

from posir_run import worker as warning_log
from posir_run.worker import show_warnings
from posir_tasks.plugin_api import Plugin, Plugins


def test_a_warning_is_shown_once_and_those_about_plugins_not_again(monkeypatch):
    refused, shown = Plugin("letters", "letters 1.0: letters", "no hook"), []
    monkeypatch.setattr(warning_log, "loaded_plugins", lambda: Plugins(None, (refused, Plugin("psi", "posir"))))
    with show_warnings(shown.append) as log:
        for _ in range(2):
            logging.getLogger("mteb").warning("%d domains", 2)
            logging.getLogger("mteb").info("nothing")
            log.show("from a worker")
            log.show("2 domains")
            log.show(refused.warning)
    logging.getLogger("mteb").warning("later")
    assert shown == ["2 domains", "from a worker"]
