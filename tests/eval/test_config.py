"""The configuration: every preset composes, wrong keys and values are one line, ablations change what they say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eval.config import build_system, check_locomo_hash, method_options, nearest, system_class, validate
from eval.identity import memory_fingerprint, run_folder_name, run_identity, system_identity
from eval.locomo import LOCOMO10_SHA256, SAMPLE, load
from memfly.embed import Embedder, Hashing
from memfly.errors import ConfigError
from memfly.llm.client import LLM
from memfly.memfly import MemFly
from memfly.refine import RefineOptions
from memfly.system import Services
from tests.support.runs import composed
from tests.support.scripted import Scripted

CONF = Path(__file__).resolve().parents[2] / "conf"


def methods() -> list[str]:
    return sorted(path.stem for path in (CONF / "method").glob("[!_]*.yaml") if path.stem != "custom")


def services() -> Services:
    return Services(LLM(Scripted()), Embedder(Hashing(32)), "c", ("A", "B"))


@pytest.mark.parametrize("method", methods())
def test_every_method_preset_composes_and_builds(method: str) -> None:
    config = validate(composed(f"method={method}"))
    assert config.method_name == method
    cls = system_class(config.method["_target_"])
    assert isinstance(build_system(cls, method_options(cls, config.method), services()), cls)


@pytest.mark.parametrize(
    ("group", "name"),
    [
        (group, path.stem)
        for group in ("llm", "embedder", "data", "answer", "scoring", "logger")
        for path in sorted((CONF / group).glob("[!_]*.yaml"))  # _x.yaml: a base for others
    ],
)
def test_every_other_preset_composes(group: str, name: str) -> None:
    extra = ["llm.model=some-model"] if (group, name) == ("llm", "openai") else []
    validate(composed(f"{group}={name}", *extra))


def test_the_defaults_are_the_main_job() -> None:
    config = validate(composed())
    assert (config.method_name, config.llm_name, config.data.name) == ("memfly", "extractive", "sample")
    assert config.data.file() == SAMPLE
    assert (config.answer.prompt_set, config.scoring.protocol, config.logger.kind) == ("amem", "amem", "none")
    assert config.cache.dir == f"{config.run_root}/cache"
    assert config.method["note_view"] == "both"
    assert validate(composed("answer.note_view=raw")).method["note_view"] == "raw"


PAPER = {
    "tau_m": 0.7, "tau_l": 0.5, "update": True, "denoise": True, "retrieval.k_topic": 3, "retrieval.k_key": 10,
    "retrieval.k_final": 20, "refine.rounds": 3, "ingest.window": 0, "gate.form": "two_scores",
}  # fmt: skip


def flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {prefix[:-1]: value}
    return {k: v for key, item in value.items() for k, v in flat(item, f"{prefix}{key}.").items()}


def test_paper_defaults() -> None:
    chosen = flat(composed()["method"])
    assert {key: chosen[key] for key in PAPER} == PAPER


def test_the_preset_states_every_option_with_the_code_s_default() -> None:
    preset = flat(composed()["method"])
    del preset["_target_"]
    system = MemFly(services())
    coded = {
        "tau_m": system.tau_m, "tau_l": system.tau_l, "update": system.update, "denoise": system.denoise,
        "note_view": system.note_view,
        **flat(
            {
                "ingest": system.ingest_options.model_dump(), "keywords": system.keyword_options.model_dump(),
                "candidates": system.candidate_options.model_dump(), "gate": system.gate_options.model_dump(),
                "merge": system.merge_options.model_dump(), "link": system.link_options.model_dump(),
                "topics": system.topic_options.model_dump(), "retrieval": system.retrieval_options.model_dump(),
                "refine": system.refine_options.model_dump(),
            }
        ),
    }  # fmt: skip
    coded["retrieval.pathways"] = list(coded["retrieval.pathways"])
    assert preset == coded


ABLATIONS = {
    "memfly_wo_update": {"update": False},
    "memfly_wo_denoise": {"denoise": False},
    "memfly_wo_link": {"link.enabled": False},
    "memfly_wo_merge": {"merge.enabled": False},
    "memfly_wo_topic": {"retrieval.pathways": ["keyword", "neighbour"]},
    "memfly_wo_keyword": {"retrieval.pathways": ["topic", "neighbour"]},
    "memfly_wo_neighbor": {"retrieval.pathways": ["topic", "keyword"]},
    "memfly_wo_ier": {"refine.rounds": 1},
}
BUILDING = {"memfly_wo_update", "memfly_wo_denoise", "memfly_wo_link", "memfly_wo_merge"}


def test_all_eight_ablations_are_there() -> None:
    assert {method for method in methods() if method.startswith("memfly_wo_")} == set(ABLATIONS)


@pytest.mark.parametrize("method", ABLATIONS)
def test_an_ablation_changes_what_it_says_and_nothing_else(method: str, talk_file: Path) -> None:
    full, ablated = flat(composed()["method"]), flat(composed(f"method={method}")["method"])
    assert {key: value for key, value in ablated.items() if full.get(key) != value} == ABLATIONS[method]
    assert full.keys() == ablated.keys()
    conversation = load(talk_file).conversations[0]

    def identities(name: str) -> tuple[str, str]:
        chosen = method_options(MemFly, composed(f"method={name}")["method"])
        made = [system_identity(MemFly, chosen, build_only=build_only) for build_only in (True, False)]
        return memory_fingerprint(made[0], {}, conversation, 0), str(made[1])

    (memory, system), (other_memory, other_system) = identities("memfly"), identities(method)
    assert (memory != other_memory) == (method in BUILDING), "reading-side ablations share the memory"
    assert system != other_system, "but no two are the same run"


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (["+lmm=x"], "config: lmm: unknown option; did you mean llm?"),
        (["+zzz=1"], "config: zzz: unknown option; known: answer, cache, concurrency, data, embedder"),
        (["+data.paht=x"], "config: data.paht: unknown option; did you mean path?"),
        (["+answer.temprature=1"], "config: answer.temprature: unknown option; did you mean temperature?"),
        (["concurrency=0"], "config: concurrency: Input should be greater than or equal to 1"),
        (["concurrency=many"], "config: concurrency: Input should be a valid integer"),
        (["data.captions=some"], "config: data.captions: Input should be 'all', 'with_url' or 'none'"),
        (["answer.prompt_set=mine"], "config: answer.prompt_set: Input should be 'amem', 'open' or 'locomo'"),
        (["data.limit_questions=0"], "config: data.limit_questions: Input should be greater than or equal to 1"),
        (["run_root="], "config: run_root: String should have at least 1 character"),
        (["data.conversations=conv-26"], "config: data.conversations: give a list, such as [a,b]"),
        (["scoring.protocol=x"], "config: scoring.protocol: Input should be 'amem', 'locomo' or 'mem0'"),
    ],
)
def test_a_wrong_key_or_value_is_one_line(overrides: list[str], line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        validate(composed(*overrides))
    assert str(caught.value).startswith(line)
    assert "\n" not in str(caught.value)


class Annotated(MemFly):
    def __init__(
        self,
        services: Services,
        *,
        flag: bool = False,
        k: int | None = None,
        anything=(),
        odd: NoSuchType = 1,  # noqa: F821
    ):  # type: ignore[no-untyped-def, name-defined]
        super().__init__(services)


class Typed(MemFly):
    def __init__(
        self, services: Services, *, flag: bool = False, k: int | None = None, refine: RefineOptions | None = None
    ) -> None:
        super().__init__(services)


def test_options_are_typed_by_the_constructor() -> None:
    chosen = method_options(Typed, {"flag": "no", "k": "7", "refine": {"rounds": "2"}})
    assert chosen == {"flag": False, "k": 7, "refine": RefineOptions(rounds=2)}
    assert method_options(Typed, {})["refine"] == RefineOptions()
    for wrong in ({"flag": "perhaps"}, {"k": "x"}, {"k": True}, {"refine": {"round": 2}}, {"refine": 3}):
        with pytest.raises(ConfigError, match=rf"^method\.{next(iter(wrong))}"):
            method_options(Typed, wrong)


class Loose(MemFly):
    def __init__(self, services: Services, *, flag: Any = True, k: float = True) -> None:
        super().__init__(services)


def test_what_is_annotated_as_anything_and_a_constructor_s_own_defaults_are_taken_as_they_are() -> None:
    assert method_options(Loose, {}) == {"flag": True, "k": True}
    assert method_options(Loose, {"flag": False})["flag"] is False


def test_types_that_cannot_be_resolved_are_left_to_the_constructor() -> None:
    assert method_options(Annotated, {"flag": "no"}) == {"flag": "no", "k": None, "anything": (), "odd": 1}


def test_spelling_out_a_nested_default_is_the_same_run() -> None:
    plain = system_identity(MemFly, method_options(MemFly, {}), build_only=False)
    spelt = {"refine": {"rounds": 3}, "topics": {"delta_min": 3}, "tau_m": "0.7", "update": "yes"}
    assert system_identity(MemFly, method_options(MemFly, spelt), build_only=False) == plain
    assert plain["options"]["refine"] == {"rounds": 3, "interim_answer": False}


def test_method_options_are_checked_against_the_constructor() -> None:
    with pytest.raises(ConfigError, match=r"method\.tua_m: MemFly has no such option; did you mean tau_m\?"):
        method_options(MemFly, {"tua_m": 1})
    assert method_options(MemFly, {"_target_": "x", "tau_m": 0.9})["tau_m"] == 0.9


@pytest.mark.parametrize(
    ("target", "line"),
    [
        ("MemFly", "method._target_: 'MemFly' is no dotted path to a class"),
        ("", "method._target_: '' is no dotted path"),
        ("no.such.module.X", "method._target_: cannot import 'no.such.module'"),
        ("memfly.memfly.NoSuch", "method._target_: memfly.memfly.NoSuch is not a memfly.system.MemorySystem"),
        ("memfly.graph.Note", "method._target_: memfly.graph.Note is not a memfly.system.MemorySystem"),
        ("pathlib.Path", "method._target_: pathlib.Path is not a memfly.system.MemorySystem"),
    ],
)
def test_a_target_that_is_no_system(target: str, line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        system_class(target)
    assert str(caught.value).startswith(line)


def test_hints() -> None:
    assert nearest("tau", ["tau_m", "rounds"]) == "; did you mean tau_m?"
    assert nearest("xyz", ["b", "a"]) == "; known: a, b"


def test_the_official_hash() -> None:
    assert check_locomo_hash(validate(composed("data=locomo10")).data) == LOCOMO10_SHA256
    assert check_locomo_hash(validate(composed("data=locomo10", "data.sha256=null")).data) is None
    assert check_locomo_hash(validate(composed()).data) is None


def test_what_changes_a_run_s_name_and_what_does_not(talk_file: Path) -> None:
    data = load(talk_file, name="talks")

    def name(*overrides: str) -> str:
        config = validate(composed(*overrides))
        cls = system_class(config.method["_target_"])
        system = system_identity(cls, method_options(cls, config.method), build_only=False)
        return run_folder_name(config, run_identity(config, system, {"llm": {}}, data))

    base = name()
    assert base.startswith("memfly-extractive-sample-")
    for same in (
        "concurrency=1",
        "run_root=/elsewhere",
        "logger=wandb",
        "scoring=locomo",
        "cache.dir=/x",
        "data.path=x",
    ):
        assert name(same) == base, same
    others = [
        "method.tau_m=0.8", "method.tau_l=0.4", "seed=1", "answer.temperature=0", "answer=open", "answer.token_budget=9",
        "method.retrieval.k_final=5", "method=memfly_wo_ier", "data.captions=none", "data.limit_questions=3",
        "answer.note_view=raw", "method.ingest.window=2",
    ]  # fmt: skip
    names = [name(other) for other in others]
    assert len({base, *names}) == len(names) + 1
