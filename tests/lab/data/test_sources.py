from __future__ import annotations

import re

import pytest

from mollifier_lab.data.sources import SOURCES, File, source
from mollifier_lab.errors import LabError


@pytest.mark.parametrize("name", SOURCES)
def test_every_set_can_be_fetched_and_checked(name):
    facts = source(name)
    assert facts.name == name
    assert facts.mirrors or facts.archive
    for file in facts.files:
        if file.checksum:
            assert re.fullmatch(r"sha256:[0-9a-f]{64}|sha1:[0-9a-f]{40}", file.checksum)
        else:
            assert facts.archive.checksum.startswith("sha256:")
    for address in (*facts.mirrors, *(facts.archive.addresses if facts.archive else ())):
        assert address.startswith("https://")
    assert all(mirror.endswith("/") for mirror in facts.mirrors)


def test_an_unknown_set_is_named_with_the_nearest():
    with pytest.raises(LabError, match="did you mean 'mnist'"):
        source("minst")


def test_the_stronger_checksum_is_used():
    assert File("a", sha256="1", sha1="2").checksum == "sha256:1"
    assert File("a", sha1="2").checksum == "sha1:2"
    assert File("a").checksum is None
