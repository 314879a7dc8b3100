"""Tasks on a cluster that is there, and their results in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from .._base.choices import Cluster
from .._base.errors import UnsupportedError

Task = Callable[[int, int], Any]
"""Of a part's index and the number of parts."""

_PARTS = 4  # per machine: balances load and limits the loss of a machine, but each part lists the source again


def _by_ray(task: Task) -> Iterator[Any]:
    """On the cluster that this process is connected to, that RAY_ADDRESS names or that runs here; else on this machine.

    A task takes a machine, as the scanner reads with all cores.
    """
    try:
        import ray
    except ImportError as error:
        raise UnsupportedError("a scan by ray needs the package ray", "pip install ray") from error
    if not ray.is_initialized():
        ray.init(log_to_driver=False)
    cores = [node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]]
    cores = [count for count in cores if count] or [1]  # a head alone: its autoscaler starts the others
    count = _PARTS * len(cores)
    remote = ray.remote(num_cpus=min(cores), scheduling_strategy="SPREAD")(lambda index: task(index, count))
    return map(ray.get, [remote.remote(index) for index in range(count)])


def _by_spark(task: Task) -> Iterator[Any]:
    """In the session of this process, or a new one, configured as by spark-submit.

    What executors send is kept on their disks until the driver takes it, a partition after the other.
    """
    try:
        from pyspark import StorageLevel
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise UnsupportedError("a scan by spark needs the package pyspark", "pip install pyspark") from error
    context = SparkSession.builder.getOrCreate().sparkContext
    count = context.defaultParallelism
    parts = context.parallelize(range(count), count).map(lambda index: task(index, count))
    parts.persist(StorageLevel.DISK_ONLY).count()
    return parts.toLocalIterator()  # type: ignore[no-any-return]


MAPS: dict[Cluster, Callable[[Task], Iterator[Any]]] = {"ray": _by_ray, "spark": _by_spark}
