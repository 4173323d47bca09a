"""Short names: what differs, three digits, and never the same for two."""

from hypothesis import given, strategies as st

from mollifier_lab.report.names import LONGEST, shorten
from tests.lab.report.conftest import Written

SETTINGS = st.lists(st.tuples(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6)), min_size=2, max_size=12, unique=True)


@given(SETTINGS)
def test_no_two_short_names_are_the_same(values: list[tuple[float, float]]) -> None:
    names = [f"mollified, lr={lr!r}, k={k!r}" for lr, k in values]
    found = shorten(names, ["mollified"] * len(names))
    assert len(set(found)) == len(names)


def test_a_setting_that_all_have_is_left_out_but_not_other_words() -> None:
    names = ["plain, gain=4, lr=0.5, other data", "mollified, gain=4, lr=0.25, other data"]
    assert shorten(names, ["plain", "mollified"]) == ["plain, lr=0.5, other data", "mollified, lr=0.25, other data"]


def test_methods_that_begin_alike_keep_their_names() -> None:
    names = ["mollified, k=5", "mollified, deterministic"]
    assert shorten(names, ["mollified", "mollified, deterministic"]) == names


def test_long_labels_are_cut_and_stay_apart() -> None:
    names = [f"{'x' * 100}{middle}{'y' * 200}" for middle in "ab"]
    found = shorten(names, ["plain", "plain"])
    assert all(len(name) <= LONGEST + 4 for name in found)
    assert len(set(found)) == 2


def test_a_search_is_named_by_its_settings(many: Written) -> None:
    row = next(row for row in many.report.rows if row.variant.startswith("mollified, lr=0.123456789,"))
    assert row.short == "mollified, lr=0.123, gain=1, k=12.3"  # with the method: one has a label of its own
    assert (many.root / "table.csv").read_text().count("lr=0.123456789,") == 1
