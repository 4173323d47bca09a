"""`mollifier frontier`: how deep can a network be, for each activation and way of training?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from mollifier_lab.commands.shared_flags import DataFolder, Quiet, Workers
from mollifier_lab.errors import pick
from mollifier_lab.reproduction import CORES


@dataclass(frozen=True)
class Frontier:
    """Map which networks can be trained on MNIST: by depth, activation and way of training; without an activation, list the ways and the estimated hours."""

    activations: Annotated[Positional[tuple[str, ...]], arg(metavar="ACTIVATION ...", help="sigmoid, tanh, hard-sigmoid, relu, step; all: all of these; adding: the adding problem; convnets: the plain twins of ResNets, trained on CIFAR-10; annealing: the adaptive front against the paper's schedule; twins: ResNets against their plain twins.", help_behavior_hint="")] = ()  # fmt: skip
    depths: Annotated[tuple[int, ...], arg(metavar="N ...", help_behavior_hint="(default: 6 10 20 30 50 72 100 150 200)")] = ()  # fmt: skip
    """Which depths."""
    draw: Annotated[bool, arg(help_behavior_hint="")] = False
    """Run nothing: draw the heat maps and write the table again from map.csv."""
    smoke: Annotated[bool, arg(help_behavior_hint="")] = False
    """Use tiny networks and a few updates, only to show that the command works."""
    out: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="(default: results/frontier, or out/smoke/frontier)")] = None  # fmt: skip
    """The runs are in its folder runs; run again, the command continues where it stopped."""
    data: DataFolder = None
    workers: Workers = CORES
    quiet: Quiet = False

    def run(self) -> int:
        """Run the ways, draw the map, or list the ways."""
        from mollifier_lab.files import write_atomically
        from mollifier_lab.frontier import cells, maps
        from mollifier_lab.frontier.ways import ACTIVATIONS, DEPTHS

        out = self.out or Path("out/smoke/frontier" if self.smoke else "results/frontier")
        if not self.activations and not self.draw:
            return _list()
        for name in self.activations:
            pick("activation", name, dict.fromkeys((*ACTIVATIONS, "all", "adding", "annealing", "convnets", "twins")))
        studies = {
            "adding": self._adding,
            "annealing": self._annealing,
            "convnets": self._convnets,
            "twins": self._twins,
        }
        for name, make in studies.items():
            if name in self.activations:
                text = make(out)
                write_atomically(out / f"{name}.md", text.encode())
                print(text, end="")
        wanted = [name for name in ACTIVATIONS if name in self.activations or "all" in self.activations]
        if not wanted and not self.draw:
            return 0
        if not self.draw:
            for activation in wanted:
                print(f"frontier, {activation}", flush=True)
                found = cells.make(
                    activation, self.depths or DEPTHS, out, smoke=self.smoke, data=self.data, workers=self.workers, threads=1, show=not self.quiet,
                )  # fmt: skip
                cells.write(found, out)
        print(*maps.draw(out), sep="\n")
        print(maps.table(cells.read(out)), end="")
        return 0

    def _adding(self, out: Path) -> str:
        from mollifier_lab.frontier import adding

        return adding.table(adding.make(out, smoke=self.smoke, workers=self.workers, threads=1, show=not self.quiet))

    def _annealing(self, out: Path) -> str:
        from mollifier_lab.frontier import annealing

        annealing.make(out, smoke=self.smoke, data=self.data, workers=self.workers, threads=1, show=not self.quiet)
        found = annealing.results(out)
        return f"{annealing.table(found)}\n{annealing.every_way(found)}"

    def _convnets(self, out: Path) -> str:
        from mollifier_lab.frontier import convnets

        pool = {"data": self.data, "workers": self.workers, "threads": 1, "show": not self.quiet}
        return convnets.table(convnets.make(out, smoke=self.smoke, **pool))

    def _twins(self, out: Path) -> str:
        from mollifier_lab.frontier import twins

        out.mkdir(parents=True, exist_ok=True)
        return twins.table(twins.measure(rounds=2) if self.smoke else twins.measure())


def _list() -> int:
    from mollifier_lab.commands.output import console, table
    from mollifier_lab.frontier.ways import ACTIVATIONS, COMMON, DEPTHS, TRIALS, WAYS, hours

    found = table("way", "method", "settings", "varied by the trials")
    for way in WAYS:
        settings = ", ".join(f"{name}={value}" for name, value in way.changes.items())
        found.add_row(way.title, way.method, settings, ", ".join(["lr", *way.drawn]))
    console().print(found)
    print(f"depths: {' '.join(map(str, DEPTHS))}; activations: {' '.join(ACTIVATIONS)}")
    print(f"all runs: {', '.join(f'{name}={value}' for name, value in COMMON.items())}; {TRIALS} trials for each way")
    print(
        "in addition to the map: mollifier frontier adding, mollifier frontier annealing, mollifier frontier convnets, mollifier frontier twins"
    )
    print(
        f"hours: estimated, at most {hours(cores=CORES):.1f} for each activation on {CORES} cores with one run on each; ways that learn nothing stop earlier"
    )
    return 0
