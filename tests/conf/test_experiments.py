"""Every experiment file composes, validates, and is in docs/reproduce.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_module
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

import conf
from baselines.extractive import FUNCTIONS
from eval.answer import fit, render
from eval.config import build_system, method_options, system_class, validate
from eval.locomo import SAMPLE, load
from eval.published import ABLATION, BACKBONES, MAIN
from memfly.embed import Embedder, Hashing
from memfly.llm.client import LLM
from memfly.llm.config import llm_config
from memfly.llm.extractive import Extractive
from memfly.llm.ledger import scope
from memfly.system import Services
from memfly.text import count_tokens
from memfly.types import Question
from scripts.run import run_config

ROOT = Path(str(conf.__file__)).parent
BUDGET = 200
"""Of a conversation of 95 turns, as 1,000 is of LoCoMo's."""
BACKBONES_WITH_FILES = ("gpt-4o-mini", "gpt-4o", "qwen3-8b", "qwen3-14b")
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


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("budget_")])
async def test_under_a_budget_the_evidence_still_depends_on_the_question(name: str) -> None:
    """The cut goes by each system's own ranking, so that what is left was found for the question asked."""
    plain, _ = _composed(f"experiment={name}")
    config = validate(plain)
    cls = system_class(config.method["_target_"])
    talk = load(SAMPLE).conversations[0]
    embedder = Embedder(Hashing(256))
    llm = LLM(Extractive(embedder, FUNCTIONS))
    system = build_system(cls, method_options(cls, config.method), Services(llm, embedder, talk.id, talk.speakers))
    with scope(talk.id):
        for turn in talk.turns:
            await system.observe(turn)
        await system.finish()
    shown = []
    for text in ("How many cats does Ines have?", "When did Callum hurt his knee?", "Who is Odile?"):
        evidence = await system.recall(Question("q", talk.id, text))
        shown.append(fit(evidence, BUDGET))
        assert 0.8 * BUDGET <= sum(count_tokens(render(passage)) for passage in shown[-1]) <= BUDGET
    if name == "budget_full_context":  # retrieves nothing, and says so
        assert shown[0] == shown[1] == shown[2]
    else:
        assert len(set(shown)) > 1  # not always 3: the talk has few pages and few chunks


def test_systems_run_as_their_authors_ran_them() -> None:
    """A-MEM's and Mem0's own k on LoCoMo, where they gave one."""
    found = {b: _composed(f"experiment=main_{b}_mem0")[0]["method"]["k"] for b in BACKBONES_WITH_FILES}
    assert found == dict.fromkeys(BACKBONES_WITH_FILES, 30)
    found = {b: _composed(f"experiment=main_{b}_amem")[0]["method"]["k"] for b in BACKBONES_WITH_FILES}
    assert found == {"gpt-4o-mini": 40, "gpt-4o": 40, "qwen3-8b": 10, "qwen3-14b": 10}


def test_a_users_choice_beats_the_experiments() -> None:
    plain, _ = _composed("experiment=main_gpt-4o_amem", "data=sample", "llm=extractive", "method.k=7")
    assert (plain["data"]["name"], plain["llm_name"], plain["method"]["k"]) == ("sample", "extractive", 7)


def test_every_row_with_a_preset_has_a_file() -> None:
    presets = {path.stem for path in (ROOT / "method").glob("*.yaml")}
    backbones = [name for name in BACKBONES_WITH_FILES if name in BACKBONES]
    wanted = {f"main_{b}_{m}" for b in backbones for m in MAIN if m in presets}
    wanted |= {f"ablation_{m.removeprefix('memfly_') if m != 'memfly' else 'full'}" for m in ABLATION}
    assert wanted <= set(NAMES)


def test_the_documentation_names_every_experiment() -> None:
    text = (ROOT.parent / "docs" / "reproduce.md").read_text(encoding="utf-8")
    assert [name for name in NAMES if f"experiment={name}" not in text] == []
