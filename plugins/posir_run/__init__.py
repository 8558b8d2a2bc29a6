"""Run and plan many evaluation jobs: `posir run`."""
