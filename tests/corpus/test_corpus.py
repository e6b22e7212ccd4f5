"""The detectors on real kernels: figures may not fall below what docs/accuracy.md promises. Needs `make corpus`."""

from __future__ import annotations

import re

import pytest

from tests.corpus.accuracy import CORPUS, HERE, Label, cases, kappa, labels, rates, wilson

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus is not there: `make corpus`"),
]
PAGE = HERE.parents[1] / "docs" / "accuracy.md"


def test_precision_is_what_the_page_says() -> None:
    stated = re.search(r"## triton\n\n### untouched third\n(?:.*\n)*?- precision micro (\d\.\d+)", PAGE.read_text())
    assert stated is not None
    untouched = rates(one for one in cases(labels(HERE / "labels" / "triton")) if one.label.untouched)
    assert untouched.precision is not None
    assert untouched.precision >= float(stated.group(1)) - 0.005


def test_wilson_interval_of_a_known_case() -> None:
    # Newcombe 1998, table I: 81 of 263 has the 95 % score interval 0.2553 to 0.3662
    low, high = wilson(81, 263)
    assert (round(low, 4), round(high, 4)) == (0.2553, 0.3662)


def test_kappa_of_a_known_case() -> None:
    # 20 agreed present, 15 agreed absent, 5 and 10 split: observed 0.7, by chance 0.5, kappa 0.4
    def label(name: str, verdict: str) -> tuple[str, str]:
        return name, verdict

    first = [label(f"p{n}", "present" if n < 25 else "absent") for n in range(50)]
    second = [label(f"p{n}", "present" if n < 20 or 25 <= n < 35 else "absent") for n in range(50)]
    one, two = (Label("p", "f.py", "k", dict(pairs)) for pairs in (first, second))
    agreement, count = kappa([one], [two])
    assert count == 50
    assert agreement == pytest.approx(0.4)
