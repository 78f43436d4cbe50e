"""Secrets of API keys can be selected, copied and typed."""

from __future__ import annotations

import re

from threadkeep.domain.api_keys import new_secret, number_in


def test_a_double_click_selects_a_whole_secret() -> None:
    for _ in range(100):
        secret = new_secret(0x06F3248962695A00)
        assert re.fullmatch(r"tk_06f3248962695a00_[A-Za-z0-9]{43}", secret)
        assert number_in(secret) == 0x06F3248962695A00
