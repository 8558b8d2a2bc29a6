"""`posir build` and the study of translations."""

from posir_tasks.plugin_api import DATA, Command, declare

posir_commands = declare(
    Command("build", "posir_build.commands:app", "Build a dataset of questions about your documents.", DATA),
    Command("study rate-translations", "posir_build.api:rate_translations", "Rate translations by a judge.", DATA),
)
