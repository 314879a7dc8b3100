"""Commands, options, packages, settings and functions that hints name exist."""

from __future__ import annotations

import argparse
import ast
import dataclasses
import inspect
import re
import sys
from collections.abc import Iterator
from functools import cache

import pytest

from asrconfig_go.cli.main import _parser
from hint_sources import PACKAGE, ROOT, Hint, all_hints

# Words of other projects that hints name, with where they are from.
OTHERS = {
    "torch": "argmax cpu detach item numel parameters is_available requires_grad expandable_segments no_grad "
    "multiprocessing_context lr_scheduler",
    "transformers": "freeze_feature_encoder from_pretrained save_pretrained to_json_string to_dict use_reentrant "
    "generation_config cached_file ctc_zero_infinity input_values input_features model_type training_args save_model "
    "BitsAndBytesConfig load_in_8bit llm_int8_skip_modules lm_head resize_token_embeddings ignore_mismatched_sizes "
    "vocab_size decoder_input_ids",
    "datasets": "cast_column remove_columns map Audio sampling_rate",
    "peft": "get_peft_model LoraConfig task_type target_modules intermediate_dense output_dense",
    "accelerate": "dispatch_batches split_batches Accelerator mixed_precision",
    "this package": "asrconfig_go token_mean",
    "yours": "MyModel",
    "python": "partial sum isinstance lambda fields start_method bytes",
    "PyTorch's allocator": "max_split_size_mb",
    "nvidia-smi": "compute_cap",
    "systemd-run": "MemoryMax",
}
ENVIRONMENT = {
    "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING", "LD_BIND_NOW",
    "HF_TOKEN", "TENSORBOARD_LOGGING_DIR",
}  # fmt: skip
OTHER_OPTIONS = {  # by the program in front of them
    "--max-restarts": "torchrun", "--shm-size": "docker", "--query-gpu": "nvidia-smi", "--what": "systemd-inhibit",
    "--user": "systemd-run", "--scope": "systemd-run", "--force-reinstall": "pip", "--index-url": "pip",
}  # fmt: skip


def parsers() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in _parser()._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()


@cache
def known() -> frozenset[str]:
    """Every name that the package declares, and the settings of transformers."""
    transformers = pytest.importorskip("transformers")
    found = set(" ".join(OTHERS.values()).split())
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            found.update(_declared(node))
        found.add(path.stem)
    for kind in (transformers.TrainingArguments, transformers.Seq2SeqTrainingArguments):
        found.update(field.name for field in dataclasses.fields(kind))
    found.update(inspect.signature(transformers.Trainer.__init__).parameters)
    found.update(name for name in dir(transformers.Trainer) if not name.startswith("__"))
    found.update(transformers.PreTrainedTokenizerBase.SPECIAL_TOKENS_ATTRIBUTES)
    # Keyword arguments that only its documentation declares.
    found.update(re.findall(r"^ +(\w+) \(", transformers.AutoModel.from_pretrained.__doc__, re.MULTILINE))
    return frozenset(found)


def _declared(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        yield node.target.id
    elif isinstance(node, ast.Dict):  # keyword arguments that are handed on by name
        yield from (key.value for key in node.keys if isinstance(key, ast.Constant) and isinstance(key.value, str))


HINTS = all_hints()


def ids(hint: Hint) -> str:
    return f"{hint.file.split('/')[-1]}: {hint.text[:50]}"


@pytest.mark.parametrize("hint", [h for h in HINTS if re.search(r"asrconfig [a-z]|--[a-z]", h.text)], ids=ids)
def test_commands_and_options_exist(hint: Hint) -> None:
    commands = dict(parsers())
    for name in re.findall(r"asrconfig ([a-z][a-z-]+)", hint.text):
        assert name in commands, hint
    options = {option for each in commands.values() for option in each._option_string_actions}
    for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z]", hint.text.replace("--{}", "")):
        program = OTHER_OPTIONS.get(option)
        assert option in options or (program and program in hint.text), (option, hint)


@pytest.mark.parametrize("hint", [h for h in HINTS if "pip install" in h.text], ids=ids)
def test_packages_and_extras_exist(hint: Hint) -> None:
    tomllib = pytest.importorskip("tomllib") if sys.version_info >= (3, 11) else pytest.skip("tomllib is newer")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    offered = {re.match(r"[\w-]+", each)[0] for rows in extras.values() for each in rows}  # type: ignore[index]
    given = re.findall(r"pip install (?:-U |-e |--force-reinstall )?[\"']?([\w{}.-]+)(?:\[(\w+)\])?", hint.text)
    assert given, hint
    for package, extra in given:
        if package == "asrconfig-go":
            assert not extra or extra in extras, hint
        elif package not in (".", "{}"):
            assert package in offered | {"lightning", "shtab", "pyarrow"}, hint


@pytest.mark.parametrize("hint", [h for h in HINTS if re.search(r"\w_\w|\w\(|\w=", h.text)], ids=ids)
def test_functions_settings_and_variables_exist(hint: Hint) -> None:
    text = re.sub(r"[\w./{}-]+\.(py|json|md|bin|csv|jsonl|lst|scp)\b", "", hint.text)  # names of files
    text = re.sub(r'"[^"]*"|facebook/\S+', "", text)  # values
    names = set(re.findall(r"(?<![\w-])([a-z]\w*_\w+)\b", text)) | set(re.findall(r"\b([A-Za-z]\w+)\((?![s)])", text))
    names |= set(re.findall(r"\b([a-z]\w+)=", re.sub(r"--\S+", "", text)))
    for name in names - {"x"}:
        assert name in known(), (name, hint)
    for name in re.findall(r"\b[A-Z][A-Z]+_[A-Z_]+[A-Z]\b", text):
        assert name in ENVIRONMENT, (name, hint)


@pytest.mark.parametrize("hint", [h for h in HINTS if "docs/" in h.text], ids=ids)
def test_pages_exist(hint: Hint) -> None:
    assert all((ROOT / page).exists() for page in re.findall(r"docs/[\w/.-]+\.md", hint.text)), hint
