"""What a cluster job needs of a plan and of the files for torchrun."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .._base.errors import InvalidArgumentError
from ..plan.plan_record import PlanRecord

NAME = "asrconfig"


@dataclass(frozen=True)
class ClusterJob:
    """``machines`` that run ``folder/torchrun.sh``, and the folder ``output`` of the script's checkpoints."""

    config: PlanRecord
    folder: Path
    machines: int
    max_restarts: int
    command: tuple[str, ...]
    """The script and its arguments."""
    environment: Mapping[str, str]
    output: str

    @property
    def processes(self) -> int:
        """On each machine, one for each GPU."""
        return self.config.device_count // self.machines

    @property
    def gpus(self) -> int:
        """On each machine."""
        return self.processes if self.config.gpu_name else 0

    @property
    def cores(self) -> int:
        """On each machine: the loaders' workers, and the processes that train."""
        return self.processes * (self.config.dataloader_num_workers + 1)

    def relative(self) -> str:
        """The folder below the working folder, which another machine has under another name."""
        name = os.path.relpath(self.folder)
        if name.startswith(os.pardir):
            raise InvalidArgumentError(
                f"the folder {self.folder} is not below the working folder {Path.cwd()}, which the job takes along",
                "write to a folder below it, such as launch",
            )
        return name
