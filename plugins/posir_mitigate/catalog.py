"""All mitigations by name."""

from __future__ import annotations

from posir_mitigate.both_orders import BothOrders
from posir_mitigate.calibrated import Calibrated, CalibratedFirst, CalibratedMean
from posir_mitigate.chunks import Chunks
from posir_mitigate.late_chunks import LateChunks, LongLateChunks
from posir_mitigate.method import Mitigation

METHODS: dict[str, type[Mitigation]] = {
    method.NAME: method
    for method in (Chunks, LateChunks, LongLateChunks, Calibrated, CalibratedFirst, CalibratedMean, BothOrders)
}
