"""The Position Sensitivity Index, scores per position bin and per length bucket."""

from posir_psi.scores import psi

__all__ = ["psi"]
