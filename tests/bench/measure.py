"""Ratios that can be trusted on a noisy machine: the two sides take turns, and medians speak."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

Work = Callable[[], object]


@dataclass
class Ratio:
    """Median of the ratios of all pairs, and how far they spread."""

    value: float
    low: float
    """First quartile."""
    high: float
    """Third quartile."""
    pairs: int

    @property
    def spread(self) -> str:
        return f"{self.low:.2f} to {self.high:.2f} ({self.pairs} pairs)"


def seconds(work: Work) -> float:
    """CPU seconds of one run, the collector's work included."""
    started = time.process_time()
    work()
    return time.process_time() - started


def paired(numerator: Work, denominator: Work, pairs: int, scale: float = 1.0) -> Ratio:
    """Run both in turns, the order changing from pair to pair, and take the ratio of each pair.

    ``scale``: how many times the numerator's work the denominator does.
    """
    ratios = []
    numerator()  # warm
    denominator()
    for pair in range(pairs):
        gc.collect()
        if pair % 2:
            below, above = seconds(denominator), seconds(numerator)
        else:
            above, below = seconds(numerator), seconds(denominator)
        ratios.append(above / below * scale)
    return summary(ratios)


def summary(ratios: list[float]) -> Ratio:
    """Median and quartiles."""
    if len(ratios) < 2:
        return Ratio(ratios[0], ratios[0], ratios[0], len(ratios))
    low, middle, high = statistics.quantiles(ratios, n=4)
    return Ratio(middle, low, high, len(ratios))
