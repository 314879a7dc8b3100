"""Variables that must be there before CUDA starts: by the name that torch reads, and never over the user's value."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from asrconfig_go.errors import InvalidArgumentError
from asrconfig_go.plan import Applied, TooLateWarning, environment
from asrconfig_go.predict.memory_settings import NEW, OLD, alloc_conf_names, allocator_in_force, parse_alloc_conf
from locations import HELPERS, PYTHON
from training_fixtures import make_plan

NAMES = (NEW, OLD, "TOKENIZERS_PARALLELISM", "CUBLAS_WORKSPACE_CONFIG")
EXPANDABLE = "expandable_segments:True"


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable is set, torch reads both names, and CUDA has not started."""
    for name in NAMES:
        monkeypatch.setenv(name, "")  # so that it is put back afterwards, whatever the code under test does
        del os.environ[name]
    monkeypatch.setattr(environment, "alloc_conf_names", lambda: (NEW, OLD))
    monkeypatch.setattr(environment, "cuda_started", lambda: False)


def applied(warns: type[Warning] | None = None, /, **changes: Any) -> Applied:
    """What ``apply`` did; the warning it must give, or none."""
    plan = make_plan(**changes)
    if warns is not None:
        with pytest.warns(warns) as caught:
            done = plan.apply(backends=False)
        assert [w.filename for w in caught] == [__file__]
        return done
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return plan.apply(backends=False)


def test_allocator_settings_under_the_preferred_name() -> None:
    done = applied(alloc_conf=EXPANDABLE)
    assert os.environ[NEW] == EXPANDABLE
    assert OLD not in os.environ
    assert (done[NEW].state, done[NEW].value) == ("done", EXPANDABLE)
    again = applied(alloc_conf=EXPANDABLE)
    assert (again[NEW].state, os.environ[NEW]) == ("kept", EXPANDABLE)


def test_older_torch_gets_the_older_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "alloc_conf_names", lambda: (OLD,))
    monkeypatch.setenv(NEW, "max_split_size_mb:64")  # which it does not read
    done = applied(alloc_conf=EXPANDABLE)
    assert parse_alloc_conf(os.environ[OLD]) == {"expandable_segments": "True", "max_split_size_mb": "64"}
    assert f"does not read {NEW}" in done[OLD].why


@pytest.mark.parametrize("name", [NEW, OLD])
def test_the_user_s_keys_win(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = "roundup_power2_divisions:[256:1,512:2,>:4], expandable_segments:False"
    monkeypatch.setenv(name, theirs)
    done = applied(alloc_conf=f"{EXPANDABLE},garbage_collection_threshold:0.8")
    assert parse_alloc_conf(os.environ[name]) == {
        "expandable_segments": "False",
        "garbage_collection_threshold": "0.8",
        "roundup_power2_divisions": "[256:1,512:2,>:4]",
    }
    assert [other for other in (NEW, OLD) if other in os.environ] == [name]
    assert done[name].why == "your expandable_segments:False wins over the plan's True"


def test_both_names_set_are_both_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NEW, "max_split_size_mb:64")
    monkeypatch.setenv(OLD, "max_split_size_mb:32")
    applied(alloc_conf=EXPANDABLE)
    assert parse_alloc_conf(os.environ[NEW]) == {"expandable_segments": "True", "max_split_size_mb": "64"}
    assert parse_alloc_conf(os.environ[OLD]) == {"expandable_segments": "True", "max_split_size_mb": "32"}


def test_what_cannot_be_read_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NEW, "nonsense")
    assert applied(UserWarning, alloc_conf=EXPANDABLE)[NEW].state == "not done"
    assert os.environ[NEW] == "nonsense"
    with pytest.raises(InvalidArgumentError, match="alloc_conf = 'expandable'"):
        applied(alloc_conf="expandable")


def test_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "cuda_started", lambda: True)
    done = applied(TooLateWarning, alloc_conf=EXPANDABLE)
    assert (done[NEW].state, done.not_done) == ("not done", (done[NEW],))
    assert "restart the process (in a notebook, the kernel)" in done[NEW].why
    assert NEW not in os.environ
    monkeypatch.setenv(NEW, EXPANDABLE)  # as set before CUDA started
    assert applied(alloc_conf=EXPANDABLE)[NEW].state == "kept"


@pytest.mark.parametrize(("budget", "ends"), [(12, "which still fits"), (10.5, "micro-batches may have to be split")])
def test_too_late_says_what_it_costs(monkeypatch: pytest.MonkeyPatch, budget: float, ends: str) -> None:
    monkeypatch.setattr(environment, "cuda_started", lambda: True)
    gib = 1 << 30
    sizes = {"parameters": 2, "activations": 6, "cached": 1, "context": 1}
    parts = [{"name": name, "bytes": size * gib} for name, size in sizes.items()]
    plan = {"predicted_bytes": 10 * gib, "budget_bytes": int(budget * gib), "memory_parts": parts}
    reason = applied(TooLateWarning, alloc_conf=EXPANDABLE, **plan)[NEW].why
    assert f"about 0.72 GiB more: 10.72 GiB of the {budget:.2f} GiB" in reason, "a tenth less a hundredth of 8 GiB"
    assert ends in reason
    assert "more:" not in applied(TooLateWarning, alloc_conf="garbage_collection_threshold:0.8", **plan)[NEW].why


def test_the_allocator_itself_is_chosen_when_torch_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", object())
    applied(TooLateWarning, alloc_conf="backend:cudaMallocAsync")
    assert NEW not in os.environ


def test_tokenizers_only_beside_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "TOKENIZERS_PARALLELISM"
    assert applied(dataloader_num_workers=2)[name].state == "done"
    assert os.environ[name] == "false"
    monkeypatch.setenv(name, "true")
    assert applied(dataloader_num_workers=2)[name].state == "kept"
    assert os.environ[name] == "true"


def test_cublas_of_a_deterministic_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "CUBLAS_WORKSPACE_CONFIG"
    assert applied(deterministic=True)[name].state == "done"
    assert os.environ[name] == ":16:8"
    monkeypatch.setenv(name, ":4096:8")
    assert applied(deterministic=True)[name].state == "kept"
    monkeypatch.setenv(name, ":0:0")
    assert applied(UserWarning, deterministic=True)[name].state == "not done"
    assert os.environ[name] == ":0:0"
    del os.environ[name]
    monkeypatch.setattr(environment, "cuda_started", lambda: True)
    applied(TooLateWarning, deterministic=True)
    assert os.environ[name] == ":16:8"  # torch itself looks at it in every product


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("", {}),
        ("a:1", {"a": "1"}),
        (" a : 1 , b:[x:1,y:2],", {"a": "1", "b": "[x:1,y:2]"}),
        ("a", None),
        ("a:", None),
        (":1", None),
        ("a:[1", None),
    ],
)
def test_reading_allocator_settings(text: str, pairs: dict[str, str] | None) -> None:
    assert parse_alloc_conf(text) == pairs


def test_names_by_the_library_that_reads_them(tmp_path: Path) -> None:
    def library(folder: str, **files: bytes) -> tuple[str, ...]:
        (tmp_path / folder).mkdir()
        for name, content in files.items():
            (tmp_path / folder / f"lib{name}.so").write_bytes(content)
        return alloc_conf_names(tmp_path / folder)

    new, old = NEW.encode(), OLD.encode()
    both = b"\x7fELF\0" + old + b"\0" + new + b"\0"
    assert library("newer", c10=both, c10_cuda=both) == (NEW, OLD)
    # torch 2.9: CUDA's own library reads the older name alone, and only speaks of the newer one
    only_old = b"\0" + old + b"\0" + old + b" is deprecated, use " + new + b" instead\0"
    assert library("between", c10=both, c10_cuda=only_old) == (OLD,)
    assert library("older", c10=b"\0", c10_cuda=b"\0" + old + b"\0") == (OLD,)
    assert library("without_cuda", c10=both) == (NEW, OLD)
    assert library("nothing") == (NEW,)


def test_the_name_is_read_by_the_installed_torch() -> None:
    """By torch itself: the settings that it reports once it has read the environment."""
    torch = pytest.importorskip("torch")
    if not hasattr(torch._C, "_accelerator_getAllocatorSettings"):
        pytest.skip("this torch does not report its allocator settings")
    script = (
        "from training_fixtures import make_plan\n"
        "import torch\n"  # imported before, as in most scripts
        "make_plan(alloc_conf='expandable_segments:True').apply(backends=False)\n"
        "print(torch._C._accelerator_getAllocatorSettings())"
    )
    environ = {k: v for k, v in os.environ.items() if k not in NAMES}
    environ["PYTHONPATH"] = os.pathsep.join([str(PYTHON), str(HELPERS), environ.get("PYTHONPATH", "")])
    done = subprocess.run([sys.executable, "-c", script], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == EXPANDABLE, done.stderr


def test_the_record_is_readable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NEW, "expandable_segments:<b>False</b>")
    done = applied(alloc_conf=EXPANDABLE, dataloader_num_workers=2)
    lines = repr(done).splitlines()
    assert lines[0] == "Applied: 1 done, 0 not done"
    assert re.match(r"  kept      environment: PYTORCH_ALLOC_CONF = expandable_segments", lines[1])
    assert "<b>False" not in done._repr_html_()
    assert "PYTORCH_ALLOC_CONF" in done._repr_html_()
    with pytest.raises(KeyError):
        done["PATH"]


@pytest.mark.parametrize(
    ("set_to", "in_force"),
    [
        ({}, ""),
        ({NEW: EXPANDABLE}, EXPANDABLE),
        ({OLD: "max_split_size_mb:128"}, "max_split_size_mb:128"),
        ({NEW: "backend:cudaMallocAsync"}, ""),
    ],
)
def test_the_settings_in_force_are_those_that_torch_reads(
    set_to: dict[str, str], in_force: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in set_to.items():
        monkeypatch.setenv(name, text)
    assert allocator_in_force() == in_force
