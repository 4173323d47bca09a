"""Generalized and noisy mollifiers (section 2.1): their definitions, and a numerical check of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Generator, Tensor

from mollifier.smoothing._probe import Lines, bend, draw_lines, kink

Easy = Literal["convex", "affine", "identity"]
Function = Callable[[Tensor], Tensor]


class GeneralizedMollifier(Protocol):
    """T_σ f: a function of x for every σ, f itself as σ → 0, convex at the other end, differentiable in between."""

    def __call__(self, x: Tensor, sigma: float, /) -> Tensor:
        """Return (T_σ f)(x), row by row."""
        ...


class NoisyMollifier(Protocol):
    """φ(x, ξ_σ): a random function whose mean is a generalized mollifier."""

    def __call__(self, x: Tensor, sigma: float, generator: Generator, /) -> Tensor:
        """Return one draw for each row of x."""
        ...


@dataclass(frozen=True)
class Property:
    """One property: whether it holds, and what was found."""

    name: str
    holds: bool
    found: str

    def __str__(self) -> str:
        return f"{'holds' if self.holds else 'FAILS'}: {self.name}: {self.found}"


@dataclass(frozen=True)
class CheckReport:
    """What `check_mollifier` found, property by property."""

    properties: tuple[Property, ...]

    @property
    def ok(self) -> bool:
        """Whether all properties hold."""
        return all(one.holds for one in self.properties)

    @property
    def failed(self) -> list[str]:
        """The names of the properties that do not hold."""
        return [one.name for one in self.properties if not one.holds]

    def __str__(self) -> str:
        return "\n".join(map(str, self.properties))


def check_mollifier(
    transform: GeneralizedMollifier,
    f: Function,
    *,
    noisy: NoisyMollifier | None = None,
    easy: Easy | Function = "convex",
    sigmas: Sequence[float] = (1e-6, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0),
    dim: int = 1,
    span: float = 4.0,
    samples: int = 4000,
    tolerance: float = 1e-3,
    strict: bool = False,
    seed: int = 0,
) -> CheckReport:
    """Check numerically whether a function is a generalized mollifier, or a noisy one.

        >>> import torch
        >>> from mollifier.smoothing import check_mollifier
        >>> Gaussian = lambda x, sigma: sigma**2 + x**2            # the Gaussian mollification of a parabola
        >>> check_mollifier(Gaussian, torch.square).ok
        True
        >>> print(check_mollifier(lambda x, sigma: x.abs() + sigma, torch.abs).failed)
        ['differentiable']

    1. converges: T_σ f → f as σ → 0, in the mean over the points (a step converges nowhere uniformly);
    2. easy: its limit at the other end is convex, or what ``easy`` asks for;
    3. differentiable: no jump and no kink at any σ above 0. Where the curve bends most, it is magnified 30,000 times: a smooth curve
       becomes straight, a kink remains;
    4. expectation, if ``noisy`` is given: its mean is T_σ f within 5 standard errors.

    This is evidence, not proof: a kink that is much smaller than the function's own bends can be missed.

    Args:
        transform: ``(x, sigma) -> T_σ f(x)``. x has shape (rows, dim), in float64, and every row is a separate point.
        f: The function.
        noisy: ``(x, sigma, generator) -> φ(x, ξ)``, one draw per row.
        easy: ``"convex"``, ``"affine"``, ``"identity"``, or the limit as a function.
        sigmas: Values from almost 0 to the easy limit. The default is meant for levels; a kernel needs a large number instead of 1.
        dim: The dimension of x.
        span: Points are in [-span, span].
        samples: The number of draws of ``noisy`` at each point.
        tolerance: The tolerance of all comparisons, relative to the size of the function.
        strict: Whether to raise a ValueError if a property fails.
        seed: The seed of the points and draws.
    """
    if len(sigmas) < 3 or list(sigmas) != sorted(set(sigmas)) or not sigmas[0] > 0:
        raise ValueError(f"sigmas={sigmas!r}: expected at least three increasing numbers above 0")
    generator = Generator().manual_seed(seed)
    lines = draw_lines(dim, span, generator)
    with torch.no_grad():
        found = [
            _converges(transform, f, lines, sigmas[0], tolerance),
            _easy(transform, easy, lines, sigmas[-1], tolerance),
            _differentiable(transform, lines, sigmas[1:], tolerance),
        ]
        if noisy is not None:
            found.append(_expectation(transform, noisy, lines, sigmas[1:], samples, generator))
    report = CheckReport(tuple(found))
    if strict and not report.ok:
        raise ValueError(f"check_mollifier: this is not a mollifier of that function.\n{report}")
    return report


def _converges(transform: GeneralizedMollifier, f: Function, lines: Lines, sigma: float, tolerance: float) -> Property:
    x = lines.points()
    plain, near = f(x), transform(x, sigma)
    if near.shape != plain.shape:
        raise ValueError(
            f"transform gives shape {tuple(near.shape)} where f gives {tuple(plain.shape)} for x {tuple(x.shape)}"
        )
    error = float((near - plain).abs().mean()) / (1.0 + float(plain.abs().mean()))
    return Property("converges", error <= tolerance, f"mean |T f - f| is {error:.2g} at sigma {sigma:g}")


def _easy(
    transform: GeneralizedMollifier, easy: Easy | Function, lines: Lines, sigma: float, tolerance: float
) -> Property:
    x = lines.points()
    values = transform(x, sigma)
    size = 1.0 + float((values - values.mean(0)).abs().max())
    if callable(easy) or easy == "identity":
        error = float((values - (easy(x) if callable(easy) else x)).abs().max()) / size
        what = "the given limit" if callable(easy) else "x"
        return Property("easy", error <= tolerance, f"largest |T f - {what}| is {error:.2g} at sigma {sigma:g}")
    if easy not in ("convex", "affine"):
        raise ValueError(f"easy={easy!r}: expected 'convex', 'affine', 'identity' or a function")
    down, up = bend(lines, values)
    error = max(down, up if easy == "affine" else 0.0) / size
    text = f"leaves its chords by {error:.2g} on the {'wrong' if easy == 'convex' else 'one or the other'} side"
    return Property("easy", error <= tolerance, f"{easy}: {text} at sigma {sigma:g}")


def _differentiable(
    transform: GeneralizedMollifier, lines: Lines, sigmas: Sequence[float], tolerance: float
) -> Property:
    jumps = {sigma: kink(lambda x, at=sigma: transform(x, at), lines) for sigma in sigmas}  # type: ignore[misc]
    worst = max(jumps, key=lambda sigma: jumps[sigma])
    text = f"the slope jumps by {jumps[worst]:.2g} of its size at most (sigma {worst:g})"
    return Property("differentiable", jumps[worst] <= 10 * tolerance, text)


def _expectation(
    transform: GeneralizedMollifier,
    noisy: NoisyMollifier,
    lines: Lines,
    sigmas: Sequence[float],
    samples: int,
    generator: Generator,
) -> Property:
    x = lines.points()[:: max(1, lines.rows // 64)]
    worst, where = 0.0, sigmas[0]
    for sigma in sigmas:
        draws = noisy(x.repeat(samples, 1), sigma, generator).view(samples, len(x), -1)
        mean = transform(x, sigma).view(len(x), -1)
        # what happens less than once in all draws does not show in their deviation
        error = draws.std(0) / samples**0.5 + (1.0 + mean.abs()) / samples
        away = float(((draws.mean(0) - mean).abs() / error).max())
        worst, where = max((worst, where), (away, sigma))
    return Property(
        "expectation", worst <= 5.0, f"mean of the draws is {worst:.1f} standard errors away at most (sigma {where:g})"
    )
