"""momentd's optimizers for PyTorch.

    import momentd.torch

    optimizer = momentd.torch.AdamW(model.parameters(), lr=1e-3, job="my-run", module=model)

They are torch.optim.Optimizers with torch's arguments; the state lives in the daemon. Results equal
those of torch.optim.AdamW and Adam bit for bit (16-bit parameters: those of torch's optimizer on
fp32 copies of them).
"""

from momentd.errors import Error, ForkedError, Rewound
from momentd.torch.optimizer import Adam, AdamW
from momentd.torch.resuming import resume
from momentd.torch.trainer_state import TrainerState

__all__ = ["Adam", "AdamW", "Error", "ForkedError", "Rewound", "TrainerState", "resume"]
