"""Nothing that looks like a secret, or is one, gets through."""

from __future__ import annotations

import pytest

from memfly.llm.redaction import one_line, redact


def test_values_of_secret_variables_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MY_API_KEY", "HF_TOKEN", "DB_PASSWORD", "SOME_SECRET"):
        monkeypatch.setenv(name, f"value-of-{name.lower()}")
        assert redact(f"a value-of-{name.lower()} b") == "a *** b"
    monkeypatch.setenv("MY_API_KEY", "the")
    assert redact("the other") == "the other"


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
