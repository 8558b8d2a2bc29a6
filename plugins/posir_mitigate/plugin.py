"""References such as `all-MiniLM-L6-v2+chunks(128)`, and `posir mitigate`."""

from posir_tasks.plugin_api import REMEDY, Command, declare

posir_model_resolvers = declare("posir_mitigate.references:resolve_mitigated")
posir_commands = declare(
    Command(
        "mitigate",
        "posir_mitigate.api:mitigate",
        "Try every mitigation that needs no training.",
        REMEDY,
    )
)
