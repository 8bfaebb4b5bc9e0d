"""The colours of the style sheet can be read: WCAG 2.2 AA, computed from its variables, in light and dark."""

import re
from itertools import product
from typing import Final

import pytest

from ringback.ui.assets import ASSETS

TEXT_CONTRAST_MIN: Final = 4.5
GRAPHICS_CONTRAST_MIN: Final = 3.0
"""Of borders of controls, and of the marks of charts, with what is beside them."""
SURFACES: Final = ("page", "surface", "sunken")
TONES: Final = ("good", "warn", "bad", "busy", "quiet")
TEXT_PAIRS: Final = (
    *product(("ink", "muted", "accent"), SURFACES),
    *product(TONES, ("page", "surface")),
    *((tone, f"{tone}-fill") for tone in TONES),
    ("accent", "accent-fill"),
    ("ink", "accent-fill"),
    ("accent-ink", "accent"),
)
GRAPHICS_PAIRS: Final = (
    ("control", "surface"),
    ("control", "page"),
    ("accent", "page"),
    *((f"series-{number}", "surface") for number in range(1, 8)),
)

STYLE_SHEET: Final = ASSETS["ringback.css"].content.decode()


def read_colours(scheme: str) -> dict[str, str]:
    light, dark = re.findall(r":root \{(.*?)\}", STYLE_SHEET, flags=re.DOTALL)
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", light))
    return colours if scheme == "light" else colours | dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", dark))


def luminance(colour: str) -> float:
    channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_marks_stand_out_from_what_is_behind_them(scheme: str) -> None:
    colours = read_colours(scheme)
    wanted = dict.fromkeys(TEXT_PAIRS, TEXT_CONTRAST_MIN) | dict.fromkeys(GRAPHICS_PAIRS, GRAPHICS_CONTRAST_MIN)
    found = {pair: round(contrast(colours[pair[0]], colours[pair[1]]), 2) for pair in wanted}

    assert {pair: ratio for pair, ratio in found.items() if ratio < wanted[pair]} == {}


def test_black_on_white_has_the_largest_contrast() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)


def test_every_colour_of_the_style_sheet_is_a_variable_of_both_schemes() -> None:
    light, dark = re.findall(r":root \{(.*?)\}", STYLE_SHEET, flags=re.DOTALL)
    rules = STYLE_SHEET.replace(light, "").replace(dark, "")

    assert set(re.findall(r"--([\w-]+):", light)) == set(re.findall(r"--([\w-]+):", dark))
    assert set(re.findall(r"#[0-9a-fA-F]{3,8}\b", rules)) <= {"#0006", "#0008"}, "shadows only"
    assert set(re.findall(r"var\(--([\w-]+)\)", rules)) <= set(re.findall(r"--([\w-]+):", light)) | {"series"}
