"""The commands `posir build` and `posir study rate-translations`."""

from posir_tasks.plugin_api import DATA, Command, declare

posir_commands = declare(
    Command("build run", "posir_build.api:build", "Run the stages of a build.", DATA),
    Command(
        "build sample", "posir_build.api:build_sample", "Write a sheet for a human check.", DATA
    ),
    Command(
        "build agreement",
        "posir_build.api:build_agreement",
        "Summarize the judgments in sheets.",
        DATA,
    ),
    Command(
        "study rate-translations",
        "posir_build.api:rate_translations",
        "Let a judge rate translations.",
        DATA,
    ),
)
