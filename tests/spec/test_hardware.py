"""Architectures, their spellings and features."""

from __future__ import annotations

import pytest

from d2k.spec.dtypes import per_container, storage_bytes
from d2k.spec.hardware import ARCHITECTURES, FEATURES, has_features, normalise_architecture


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("sm_100a", "sm100"),
        ("sm100", "sm100"),
        ("SM_90a", "sm90"),
        ("compute_90", "sm90"),
        ("sm_103f", "sm103"),
        ("120", "sm120"),
        (" sm80 ", "sm80"),
        ("sm95", None),
        ("sm_100b", None),
        ("sm", None),
        ("sm1000", None),
        ("", None),
    ],
)
def test_spellings(spelling: str, name: str | None) -> None:
    assert normalise_architecture(spelling) == name


@pytest.mark.parametrize(
    ("feature", "targets"),
    [
        ("cp_async", {"sm80", "sm86", "sm89", "sm90", "sm100", "sm103", "sm120"}),
        ("fp8", {"sm89", "sm90", "sm100", "sm103", "sm120"}),
        ("tma", {"sm90", "sm100", "sm103", "sm120"}),
        ("wgmma", {"sm90"}),
        ("tcgen05", {"sm100", "sm103"}),
        ("tmem", {"sm100", "sm103"}),
        ("two_cta", {"sm100", "sm103"}),
        ("fp4", {"sm100", "sm103", "sm120"}),
        ("block_scale", {"sm100", "sm103", "sm120"}),
        ("tma_multicast", {"sm90", "sm100", "sm103"}),
    ],
)
def test_which_architectures_have_a_feature(feature: str, targets: set[str]) -> None:
    assert {name for name in ARCHITECTURES if has_features(name, frozenset({feature}))} == targets


def test_features_of_architectures_are_the_known_ones_and_names_follow_generations() -> None:
    assert frozenset().union(*(one.features for one in ARCHITECTURES.values())) == set(FEATURES)
    assert all(one.name == f"sm{one.generation}" for one in ARCHITECTURES.values())
    assert list(ARCHITECTURES.values()) == sorted(ARCHITECTURES.values(), key=lambda one: one.generation)


def test_storage_of_sub_byte_types_is_rounded_up_to_bytes() -> None:
    assert storage_bytes("f4e2m1", 5) == 3
    assert storage_bytes("bf16", 5) == 10
    assert storage_bytes("i64", 0) == 0


def test_containers_hold_whole_numbers_of_elements() -> None:
    assert per_container("u4", "u8") == 2
    assert per_container("u4", "i32") == 8
    assert per_container("bf16", "u8") == 0
