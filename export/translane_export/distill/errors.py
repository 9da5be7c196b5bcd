"""What `translane distill` refuses or fails at."""

from __future__ import annotations

from translane_export.train.errors import TrainError


class DistillError(TrainError):
    """One sentence for whoever distills."""
