"""A job script for Slurm."""

from __future__ import annotations

import shlex

from .cluster_job import NAME, ClusterJob

_NOTICE_S = 120  # before the time limit; Slurm may send the signal up to a minute earlier


def slurm_script(job: ClusterJob) -> str:
    """A script for ``sbatch``: torchrun on each node, requeued when it is preempted or its time is over.

    Partition, account and time limit are options of sbatch, not known here.
    """
    options = [f"--job-name={NAME}", f"--nodes={job.machines}", "--ntasks-per-node=1", f"--cpus-per-task={job.cores}"]
    options += [f"--gpus-per-node={job.gpus}"] if job.gpus else []
    options += ["--requeue", "--open-mode=append", f"--signal=B:USR1@{_NOTICE_S}"]
    return f"""#!/bin/bash
{chr(10).join(f"#SBATCH {option}" for option in options)}
# sbatch --partition=NAME --time=04:00:00 {shlex.quote(str(job.folder / "slurm.sbatch"))}
# When the time is nearly over, the job goes back to the queue, as Slurm does with preempted jobs; the script resumes.
trap 'scontrol requeue "$SLURM_JOB_ID"; wait' USR1
FIRST_MACHINE=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export FIRST_MACHINE
srun --cpus-per-task={job.cores} --kill-on-bad-exit=1 sh {shlex.quote(str(job.folder / "torchrun.sh"))} "$@" &
wait "$!"
"""
