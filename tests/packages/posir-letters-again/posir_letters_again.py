"""Gives four tasks, three of them under names that others have: another package, posir, and
mteb.
"""

from posir_tasks.plugin_api import hookimpl


@hookimpl
def posir_task_classes():
    from posir_tasks import PositionTask
    from posir_tasks.data.task_metadata import build_metadata
    from posir_tasks.data.texts import build_position_data
    from posir_tasks.values.schemes import RelativePositions

    class Bells(PositionTask):
        scheme = RelativePositions()
        metadata = build_metadata(
            "HarbourBells", dataset="posir-letters-again", revision="1", languages=["eng-Latn"]
        )

        def read_subset(self, subset):
            return build_position_data(
                {"bell": "A bell of copper."}, [("What metal?", "bell", "copper")], revision="1"
            )

    def renamed(name):
        metadata = Bells.metadata.model_copy(update={"name": name})
        return type(f"Bells{name}", (Bells,), {"__module__": __name__, "metadata": metadata})

    return [renamed("HarbourLetters"), renamed("PosIR-Mini"), renamed("NFCorpus"), Bells]
