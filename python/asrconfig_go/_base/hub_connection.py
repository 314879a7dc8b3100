"""Checks whether the Hugging Face Hub can be reached, before its client retries for minutes."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit


def offline() -> bool:
    """Whether the Hub's client is set to offline mode, or the Hub's name does not resolve."""
    try:
        from huggingface_hub import constants
    except ImportError:
        return False
    if constants.HF_HUB_OFFLINE:
        return True
    if any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")):
        return False  # the proxy knows names
    address = urlsplit(constants.ENDPOINT)
    try:
        socket.getaddrinfo(address.hostname, address.port or 443)
    except OSError:
        return True
    return False


@contextlib.contextmanager
def without_retries(unreachable: bool) -> Iterator[None]:
    """Let the Hub's client take what is in its cache, and fail at once otherwise, where the Hub is ``unreachable``."""
    if not unreachable:
        yield
        return
    before = [(module, module.HF_HUB_OFFLINE) for module in _modules()]
    try:
        for module, _ in before:
            module.HF_HUB_OFFLINE = True
        yield
    finally:
        for module, value in before:
            module.HF_HUB_OFFLINE = value


def _modules() -> Iterator[Any]:
    for name in ("huggingface_hub.constants", "datasets.config"):
        module = sys.modules.get(name)
        if module is not None and hasattr(module, "HF_HUB_OFFLINE"):
            yield module
