"""Every experiment file composes, validates, and is in docs/reproduce.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_module
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

import conf
from eval.config import method_options, system_class, validate
from eval.published import ABLATION, BACKBONES, MAIN
from memfly.llm.config import llm_config
from scripts.run import run_config

ROOT = Path(str(conf.__file__)).parent
NAMES = sorted(path.stem for path in (ROOT / "experiment").glob("*.yaml"))


def _composed(*overrides: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The run's configuration and Hydra's own."""
    GlobalHydra.instance().clear()
    with initialize_config_module("conf", version_base="1.3"):
        composed = compose("config", overrides=list(overrides), return_hydra_config=True)
    own: Any = OmegaConf.to_container(composed.hydra.sweeper.params or OmegaConf.create({}))
    choices = dict(composed.hydra.runtime.choices)
    OmegaConf.set_struct(composed, False)
    del composed["hydra"]
    return run_config(composed, choices), own


@pytest.mark.parametrize("name", NAMES)
def test_experiment_composes_and_its_options_exist(name: str) -> None:
    plain, sweep = _composed(f"experiment={name}")
    config = validate(plain)
    assert (config.data.name, config.answer.prompt_set, config.scoring.protocol) == ("locomo10", "amem", "amem")
    options = method_options(system_class(config.method["_target_"]), config.method)
    llm_config(config.llm)
    for key, values in sweep.items():
        group, option = key.split(".")
        assert group == "method"
        assert option in options
        assert len(values.split(",")) >= 5
    if name.startswith("main_"):
        _, backbone, method = name.split("_", 2)
        assert (config.llm_name, config.method_name) == (backbone, method)


def test_a_users_choice_beats_the_experiments() -> None:
    plain, _ = _composed("experiment=main_gpt-4o_amem", "data=sample", "llm=extractive", "method.k=7")
    assert (plain["data"]["name"], plain["llm_name"], plain["method"]["k"]) == ("sample", "extractive", 7)


def test_every_row_with_a_preset_has_a_file() -> None:
    presets = {path.stem for path in (ROOT / "method").glob("*.yaml")}
    backbones = [name for name in ("gpt-4o-mini", "gpt-4o", "qwen3-8b", "qwen3-14b") if name in BACKBONES]
    wanted = {f"main_{b}_{m}" for b in backbones for m in MAIN if m in presets}
    wanted |= {f"ablation_{m.removeprefix('memfly_') if m != 'memfly' else 'full'}" for m in ABLATION}
    assert wanted <= set(NAMES)


def test_the_documentation_names_every_experiment() -> None:
    text = (ROOT.parent / "docs" / "reproduce.md").read_text(encoding="utf-8")
    assert [name for name in NAMES if f"experiment={name}" not in text] == []
