"""Uploads the trained model to the Hugging Face Hub."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from .._base.errors import NotFoundError
from .._base.hub_connection import offline, without_retries
from .._base.hub_downloads import TOKEN, explained
from .output_folder import MODEL_FILES

_LEFT_HERE = (
    "checkpoint-*/**", ".asrconfig/**", "runs/**", ".saving*/**", "asrconfig_monitor*.json", "training_args.bin",
)  # fmt: skip


def push_to_hub(trained: Any, repo: str | None = None, *, token: str | None = None, private: bool = True) -> str:
    """Upload the model of ``trained``, a Trainer or the folder that ``fine_tune`` wrote; returns a sentence about it.

    ``repo`` is ``"name"`` or ``"user/name"``, by default the folder's name; it is made if it is not there, ``private``
    by default. Checkpoints and logs stay here. ``token`` is by default the stored one; where there is none,
    nothing is done, and the returned sentence says so.

    Raises ``NotFoundError`` when the upload fails: what was trained stays in the folder.
    """
    from huggingface_hub import HfApi, get_token

    named = Path(trained if isinstance(trained, str | os.PathLike) else trained.args.output_dir)
    folder = named.resolve()
    token = token or get_token()
    if token is None:
        return f"not pushed to the Hub, as there is no token: {TOKEN}, then push_to_hub({str(named)!r})"
    if not any((folder / name).is_file() for name in MODEL_FILES):
        raise NotFoundError(f"{named} holds no saved model", "train to the end first, or trainer.save_model()")
    unreachable = offline()
    try:
        with without_retries(unreachable):
            api = HfApi(token=token)
            url = api.create_repo(repo or folder.name, private=private, exist_ok=True)
            api.upload_folder(repo_id=url.repo_id, folder_path=folder, ignore_patterns=list(_LEFT_HERE))
    except (OSError, ValueError, RuntimeError) as error:
        safe = f"the model is safe in {named}: push_to_hub({str(named)!r}) tries again"
        cause = explained(f"the repository {repo or folder.name!r}", error, safe, unreachable)
        raise NotFoundError(f"not pushed to the Hub: {cause.message}", cause.hint) from error
    return f"pushed to {url}" + " (private)" * private
