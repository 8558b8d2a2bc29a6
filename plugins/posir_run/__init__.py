"""Running and planning many evaluation jobs: `posir run`."""
