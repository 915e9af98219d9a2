"""Samples in Prometheus' text format, by prometheus-client, which knows how to escape and what a type is.

Imported only where metrics are served. Runs in a thread: it is given numbers, and touches no broker.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from kbroker.measures import BOUNDS_S
from kbroker.metrics import DESCRIPTIONS, Kind, Samples

BOUNDS = (*map(str, BOUNDS_S), "+Inf")


class _Collected(Collector):
    """What was read once, for a registry of its own."""

    def __init__(self, everything: Sequence[Samples]) -> None:
        self._everything = everything

    def collect(self) -> Iterator[Metric]:
        return map(family_of, self._everything)


def render(everything: Sequence[Samples]) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(everything))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


def family_of(samples: Samples) -> Metric:
    name, description = samples.name, DESCRIPTIONS[samples.name]
    if description.kind is Kind.HISTOGRAM:
        histograms = HistogramMetricFamily(name, description.text, labels=description.labels)
        for labels, histogram in samples.histograms:
            buckets = list(zip(BOUNDS, accumulate(histogram.counts), strict=True))
            histograms.add_metric(labels, buckets, histogram.sum_s)
        return histograms
    family_type = CounterMetricFamily if description.kind is Kind.COUNTER else GaugeMetricFamily
    family = family_type(name, description.text, labels=description.labels)
    for labels, value in samples.values:
        family.add_metric(labels, value)
    return family
