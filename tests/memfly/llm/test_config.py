"""Configurations of backbones: every preset is valid and pinned, and every mistake is one clear line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from memfly.errors import ConfigError
from memfly.llm.config import ExtractiveConfig, LocalConfig, OpenAIConfig, llm_config

CONF = Path(__file__).resolve().parents[3] / "conf"
PRESETS = sorted(path.stem for path in (CONF / "llm").glob("[!_]*.yaml"))


def preset(name: str, *overrides: str) -> dict[str, Any]:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        composed = compose(overrides=[f"+llm={name}", *overrides])
    plain = OmegaConf.to_container(composed.llm, resolve=True, throw_on_missing=True)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def test_presets_are_these() -> None:
    assert PRESETS == ["extractive", "gpt-4o", "gpt-4o-mini", "local", "openai", "qwen3-14b", "qwen3-8b"]


@pytest.mark.parametrize("name", [name for name in PRESETS if name != "openai"])
def test_every_preset_is_valid(name: str) -> None:
    kinds = {"extractive": ExtractiveConfig, "local": LocalConfig}
    assert type(llm_config(preset(name))) is kinds.get(name, OpenAIConfig)


@pytest.mark.parametrize("name", PRESETS)
def test_presets_list_every_setting_with_its_default(name: str) -> None:
    """So that any setting can be overridden without a plus, and a typo is an error."""
    plain = preset(name, *(["llm.model=m"] if name == "openai" else []))
    config = llm_config(plain)
    assert plain.keys() == type(config).model_fields.keys()
    if name in ("openai", "local"):
        assert config == type(config)(model=plain["model"])  # type: ignore[call-arg]


def test_what_presets_pin() -> None:
    def of(name: str) -> OpenAIConfig:
        config = llm_config(preset(name))
        assert isinstance(config, OpenAIConfig)
        return config

    assert of("gpt-4o").model == "gpt-4o-2024-08-06"
    assert of("gpt-4o-mini").model == "gpt-4o-mini-2024-07-18"
    for size in ("8", "14"):
        qwen = of(f"qwen3-{size}b")
        assert (qwen.model, qwen.thinking, qwen.structured) == (f"Qwen/Qwen3-{size}B", "off", "guided")
    assert of("gpt-4o").urls == ()


def test_any_server_by_override() -> None:
    config = llm_config(
        preset(
            "openai",
            "llm.model=m",
            "llm.base_url=http://127.0.0.1:1/v1",
            "llm.faults={rate_429: 0.05}",
            "llm.budget.usd=5",
        )
    )
    assert isinstance(config, OpenAIConfig)
    assert config.urls == ("http://127.0.0.1:1/v1",)
    assert (config.faults.rate_429, config.faults.slow_s, config.budget.usd) == (0.05, 0.5, 5.0)


def test_numbers_among_serve_args_are_words_and_guided_servers_get_compact_json() -> None:
    config = llm_config(preset("qwen3-8b", "llm.serve_args=[--tensor-parallel-size, 2]"))
    assert isinstance(config, OpenAIConfig)
    assert config.serve_args == ("--tensor-parallel-size", "2")
    flags = config.serve_flags
    assert flags[:3] == (*config.serve_args, "--structured-outputs-config")
    assert json.loads(flags[3]) == {"backend": "xgrammar", "disable_any_whitespace": True}
    own = config.model_copy(update={"serve_args": ("--structured-outputs-config", "{}")})
    assert own.serve_flags == own.serve_args
    assert OpenAIConfig(model="m").serve_flags == ()


@pytest.mark.parametrize("override", ["llm.cache=off", "llm.thinking=on", "llm.cache=read_only"])
def test_on_and_off_survive_yaml(override: str) -> None:
    key, value = override.removeprefix("llm.").split("=")
    assert getattr(llm_config(preset("qwen3-8b", override)), key) == value
    if value != "read_only":
        assert getattr(llm_config({**preset("qwen3-8b"), key: value == "on"}), key) == value


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({}, r"llm\.kind: None is not one of extractive, openai, local"),
        ({"kind": "opneai"}, r"llm\.kind: 'opneai'"),
        ({"kind": "openai"}, r"llm\.model: Field required"),
        (
            {"kind": "openai", "model": "m", "max_concurency": 3},
            r"llm\.max_concurency: no such setting of llm kind openai",
        ),
        ({"kind": "extractive", "model": "m"}, r"llm\.model: no such setting of llm kind extractive"),
        ({"kind": "openai", "model": "m", "max_concurrency": 0}, r"llm\.max_concurrency: "),
        ({"kind": "openai", "model": "m", "retry": {"tris": 2}}, r"llm\.retry\.tris: no such setting"),
        ({"kind": "openai", "model": "m", "structured": "xml"}, r"llm\.structured: "),
        ({"kind": "openai", "model": "m", "base_url": "127.0.0.1:8000"}, r"llm: .* is not an http"),
        ({"kind": "openai", "model": "m", "base_url": "http://a", "base_urls": ["http://b"]}, r"base_url or base_urls"),
        ({"kind": "openai", "model": "m", "base_url": "http://a:99999/v1"}, r"llm: .* is not an http"),
        ({"kind": "openai", "model": "m", "base_url": "http://"}, r"llm: 'http://' is not an http"),
        (
            {"kind": "openai", "model": "m", "base_url": "http://ann:secret-pass@a:x/v1"},
            r"llm: an address holds no login; a key comes by api_key_env$",
        ),
        (
            {"kind": "openai", "model": "m", "base_url": "http://a/v1?api_key=k"},
            r"llm: an address has no \? or #; [^=]*$",
        ),
        (
            {"kind": "openai", "model": "m", "api_key_env": "sk-abc"},
            r"llm: api_key_env is the name .* not the key itself$",
        ),
        (
            {"kind": "openai", "model": "m", "base_urls": ["https://api.openai.com/v1", "http://gpu1/v1"]},
            r"llm: base_urls mixes OpenAI's own server with others, which must not see its key$",
        ),
        ({"kind": "openai", "model": "m", "cache": "maybe"}, r"llm\.cache: "),
        ({"kind": "openai", "model": "m", "budget": {"usd": -1}}, r"llm\.budget\.usd: "),
    ],
)
def test_mistakes_are_one_clear_line(data: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text) as caught:
        llm_config(data)
    assert "\n" not in str(caught.value)
