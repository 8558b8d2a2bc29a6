"""Settings files: precedence, error messages, and the printed template."""

from enum import StrEnum

import pytest
import yaml

from posir_tasks.base.errors import PosirError
from posir_tasks.base.settings_file import Section, describe_settings, dump_settings, load_settings


class Color(StrEnum):
    RED = "red"
    BLUE = "blue"


class Brush(Section):
    """A section."""

    width: int = 3
    """In pixels."""


class Painting(Section):
    """Settings."""

    title: str
    """Of the painting."""
    color: Color | None = None
    """Of the background."""
    layers: tuple[str, ...] = ()
    brush: Brush = Brush()
    price: float = 0.0


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "painting.yaml"
    path.write_text("title: sea\ncolor: red\nbrush: {width: 5}\n")
    return path


def test_options_take_precedence_over_overrides_and_overrides_over_the_file(file):
    loaded = load_settings(
        Painting,
        file,
        {"color": "blue", "title": "sky"},
        {"title": "land", "color": None, "layers": []},
    )
    assert (loaded.title, loaded.color, loaded.brush.width, loaded.layers) == (
        "land",
        Color.BLUE,
        5,
        (),
    )


def test_overrides_change_fields_in_sections(file):
    loaded = load_settings(Painting, file, {"color": Color.BLUE, "brush": {}, "layers": ["oil"]})
    assert (loaded.title, loaded.color, loaded.brush.width, loaded.layers) == (
        "sea",
        Color.BLUE,
        5,
        ("oil",),
    )
    assert load_settings(Painting, file, {"brush": {"width": 7}}).brush.width == 7
    assert load_settings(Painting, None, {"title": "sky", "brush": {"width": 7}}).brush.width == 7


@pytest.mark.parametrize(
    ("overrides", "options", "message"),
    [
        ({}, {"color": "green"}, "--color: Input should be 'red' or 'blue'"),
        (
            {"color": "green"},
            {"color": None},
            "painting.yaml: field 'color': Input should be 'red' or 'blue'",
        ),
        ({"colr": "red"}, {}, "painting.yaml: field 'colr': unknown field; did you mean color"),
        ({"brush": {"size": 1}}, {}, "painting.yaml: field 'brush.size': unknown field"),
        ({"price": float("nan")}, {}, "finite"),
        ({"price": float("inf")}, {}, "finite"),
        ({}, {"price": float("inf")}, "finite"),
    ],
)
def test_errors_name_the_source_of_the_value(file, overrides, options, message):
    with pytest.raises(PosirError, match=message):
        load_settings(Painting, file, overrides, options)
    for given, said in (({"title": None}, "--title"), ({}, "settings: field 'title'")):
        with pytest.raises(PosirError, match=f"^{said}: Field required$"):
            load_settings(Painting, None, {}, given)


def test_the_template_contains_every_setting():
    text = describe_settings(Painting)
    assert (
        "# Of the painting. Required.\ntitle:\n# Of the background. One of red, blue.\ncolor: "
        "null\nlayers: []\n" in text
    )
    assert "brush:\n  # In pixels.\n  width: 3" in text
    assert Painting(**yaml.safe_load(text) | {"title": "sea"}) == Painting(title="sea")


def test_dumped_settings_can_be_loaded(tmp_path):
    settings = Painting(title="no", color=Color.RED, layers=("a", "ü"), brush=Brush(width=1))
    file = tmp_path / "written.yaml"
    file.write_text(dump_settings(settings), encoding="utf-8")
    assert load_settings(Painting, file) == settings
