"""For mkdocs: the page of results, and the report of each study, made from the data in results/ while the site is built."""

import tempfile
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from mollifier_lab.errors import LabError
from mollifier_lab.report import report
from mollifier_lab.reproduction import STUDIES
from mollifier_lab.runs import find_runs

RESULTS = Path(__file__).parents[2] / "results"
PICTURES = ("curves.png", "levels.png")


def has_runs(folder: Path) -> bool:
    """Return whether a study has a run yet, besides the trials of its searches."""
    try:
        return folder.is_dir() and bool(find_runs(folder))
    except LabError:
        return False


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add results.md and frontier.md, and for each study that has been run its report.html and its pictures."""
    wide = "---\nhide: [toc]\n---\n\n"  # the table of claims has six columns
    sections = [
        wide + (RESULTS / "README.md").read_text(encoding="utf-8").replace("(frontier/README.md)", "(frontier.md)")
    ]
    picture = RESULTS / "claims.png"  # the README shows it
    files.append(File.generated(config, picture.name, content=picture.read_bytes()))
    frontier = (RESULTS / "frontier" / "README.md").read_text(encoding="utf-8")
    files.append(File.generated(config, "frontier.md", content=frontier))
    for study in STUDIES.values():
        folder = RESULTS / study.task / study.name
        if not has_runs(folder):
            continue
        with tempfile.TemporaryDirectory() as scratch:
            report(folder, scratch)
            for name in ("report.html", *PICTURES):
                content = (Path(scratch) / name).read_bytes()
                files.append(File.generated(config, f"results/{study.name}/{name}", content=content))
        sections.append(
            f"## {study.name}\n\n{study.claim}.\n\n"
            f"![Curves of the study {study.name}](results/{study.name}/curves.png)\n\n"
            f"[All curves, settings and tables](results/{study.name}/report.html) · `mollifier reproduce {study.name}`"
        )
    files.append(File.generated(config, "results.md", content="\n\n".join(sections)))
    return files
