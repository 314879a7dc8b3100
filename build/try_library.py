"""Uses the library of a wheel without the package, on a Python too old for it: python try_library.py WHEEL GOLDEN.

Every request of the golden file is sent; the answers must be those recorded.
"""

import ctypes
import json
import math
import os
import platform
import sys
import tempfile
import zipfile


def alike(a, b):
    """Equal, but for the last digits of numbers: processors round differently."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(alike(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(alike, a, b))
    if isinstance(a, float) or isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-9)
    return a == b


def main():
    """Load, ask, compare."""
    folder = tempfile.mkdtemp()
    with zipfile.ZipFile(sys.argv[1]) as wheel:
        path = wheel.extract("asrconfig_go/_core.so", folder)
    library = ctypes.CDLL(path, mode=os.RTLD_LAZY)
    library.ac_build_info.restype = ctypes.c_char_p
    library.ac_call.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p]
    with open(sys.argv[2]) as file:  # noqa: PTH123 - for Python 3.6 and newer
        pairs = json.load(file)
    for pair in pairs:
        request = json.dumps(pair["request"]).encode()
        answer, size = ctypes.c_void_p(), ctypes.c_size_t()
        if library.ac_call(request, len(request), ctypes.byref(answer), ctypes.byref(size)) != 0:
            sys.exit(f"the call failed: {request}")
        if not alike(json.loads(ctypes.string_at(answer, size.value).decode()), pair["answer"]):
            sys.exit(f"another answer than recorded: {request}")
    libc, info = " ".join(platform.libc_ver()), library.ac_build_info().decode()
    print(f"library alone: {libc}, Python {platform.python_version()}, {len(pairs)} plans as recorded, {info}")


if __name__ == "__main__":
    main()
