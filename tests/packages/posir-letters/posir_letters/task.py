"""A task: letters from a harbour, and questions about their beginning, their middle and their
end.
"""

from posir_tasks import PositionTask
from posir_tasks.data.data import PositionData
from posir_tasks.data.task_metadata import build_metadata
from posir_tasks.data.texts import build_position_data
from posir_tasks.values.schemes import RelativePositions

REVISION = "1"
LETTERS = {
    "bell": "The bell was cast in copper by a smith from the hills. It rings twice at noon. At "
    "night a heron sleeps on it.",
    "crane": "Our crane lifts nine barrels at once. Its driver came from Ostrand by sledge. He "
    "keeps plums in the cabin.",
    "ferry": "The ferry leaves when the baker waves. It carries sheep on Mondays only. Its "
    "rudder was carved out of pear wood.",
    "light": "The lighthouse burns whale oil no longer. A clock from the old school turns its "
    "lamp. Nobody climbs it in fog.",
}
QUESTIONS = [
    ("What metal was the bell made of?", "bell", "cast in copper"),
    ("How often does the bell ring?", "bell", "twice at noon"),
    ("Which bird sleeps on the bell?", "bell", "a heron"),
    ("How many barrels can the crane lift?", "crane", "nine barrels"),
    ("How did the driver of the crane arrive?", "crane", "by sledge"),
    ("What fruit is in the cabin of the crane?", "crane", "plums"),
    ("When does the ferry leave?", "ferry", "when the baker waves"),
    ("On which day do sheep travel?", "ferry", "Mondays"),
    ("What is the rudder made of?", "ferry", "pear wood"),
    ("What did the lighthouse burn?", "light", "whale oil"),
    ("What turns the lamp?", "light", "A clock"),
    ("In what weather does nobody climb the lighthouse?", "light", "fog"),
]


class HarbourLetters(PositionTask):
    """Twelve questions about four letters."""

    # Three positions and one length: a handful of questions would leave most of PosIR's 20 bins by
    # four lengths empty.
    scheme = RelativePositions(bins=3, token_bounds=())
    metadata = build_metadata(
        "HarbourLetters",
        dataset="posir-letters",
        revision=REVISION,
        languages=["eng-Latn"],
        description="Twelve questions about four invented letters from a harbour.",
        license="cc0-1.0",
    )

    def read_subset(self, subset: str) -> PositionData:
        """Read the texts above."""
        return build_position_data(LETTERS, QUESTIONS, revision=REVISION)
