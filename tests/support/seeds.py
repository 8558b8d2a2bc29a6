"""PyTorch notes the stack at each seed for a device that it has not initialized, and mteb sets
three with every task: here it notes none, which makes all tasks and benchmarks of mteb in a quarter
of the time.
"""

from types import SimpleNamespace

import torch

for device in (torch.cuda, torch.xpu, torch.mtia):
    device.traceback = SimpleNamespace(format_stack=list)  # type: ignore[attr-defined]
