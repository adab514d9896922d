"""Tables in random spellings are read as they are meant; what is in doubt is refused by its key."""

import pytest

from .spellings import survived, tried


@pytest.mark.parametrize("seed", [1, pytest.param(7, marks=pytest.mark.exhaustive)])
def test_a_spelling_is_read_as_it_is_meant_or_refused(seed):
    for said, table, door in tried(80 if seed == 1 else 15_000, seed):
        expected = "right"
        if "mark not said" in table.words:
            expected = "refused missing-mark"
        elif table.harmful:
            element = any("element" in word for word in table.words)
            expected = f"refused {'elements' if element else 'levels'}-differ"
        assert said == expected, (door, table.words)


@pytest.mark.parametrize("seed", [2, pytest.param(8, marks=pytest.mark.exhaustive)])
def test_a_damaged_text_is_read_or_refused(seed):
    assert survived(60 if seed == 2 else 15_000, seed) == []
