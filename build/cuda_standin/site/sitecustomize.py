"""Found by every Python process that ``python -m cuda_standin`` starts, before anything else is imported."""

import os
import sys

if os.environ.get("CUDA_STANDIN"):
    sys.path.insert(0, os.environ["CUDA_STANDIN_PACKAGE"])
    import cuda_standin

    cuda_standin.load_inherited()
    if os.environ.get("CUDA_STANDIN_VALUES"):
        from cuda_standin.values import Values

        Values().__enter__()  # for as long as the process lives
