"""The examples: twins that differ by a few lines, notebooks made from them, and figures that were measured."""

import ast
import difflib
import json

import pytest
import torch

from tests.docs.conftest import ROOT, load

notebooks = load("examples/notebooks.py")
NAMES = list(notebooks.EXAMPLES)


def source(name: str) -> str:
    return (ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8")


def code(text: str) -> list[str]:
    return [line for line in notebooks._code(text) if line.strip()]


@pytest.mark.parametrize("name", NAMES)
def test_the_twins_differ_by_three_to_five_added_lines(name):
    changes = [
        line
        for line in difflib.ndiff(code(source(f"{name}_plain")), code(source(f"{name}_mollified")))
        if line[0] in "+-"
    ]
    assert all(line[0] == "+" for line in changes), changes
    assert (2 if name == "lightning" else 3) <= len(changes) <= 5


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_has_the_cells_of_its_script_and_was_executed(name):
    found = json.loads((ROOT / "examples" / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    texts = [(cell["cell_type"], "".join(cell["source"])) for cell in found]
    row = json.loads(notebooks.MEASURED.read_text(encoding="utf-8"))["examples"][name]
    assert texts == [("markdown", notebooks.heading(name, row)), *notebooks.cells(name)], "run make notebooks"
    assert all(cell["execution_count"] for cell in found if cell["cell_type"] == "code")
    assert any("image/png" in output.get("data", {}) for output in found[-1]["outputs"])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("twin", ["plain", "mollified"])
def test_a_script_states_hardware_time_and_the_figure_to_expect(name, twin):
    row = json.loads(notebooks.MEASURED.read_text(encoding="utf-8"))["examples"][name]
    stated = ast.get_docstring(ast.parse(source(f"{name}_{twin}"))) or ""
    assert notebooks.HARDWARE in stated
    assert row["time"] in stated
    assert row[twin] in stated


@pytest.mark.filterwarnings("ignore")  # those of the trainers' own code
@pytest.mark.parametrize("name", NAMES)
def test_a_script_trains_the_plain_network(name):
    script = load(f"examples/{name}_mollified.py")
    torch.manual_seed(0)
    losses, figure = script.train(updates=20)
    assert len(losses) >= 2
    assert losses[-1] < 1.2 * losses[0]
    assert 0 < figure < 4
