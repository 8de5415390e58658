from __future__ import annotations

import pytest

from eval.categories import Category
from eval.scoring import MODES, PROTOCOLS, protocol
from memfly.errors import ConfigError


def test_every_protocol_in_every_mode() -> None:
    for name in PROTOCOLS:
        for mode in MODES:
            made = protocol(name, mode)
            assert (made.name, made.mode) == (name, mode)


@pytest.mark.parametrize(("name", "mode", "choices"), [("rouge", "fixed", PROTOCOLS), ("amem", "exact", MODES)])
def test_an_unknown_choice_is_a_config_error_that_names_the_choices(
    name: str, mode: str, choices: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError) as error:
        protocol(name, mode)
    assert all(choice in str(error.value) for choice in choices)


def test_category_numbers_and_names() -> None:
    assert {c.value: c.label for c in Category} == {
        1: "multi_hop",
        2: "temporal",
        3: "open_domain",
        4: "single_hop",
        5: "adversarial",
    }
