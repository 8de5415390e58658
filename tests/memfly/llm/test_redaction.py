"""Nothing that looks like a secret, or is one, gets through."""

from __future__ import annotations

import pytest

from memfly.llm.config import llm_config
from memfly.llm.redaction import after_secret_flags, one_line, redact, redact_command


def test_values_of_secret_variables_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MY_API_KEY", "HF_TOKEN", "DB_PASSWORD", "SOME_SECRET"):
        monkeypatch.setenv(name, f"value-of-{name.lower()}")
        assert redact(f"a value-of-{name.lower()} b") == "a *** b"
    monkeypatch.setenv("MY_API_KEY", "the")
    assert redact("the other") == "the other"


def test_the_variable_a_configuration_names_is_secret_whatever_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMED_IN_A_CONFIG", "plain-word")
    assert redact("a plain-word b") == "a plain-word b"
    llm_config(
        {"kind": "openai", "model": "m", "base_url": "http://127.0.0.1:1/v1", "api_key_env": "NAMED_IN_A_CONFIG"}
    )
    assert redact("a plain-word b") == "a *** b"


def test_a_key_that_begins_with_another_one_is_masked_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", "secret123")
    monkeypatch.setenv("B_KEY", "secret123-and-more-of-it")
    assert redact("x secret123-and-more-of-it y secret123 z") == "x *** y *** z"


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--api-key", "abc1", "def2", "--port", "8"], ["--api-key", "***", "***", "--port", "8"]),
        (["--api-key=abc1", "m"], ["--api-key=***", "m"]),
        (["--hf-token", "abc1"], ["--hf-token", "***"]),
        (["--api_key", "abc1"], ["--api_key", "***"]),
        (["--tokenizer", "a/b", "--max-num-batched-tokens", "9"], ["--tokenizer", "a/b", "--max-num-batched-tokens", "9"]),
        (["serve", "hf_abcdefghijklmnop1234"], ["serve", "***"]),
    ],
)  # fmt: skip
def test_values_of_secret_flags_are_masked_in_commands(words: list[str], shown: list[str]) -> None:
    assert redact_command(words) == shown


def test_a_key_on_a_servers_command_line_is_masked_everywhere() -> None:
    llm_config(
        {"kind": "openai", "model": "m", "serve": "auto", "serve_args": ["--api-key", "hidden-pass-xyz", "--port", 80]}
    )
    assert redact("hidden-pass-xyz") == "***"  # word by word, as a manifest is written
    for text in ("--api-key other-pass", "[--api-key, other-pass]", '["--api-key", "other-pass"]', "--api-key=other-pass",
                 "- --api-key\n- other-pass\n", "vllm serve m '--api-key' 'other-pass'"):  # fmt: skip
        assert "other-pass" not in redact(text), text
    assert redact("the --tokenizer model, --key-file x") == "the --tokenizer model, --key-file x"
    assert after_secret_flags(["--token=a", "--api-key", "b", "c", "-x", "d"]) == ["a", "b", "c"]


@pytest.mark.parametrize(
    "secret", ["sk-abcdefghij0123456789", "sk-proj-AbC_0123456789-xyzXYZ", "hf_abcdefghijklmnop1234"]
)
def test_key_like_words_are_replaced(secret: str) -> None:
    assert redact(f"key {secret}.") == "key ***."
    assert "Bearer ***" in redact(f"Authorization: Bearer {secret}x")


def test_logins_in_addresses_are_replaced() -> None:
    assert redact("see http://ann:pw@host:1/v1 now") == "see http://***@host:1/v1 now"
    assert redact("mail ann@example.org") == "mail ann@example.org"


def test_one_line_is_one_line_and_short() -> None:
    line = one_line("a\n b\r\n\tc" + "x" * 500, 50)
    assert line.startswith("a b c")
    assert len(line) == 50


def test_words_about_a_key_are_no_flag() -> None:
    for text in ("the api-key is not set", "llm.api_key_env: the variable is not set", "a --tokenizer a/b"):
        assert redact(text) == text
