"""The explanation of a plan: what it says, in which form, and what it keeps out."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pytest

import asrconfig_go as ac
from asrconfig_go.data import DatasetProfile
from asrconfig_go.data.data_records import BadFile
from asrconfig_go.errors import InvalidArgumentError, NotFoundError
from asrconfig_go.plan import Decision, Explanation
from asrconfig_go.plan.plan_records import MemoryPart
from asrconfig_go.predict import HardwareProfile
from html_checks import pictures, tags
from locations import REPOSITORY
from whole_plans import GIB, audio, heavy_tail, published_plan, read_speech, shared_gpu, two_gpus, whole_plan


@pytest.fixture(scope="module")
def speech() -> DatasetProfile:
    return audio(read_speech(1))


@pytest.fixture
def plan() -> ac.TrainingConfig:
    return published_plan()


@pytest.fixture
def explanation(plan: ac.TrainingConfig, speech: DatasetProfile) -> Explanation:
    return Explanation(whole_plan(plan), HardwareProfile.detect("T4"), speech, ac.profile_model("xls-r-300m"))


def first_screen(explanation: Explanation) -> dict[str, str]:
    """The settings by their names."""
    _, _, screen = explanation.brief(300).partition("Optimized Settings\n")
    rows = [line.strip().split("  ", 1) for line in screen.splitlines() if line.startswith("  ")]
    return {name: value.strip() for name, value in rows}


def test_the_first_screen_says_only_what_is_known(plan: ac.TrainingConfig, explanation: Explanation) -> None:
    assert first_screen(Explanation(plan)) == {
        "Clips a step": "32 (per_device_train_batch_size=8, gradient_accumulation_steps=4)",
        "Micro-batches": "8 of up to 8 s",
        "Precision": "float16 (fp16=True)",
        "Gradient checkpointing": "on (gradient_checkpointing=True)",
        "Memory": "8.1 of 15.0 GiB (54 %) on Tesla T4",
        "Time": "not predicted for this plan",
    }
    whole = first_screen(explanation)
    assert whole["Clips a step"].startswith("32 of similar length (per_device_train_batch_size=32,")
    assert whole["Time"] == "an epoch 7.2 min (4.3–13), 3 epochs 22 min (13–38)"
    assert whole["Cost"] == "0.13 US$ (0.078–0.23)"
    cpu = first_screen(Explanation(dataclasses.replace(plan, gpu_name="", gpu_memory_bytes=None, fp16=False)))
    assert cpu["Precision"] == "float32 (fp16=False, bf16=False)"
    assert cpu["Memory"] == "8.1 GiB of RAM, before your changes" and cpu["Time"] == "not predicted for a CPU"


def test_the_first_screen_fits_a_terminal(explanation: Explanation) -> None:
    lines = explanation.brief().splitlines()
    assert max(map(len, lines)) <= 80 and lines[0].startswith("Tesla T4")
    assert explanation.brief(profiles=False).splitlines()[0] == "Optimized Settings"
    assert repr(explanation.config) == Explanation(explanation.config).brief()


def test_unequal_gpus_have_their_shares(plan: ac.TrainingConfig) -> None:
    shared = Explanation(two_gpus(plan))
    assert first_screen(shared)["Clips a step"].startswith("22 + 10 = 32 of similar length (")
    text = str(shared)
    assert "  0    NVIDIA L4  22            7            17.6 GiB  19.1 GiB" in text.splitlines()
    assert "NVIDIA L4" in shared._repr_html_()
    equal = dataclasses.replace(plan, device_count=2, devices=(plan.devices[0], plan.devices[0]))
    step = first_screen(Explanation(equal))["Clips a step"]
    assert step == "64 (per_device_train_batch_size=8, gradient_accumulation_steps=4, on 2 GPUs)"


def test_text_tells_all_sections_within_110_columns(explanation: Explanation) -> None:
    text = str(explanation)
    heads = ["policy fastest", "Hardware and model", "Data", "  6 length buckets", "Memory of a device"]
    heads += ["Times (estimate", "Decisions", "  Batch and memory", "  Precision and kernels", "  Data and loader"]
    heads += ["  Optimizer", "  Other", "Alternatives", "Cautions"]
    places = [text.index("\n" + head) for head in heads]
    assert places == sorted(places)
    assert max(map(len, text.splitlines())) <= 110
    lines = [line.strip() for line in text.splitlines()]
    assert ["0–4.2", "s", "520", "26"] in [line.split() for line in lines]
    assert "longer than 20 s: left out" in lines
    assert "instead of on: 1.3× faster" in lines
    assert any(line.startswith("published") and line.endswith("48 % slower") for line in lines)
    assert any(line.startswith("float32") and " no " in line for line in lines)
    assert any(line.startswith("worst order") and "12.40 GiB" in line for line in lines)
    assert "Time                    an epoch 7.2 min (4.3–13), 3 epochs 22 min (13–38)" in lines


def test_memory_without_parts_and_with_others_on_the_gpu(plan: ac.TrainingConfig) -> None:
    assert Explanation(plan).to_json()["memory"]["others_bytes"] == 0
    hardware = shared_gpu(HardwareProfile.detect("T4"), 5.0)
    shared = Explanation(plan, hardware)
    memory = shared.to_json()["memory"]
    assert [part["name"] for part in memory["parts"]] == ["model and optimizer", "activations"]
    assert sum(part["bytes"] for part in memory["parts"]) == memory["peak_bytes"] == plan.predicted_bytes
    assert memory["others_bytes"] == 5 * GIB
    assert "in use already" in str(shared) and "in use already" in shared._repr_html_()
    mine = dataclasses.replace(hardware.gpus[0].processes[0], pid=os.getpid())
    own = dataclasses.replace(hardware, gpus=(dataclasses.replace(hardware.gpus[0], processes=(mine,)),))
    assert Explanation(plan, own).to_json()["memory"]["others_bytes"] == 0


def test_html_is_whole_themed_and_loads_nothing(explanation: Explanation) -> None:
    page = explanation._repr_html_()
    parser = tags(page)
    assert not {"script", "link", "img", "iframe", "object", "base"} & set(parser.seen)
    for reference in ("http:", "https:", "url(", "@import", "src=", "href="):
        assert reference not in page.replace("http://www.w3.org/2000/svg", ""), reference
    style = page[page.index("<style>") + 7 : page.index("</style>")]
    for theme in (
        "prefers-color-scheme:dark",
        '[data-jp-theme-light="false"]',
        "html[theme=dark]",
        ".vscode-dark",
        "print",
    ):
        assert theme in style
    for rule in style.replace("@media (prefers-color-scheme:dark){", "").replace("@media print{", "").split("}"):
        for selector in rule.split("{")[0].split(","):
            if selector.strip() and not selector.startswith("@media"):
                assert ".asrconfig.asrconfig" in selector, selector
    drawn = pictures(page)
    assert len(drawn) == 2
    for svg in drawn:
        assert svg.get("aria-label")
        assert any(child.tag.endswith("desc") and child.text for child in svg)


def test_overridden_settings_are_marked(plan: ac.TrainingConfig) -> None:
    assert "overridden" not in str(plan.explain()) and "overridden;" not in plan.explain()._repr_html_()
    plan.learning_rate = 1e-3
    explained = plan.explain()
    plan.learning_rate = 2e-3  # too late
    assert "learning_rate = 0.001 (overridden; planned: 4e-05)" in str(explained)
    assert "overridden; planned: 4e-05" in explained._repr_html_()
    row = next(row for row in explained.to_json()["decisions"] if row["setting"] == "learning_rate")
    assert (row["value"], row["planned"], row["overridden"]) == ("0.001", "4e-05", True)
    assert sum(row["overridden"] for row in explained.to_json()["decisions"]) == 1


def test_every_decision_is_in_a_group_and_has_its_reason(plan: ac.TrainingConfig) -> None:
    rows = plan.explain().to_json()["decisions"]
    assert sorted(row["setting"] for row in rows) == sorted(d.setting for d in plan.decisions)
    assert [row["setting"] for row in rows if row["group"] == "Other"] == ["seed"]
    text, page = str(plan.explain()), plan.explain()._repr_html_()
    for decision in plan.decisions:
        assert f"  {decision.setting} = " in text
        assert f"<b>{decision.setting} = " in page


def test_json_keys_are_those_of_the_documentation(explanation: Explanation) -> None:
    answer = json.loads(json.dumps(explanation.to_json()))
    documented = (REPOSITORY / "docs" / "reference" / "plan.md").read_text()
    for key in answer:
        assert f"| `{key}` |" in documented, key
    assert answer["explanation_version"] == 1
    assert answer["step"]["samples"] == 32
    assert answer["times"]["bound"] == "compute"
    assert ac.TrainingConfig.from_dict(answer["config"]) == explanation.config
    alone = Explanation(explanation.config).to_json()
    assert alone.keys() == answer.keys()
    assert alone["hardware"] is alone["dataset"] is alone["model"] is None


def test_save_by_suffix_whole_or_not_at_all(explanation: Explanation, tmp_path: Path) -> None:
    for name in ("plan.html", "plan.json", "plan.txt"):
        explanation.save(tmp_path / name)
    page = (tmp_path / "plan.html").read_text(encoding="utf-8")
    assert page.startswith('<!DOCTYPE html><meta charset="utf-8">') and "<title>Optimized Settings for " in page
    tags(page)
    assert json.loads((tmp_path / "plan.json").read_text(encoding="utf-8")) == json.loads(
        json.dumps(explanation.to_json())
    )
    assert (tmp_path / "plan.txt").read_text(encoding="utf-8") == f"{explanation}\n"
    with pytest.raises(InvalidArgumentError, match=r"'plan\.pdf'"):
        explanation.save(tmp_path / "plan.pdf")
    with pytest.raises(NotFoundError, match="cannot write"):
        explanation.save(tmp_path / "missing" / "plan.html")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plan.html", "plan.json", "plan.txt"]


def test_what_is_no_part_of_an_explanation_is_refused(explanation: Explanation) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"config": None}, "config = NoneType is not a TrainingConfig"),
        ({"labels": "labels.txt"}, "labels = str is not a LabelReport"),
        ({"dataset": explanation.hardware}, "dataset = HardwareProfile is not a DatasetProfile"),
    ]
    for fields, message in wrong:
        with pytest.raises(InvalidArgumentError, match=message):
            dataclasses.replace(explanation, **fields)
    with pytest.raises(InvalidArgumentError, match="None names no file"):
        explanation.save(None)  # type: ignore[arg-type]
    with pytest.raises(dataclasses.FrozenInstanceError):
        explanation.labels = None  # type: ignore[misc]


def test_hostile_names_do_nothing(explanation: Explanation, tmp_path: Path) -> None:
    evil = '"><script>alert(1)</script><b onload=x>\x1b[31m\u202e\udcff'
    bad = BadFile(evil, evil)
    with pytest.raises(InvalidArgumentError, match=r"policy = .* is not one of") as refused:
        explanation.config.policy = evil  # type: ignore[assignment]
    assert "\x1b" not in str(refused.value) and "\u202e" not in str(refused.value)
    assert explanation.dataset is not None and explanation.model is not None and explanation.hardware is not None
    gpu = dataclasses.replace(explanation.hardware.gpus[0], name=evil)
    hostile = Explanation(
        dataclasses.replace(
            explanation.config,
            gpu_name=evil,
            warnings=(evil,),
            decisions=(Decision(evil, evil, evil, evil, evil),),
            memory_parts=(MemoryPart(evil, 5),),
            alternatives=(dataclasses.replace(explanation.config.alternatives[0], name=evil, what=evil),),
            devices=(dataclasses.replace(two_gpus(explanation.config).devices[0], name=evil),) * 2,
        ),
        dataclasses.replace(explanation.hardware, gpus=(gpu,)),
        dataclasses.replace(explanation.dataset, bad_files=(bad,), bad_count=1, source=evil, warnings=(evil,)),
        dataclasses.replace(explanation.model, name=evil),
    )
    page = hostile._repr_html_()
    parser = tags(page)
    assert "script" not in parser.seen and "\u202e" not in page and "\x1b" not in page
    assert "&lt;script&gt;" in page
    text = str(hostile)
    assert "\x1b" not in text and "\u202e" not in text and "\\u202e" in text
    for name in ("a.html", "a.json", "a.txt"):
        hostile.save(tmp_path / name)
    assert json.loads((tmp_path / "a.json").read_text())["dataset"]["source"] == evil


@pytest.mark.parametrize("durations", [[2.0, 2.0, 9.5], [4.0], heavy_tail(300)])
def test_any_audio_can_be_shown(plan: ac.TrainingConfig, durations: list[float]) -> None:
    explanation = Explanation(plan, None, audio(durations, bad=60))
    page = explanation._repr_html_()
    assert len(pictures(page)) == 2
    assert "60 bad files left out" in page and "… and 10 more" in page
    assert "60 bad files left out" in str(explanation) and "… and 55 more" in str(explanation)


@pytest.mark.parametrize("gpu", ["T4", "2xL4", None])
def test_plans_of_the_search_are_shown(gpu: str | None) -> None:
    manager = ac.ASRConfigManager(gpu=gpu)
    manager.profile_dataset(audio(heavy_tail(400)))
    manager.profile_model("xls-r-300m")
    config = manager.plan(trace=False)
    explained = manager.explain()
    page, text = explained._repr_html_(), str(explained)
    tags(page)
    assert len(pictures(page)) == 2 and max(map(len, text.splitlines())) <= 110
    assert not any(row["overridden"] for row in explained.to_json()["decisions"])
    memory = explained.to_json()["memory"]
    assert sum(part["bytes"] for part in memory["parts"]) == memory["peak_bytes"] == config.predicted_bytes
    assert {row["setting"] for row in explained.to_json()["decisions"] if row["group"] == "Other"} <= {"seed"}
    for way in config.alternatives:
        assert way.name in page
    assert "overrides" not in [caution.code for caution in explained.cautions]


def test_manager_knows_the_machine_and_the_model() -> None:
    clips = [[0.0] * 8000 for _ in range(40)]
    config, manager = ac.create_optimal_config(
        clips, "whisper-tiny", gpu="L4", sampling_rate=1000, trace=False, verbose=False
    )
    explained = manager.explain()
    assert explained.config == config
    assert (explained.hardware, explained.dataset, explained.model) == (
        manager.hardware,
        manager.dataset,
        manager.model,
    )
    assert (explained.model_config or {})["vocab_size"] == 51865
    assert "NVIDIA L4, 22.5 GiB" in str(explained)
