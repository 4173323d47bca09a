"""Make the notebooks from the example scripts, execute them and record what they found: ``make notebooks``.

A notebook has the cells of ``NAME_mollified.py``, the lines by which ``NAME_plain.py`` differs, both trainings and a plot of both
losses. What was found goes to ``measured.json``, from which the site takes its figures.

    python examples/notebooks.py            # all of them; needs pip install '.[notebooks]'
    python examples/notebooks.py mlp gpt    # some of them
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import re
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
MEASURED = HERE / "measured.json"
HARDWARE = "one core of a CPU"
# name → title, what is measured, its format
EXAMPLES = {
    "mlp": ("20 sigmoid layers", "test error (chance: 90 %)", "{:.1%}"),
    "lstm": ("8 LSTM layers, characters", "validation loss in nats per character (letters alone: 2.65)", "{:.2f}"),
    "gpt": (
        "6 GPT blocks without residual connections",
        "validation loss in nats per character (letters alone: 2.65)",
        "{:.2f}",
    ),
    "convnet": ("16 convolutions without shortcuts", "test error (chance: 75 %)", "{:.1%}"),
    "lightning": ("16 sigmoid layers, Lightning", "test error (chance: 90 %)", "{:.1%}"),
    "huggingface": (
        "GPT-2 of 4 blocks, transformers",
        "validation loss in nats per character (letters alone: 2.65)",
        "{:.2f}",
    ),
}
RUN = """import time

start = time.process_time()
losses, figure = train()
print(f"{figure:.3f} after {time.process_time() - start:.0f} seconds")"""
TWIN = """import runpy

plain_losses, plain_figure = runpy.run_path("NAME_plain.py")["train"]()
seconds = time.process_time() - start
print(f"{plain_figure:.3f}")"""
PLOT = """import matplotlib.pyplot as plt

figure_, axis = plt.subplots(figsize=(7, 3), layout="constrained")
for name, curve in (("plain", plain_losses), ("mollified", losses)):
    window = max(1, len(curve) // 60)
    means = torch.tensor(curve)[: len(curve) // window * window].view(-1, window).mean(1)
    axis.plot(
        [window * (i + 1) for i in range(len(means))],
        means,
        label=name,
        color="#c1492f" if name == "plain" else "#00796b",
    )
axis.set(xlabel="logged losses" if len(losses) < 100 else "updates", ylabel="training loss", ylim=(0, None))
axis.legend(frameon=False)
plt.show()"""


def cells(name: str) -> list[tuple[str, str]]:
    """The cells of a notebook, each with its kind: the mollified script, cut at its markers, and what compares it with the twin."""
    script = (HERE / f"{name}_mollified.py").read_text(encoding="utf-8")
    plain = (HERE / f"{name}_plain.py").read_text(encoding="utf-8")
    found = []
    for part in re.split(r"^# %%", script, flags=re.MULTILINE)[1:-1]:
        heading, code = part.split("\n", 1)
        found += [("markdown", f"**{heading.strip()}**"), ("code", code.strip())]
    lines = difflib.unified_diff(_code(plain), _code(script), n=0, lineterm="")
    added = "\n".join(line for line in lines if line[0] in "+-" and line[:3] not in ("+++", "---") and line != "+")
    return [
        *found,
        ("code", RUN),
        (
            "markdown",
            f"**The plain twin** has the same data, network, seed, optimiser and number of updates. The mollified script adds:\n\n```diff\n{added}\n```",
        ),
        ("code", TWIN.replace("NAME", name)),
        ("code", PLOT),
    ]


def _code(script: str) -> list[str]:
    return script.split("# %%", 1)[1].splitlines()  # without the docstring


def heading(name: str, row: dict[str, str]) -> str:
    """The first cell: what it is, what it needs, and what to expect."""
    title, what, _ = EXAMPLES[name]
    return (
        f"# {title}\n\nHardware: {HARDWARE}. Time: {row['time']} for both trainings. Expect as {what}: **{row['plain']}** plain, **{row['mollified']}** mollified. "
        "A single run with one seed; yours differs in the last digits.\n\n"
        f"`pip install 'mollifier[notebooks]'` installs what it needs. It is made from `{name}_mollified.py` by `make notebooks`; keep `{name}_plain.py` in the same folder."
    )


def execute(name: str) -> dict[str, str]:
    """Run one notebook, write it with its outputs, and return its row of the table."""
    import nbformat
    from nbclient import NotebookClient

    make = {"markdown": nbformat.v4.new_markdown_cell, "code": nbformat.v4.new_code_cell}
    notebook = nbformat.v4.new_notebook(cells=[make["markdown"]("")] + [make[kind](text) for kind, text in cells(name)])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number}"  # the same at every run
    client = NotebookClient(notebook, timeout=3600, kernel_name="python3", resources={"metadata": {"path": str(HERE)}})
    with client.setup_kernel():
        for number, cell in enumerate(notebook.cells):
            client.execute_cell(cell, number)
        ask = nbformat.v4.new_code_cell("import json; print(json.dumps([plain_figure, figure, seconds]))")
        client.nb.cells.append(ask)
        client.execute_cell(ask, len(notebook.cells) - 1)
        plain, mollified, seconds = json.loads(ask.outputs[0]["text"])
        client.nb.cells.pop()
    title, what, form = EXAMPLES[name]
    shown = {key: form.format(value).replace("%", " %") for key, value in (("plain", plain), ("mollified", mollified))}
    time = f"about {max(1, round(seconds / 60))} min" if seconds > 90 else f"about {max(10, round(seconds, -1)):.0f} s"
    row = {"title": title, "figure": what, **shown, "time": time}
    notebook.cells[0].source = heading(name, row)
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # clock times: another file at every run
        if cell.cell_type == "code":  # without the warnings of packages, which name the machine's folders
            cell.outputs = [each for each in cell.outputs if each.get("name") != "stderr"]
    nbformat.write(notebook, HERE / f"{name}.ipynb")
    return row


def main(names: list[str]) -> None:
    """Execute the notebooks and write the table."""
    os.environ.setdefault(
        "OMP_NUM_THREADS", "1"
    )  # the kernels inherit it; layers this small are slower on several threads
    found: dict[str, Any] = {"hardware": HARDWARE, "examples": {}}
    if MEASURED.exists():
        found = json.loads(MEASURED.read_text(encoding="utf-8"))
    for name in names:
        row = execute(name)
        found["examples"][name] = row
        found["examples"] = {each: found["examples"][each] for each in EXAMPLES if each in found["examples"]}
        MEASURED.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"{name}: {row['plain']} plain, {row['mollified']} mollified, {row['time']}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*EXAMPLES, []], help=", ".join(EXAMPLES))
    main(parser.parse_args().names or list(EXAMPLES))
