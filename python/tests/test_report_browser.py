"""The pages in real browsers: Chromium, which refuses other files on file://, and Firefox."""

import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import browsers
import numpy as np
import pytest

import morphseek
from helpers import QUICK, blob
from morphseek import images, phantom
from morphseek.phantom import PhantomPair
from morphseek.report import IndexRow, write_index, write_report
from morphseek.scoring import score_labels, score_landmarks

INSTALLED = {
    "chromium": browsers.found(browsers.CHROMIUM),
    "firefox": browsers.found(browsers.FIREFOX),
}
READY = "document.getElementById('viewer').dataset.ready"
STATE = "({...document.getElementById('viewer').dataset})"


def needs(name: str) -> None:
    """Skip with a warning if a browser is missing; CI can forbid that."""
    if INSTALLED[name]:
        return
    said = f"{name} is not installed: the page was not tested in it"
    assert not os.environ.get("MORPHSEEK_NEEDS_BROWSERS"), said
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.warn(said, stacklevel=2)
    pytest.skip(said)


@pytest.fixture(scope="module")
def folder(
    pair: PhantomPair, result: morphseek.Registration, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Make pages of a pair with two contrasts and of one with one, and an index of many pairs."""
    made = tmp_path_factory.mktemp("pages")
    points = np.array([[0.0, 0, 0], [12, -9, 20]])
    labels = {"fixed_labels": pair.fixed_labels, "moving_labels": pair.moving_labels}
    write_report(
        made / "two.html", result, pair.fixed, pair.moving, **labels,
        scores=score_labels(result, *labels.values()),
        label_names={**phantom.LABELS, 1: "<img src=x onerror=document.title=1>"},
        landmarks=score_landmarks(result, points, result.transform_points(points) + 2),
        estimated_error=np.abs(result.displacement()[0]),
        command="morphseek register a.nii.gz '<img src=x onerror=alert(1)>.nii.gz' --out out",
        title="<img src=x onerror=alert(1)>.nii.gz onto a.nii.gz",
    )  # fmt: skip
    array = np.tile(blob((40, 44, 48)), (2, 2, 2))
    one = morphseek.register(array, np.roll(array, 2, 2), **QUICK)
    one.metrics["align"]["same_modality"] = True
    with pytest.MonkeyPatch.context() as patch:  # "before" and the maps at half the resolution
        patch.setattr("morphseek.report.views.LARGE", 600_000)
        write_report(made / "one.html", one, array, np.roll(array, 2, 2))
    write_report(made / "small.html", one, array, np.roll(array, 2, 2), size="small")
    rows = [
        IndexRow(
            f"pair {i}<b>", verdict=("good", "check", "failed")[i % 3], error_mm=i % 17 / 3,
            dice_after=0.5 + i % 40 / 100, tre_mm=1 + i % 9, page="small.html",
        )
        for i in range(1000)
    ]  # fmt: skip
    write_index(made / "index.html", rows, command="morphseek pairs a.csv", version="1")
    return made


@pytest.fixture(scope="module", params=["chromium", "firefox"])
def browser(request: pytest.FixtureRequest) -> Iterator[browsers.Chromium | browsers.Firefox]:
    needs(request.param)
    # without 3-D: the page draws in two
    opened = (
        browsers.chromium("--disable-3d-apis")
        if request.param == "chromium"
        else browsers.firefox(webgl_disabled=True)
    )
    with opened as found:
        found.window(1440, 900)
        yield found


def opened(browser: browsers.Browser, page: Path) -> dict[str, str]:
    browser.open(page)
    browser.wait(READY)
    return browser.run(STATE)


def state_after(browser: browsers.Browser, script: str) -> dict[str, str]:
    """Return the viewer's state after it has drawn the result of a script."""
    browser.run(f"(() => {{ {script} }})()")
    return drawn(browser)


def drawn(browser: browsers.Browser) -> dict[str, str]:
    return browser.run(
        "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() =>"
        f" done({STATE}))))"
    )


def mouse(kind: str, **what: object) -> str:
    """Return a script that sends an event to the middle of the first view."""
    kinds = {"wheel": "WheelEvent", "dblclick": "MouseEvent"}
    fields = ", ".join(f"{k}: {v}" for k, v in what.items() if k not in ("dx", "dy"))
    return (
        "const v = document.querySelector('#views canvas'), b = v.getBoundingClientRect();"
        f"v.setPointerCapture = () => 0; v.dispatchEvent(new {kinds.get(kind, 'PointerEvent')}"
        f"('{kind}', {{bubbles: true, cancelable: true, pointerId: 1,"
        f" clientX: b.x + b.width / 2 + {what.get('dx', 0)},"
        f" clientY: b.y + b.height / 2 + {what.get('dy', 0)}, {fields}}}));"
    )


def ink(browser: browsers.Browser, view: int = -1) -> float:
    """Return how bright a view is on average."""
    return browser.run(
        f"(() => {{ const v = [...document.querySelectorAll('#views canvas')].at({view});"
        "const c = new OffscreenCanvas(v.width, v.height)"
        ".getContext('2d', {willReadFrequently: true}); c.drawImage(v, 0, 0);"
        "const d = c.getImageData(0, 0, v.width, v.height).data;"
        "let s = 0; for (let i = 0; i < d.length; i += 4) s += d[i] + d[i+1] + d[i+2];"
        "return s / d.length; })()"
    )


def test_it_opens_and_says_the_verdict(browser: browsers.Browser, folder: Path):
    opened(browser, folder / "two.html")
    assert browser.run("document.querySelector('h1').textContent").startswith(
        ("\u2713 Verdict: good", "! Verdict: check", "\u2715 Verdict: failed")
    )
    assert browser.run("document.getElementById('still').hidden")
    assert browser.run("document.querySelectorAll('#views canvas').length") == 6
    assert ink(browser) > 5
    assert browser.requests() == [] and browser.complaints() == []
    # everything that belongs on the first screen is there
    for part in ("h1", ".tiles", "#modes", "#jumps", "#readout"):
        bottom = browser.run(f"document.querySelector('{part}').getBoundingClientRect().bottom")
        assert 0 < bottom <= 900, part


def test_modes_and_overlays(browser: browsers.Browser, folder: Path):
    for page, modes in (("two.html", 7), ("one.html", 8)):
        opened(browser, folder / page)
        found = browser.run(
            "[...document.querySelectorAll('#modes button')].map(b => b.dataset.mode)"
        )
        assert len(found) == modes and ("difference" in found) == (modes == 8)
        views = {"overview": 6, "rows": 9}
        for mode in found:
            click = f"document.querySelector('[data-mode={mode}]').click()"
            assert state_after(browser, click)["mode"] == mode
            shown = browser.run("document.querySelectorAll('#views canvas').length")
            assert shown == views.get(mode, 3) and ink(browser) > 3
            pressed = "document.querySelector('[data-mode][aria-pressed=true]').dataset.mode"
            assert browser.run(pressed) == mode
        for select in ("overlay", "outlines", "plane"):
            values = browser.run(
                f"[...document.getElementById('{select}').options].map(o => o.value)"
            )
            for value in values:
                state_after(
                    browser,
                    f"const s = document.getElementById('{select}'); s.value = '{value}';"
                    "s.dispatchEvent(new Event('change'));",
                )
                assert ink(browser) > 1
        assert browser.complaints() == []


def test_the_mouse_of_a_radiologist(browser: browsers.Browser, folder: Path):
    start = opened(browser, folder / "two.html")
    x, y, z = map(int, start["position"].split())
    wheel = state_after(browser, mouse("wheel", deltaY=-120))
    assert wheel["position"] == f"{x} {y} {z + 1}"
    zoomed = state_after(browser, mouse("wheel", deltaY=-120, ctrlKey="true"))
    assert float(zoomed["zoom"]) > 1 and zoomed["position"] == wheel["position"]
    state_after(browser, mouse("pointerdown", button=2))
    state_after(browser, mouse("pointermove", dx=40, dy=10))
    windowed = state_after(browser, mouse("pointerup", button=2))
    assert windowed["windows"] != zoomed["windows"] and windowed["position"] == wheel["position"]
    state_after(browser, mouse("pointerdown", button=0, dx=30))
    moved = state_after(browser, mouse("pointerup", button=0))
    assert moved["position"] != wheel["position"]
    reset = state_after(browser, mouse("dblclick"))
    assert reset["zoom"] == "1.00" and reset["windows"] == start["windows"]
    assert browser.complaints() == []


def test_the_keyboard_and_the_names(browser: browsers.Browser, folder: Path):
    start = opened(browser, folder / "two.html")
    x, y, z = map(int, start["position"].split())
    names = browser.run("[...document.querySelectorAll('#views canvas')].map(v => v.ariaLabel)")
    assert names[0] == "before, axial" and len(set(names)) == 6
    browser.run("document.querySelector('#views canvas').focus()")
    for key, place in (
        ("PageUp", (x, y, z + 1)),
        ("ArrowLeft", (x - 1, y, z + 1)),
        ("ArrowUp", (x - 1, y - 1, z + 1)),
    ):
        browser.key(key)
        assert drawn(browser)["position"] == " ".join(map(str, place)), key
    said = browser.run("document.activeElement.getAttribute('aria-valuetext')")
    assert said.startswith(f"slice {z + 2} of ")
    browser.key("5")
    assert drawn(browser)["mode"] == "checker"
    browser.key(" ")
    assert drawn(browser)["moving"] == "before"
    browser.key("f")
    assert drawn(browser)["overlay"] == "grid"
    live = browser.wait("document.getElementById('live').textContent")
    assert "position" in live and "label" in live
    assert browser.run("document.querySelectorAll('[aria-live]').length") == 1
    unnamed = (
        "[...document.querySelectorAll('button, select, input, canvas[tabindex], img, svg')]"
        ".filter(e => !(e.textContent.trim() || e.ariaLabel || e.alt || e.labels?.length)).length"
    )
    assert browser.run(unnamed) == 0


def test_jumps(browser: browsers.Browser, folder: Path):
    opened(browser, folder / "two.html")
    jumps = browser.run("[...document.querySelectorAll('#jumps button')].map(b => b.textContent)")
    for said in ("estimated error", "bend", "grown", "worst label", "worst landmark", "middle"):
        (number,) = [i for i, text in enumerate(jumps) if said in text]
        state = state_after(
            browser, f"document.querySelectorAll('#jumps button')[{number}].click()"
        )
        at = [int(v) for v in state["position"].split()]
        wanted = browser.run(f"{number} >= 0 && document.getElementById('readout').textContent")
        assert "voxel" in wanted and min(at) >= 0
        if said == "estimated error":
            assert state["overlay"] == "error"
        if said == "worst label":
            assert state["outlines"].isdigit()


def test_it_says_that_the_headers_lay_the_images_apart(browser, folder, tmp_path):
    array = blob((24, 24, 24))
    apart = images.Image(array, origin=(500.0, 0, 0))
    result = morphseek.register(array, apart, **QUICK)
    write_report(tmp_path / "apart.html", result, array, apart)
    opened(browser, tmp_path / "apart.html")
    assert "lies outside" in browser.run("document.getElementById('remarks').textContent")
    opened(browser, folder / "two.html")
    assert "is cut to" in browser.run("document.getElementById('remarks').textContent")


def test_names_stay_text(browser: browsers.Browser, folder: Path):
    opened(browser, folder / "two.html")
    assert browser.run("document.querySelectorAll('img[src=x]').length") == 0
    assert "<img src=x" in browser.run("document.querySelector('.what').textContent")
    assert "<img src=x" in browser.run("document.getElementById('outlines').textContent")
    assert browser.run("document.title").startswith("Registration report")


def test_it_prints_one_page(browser: browsers.Browser, folder: Path):
    opened(browser, folder / "two.html")
    for mode in ("overview", "rows", "swipe"):
        state_after(browser, f"document.querySelector('[data-mode={mode}]').click()")
        assert browsers.pages_of(browser.pdf()) == 1, mode
    browser.open(folder / "small.html")
    assert browsers.pages_of(browser.pdf()) == 1


def test_print_cuts_no_reason(folder: Path):
    """Three reasons of two lines, which are the longest ones, fit the page."""
    needs("chromium")
    with browsers.chromium() as browser:
        browser.window(1026, 720)  # A4
        opened(browser, folder / "two.html")
        browser.run(
            "(() => { const l = document.querySelector('.said ul') || document.querySelector("
            "'.said').appendChild(document.createElement('ul')); l.textContent = '';"
            "for (let i = 0; i < 3; i++) l.appendChild(document.createElement('li')).textContent ="
            "'The images match better with one of them mirrored: check head and foot in both"
            " headers, and that both show the same part of the body.'; })()"
        )
        assert browsers.pages_of(browser.pdf()) == 1
        browser.printed()
        hidden = "(e => e.scrollHeight - e.clientHeight)(document.querySelector('.said ul'))"
        assert browser.run(hidden) <= 1


def test_the_index_sorts_and_filters(browser: browsers.Browser, folder: Path):
    browser.open(folder / "index.html")
    first = "document.querySelector('#pairs tbody tr:not([hidden])').textContent"
    assert "failed" in browser.run(first)
    heads = browser.run("[...document.querySelectorAll('#pairs th')].map(h => h.textContent)")
    dice = heads.index("Dice")
    click = f"document.querySelectorAll('#pairs th')[{dice}].firstChild.click()"
    started = browser.run("performance.now()")
    browser.run(click)
    column = (
        f"[...document.querySelectorAll('#pairs tbody tr')].map(r => +r.cells[{dice}].textContent)"
    )
    values = browser.run(column)
    assert values == sorted(values) and len(values) == 1000
    browser.run(click)
    assert browser.run(column) == values[::-1]
    assert browser.run("performance.now()") - started < 5000
    browser.run(
        "(() => { const f = document.getElementById('find'); f.value = 'pair 99';"
        "f.dispatchEvent(new Event('input')); })()"
    )
    assert browser.run("document.getElementById('shown').textContent") == "19 of 1000 pairs"
    assert browser.run("document.querySelectorAll('svg').length") == 3
    assert (
        browser.run("document.querySelector('#pairs tbody a').getAttribute('href')") == "small.html"
    )
    assert browser.run("document.querySelector('#pairs img').naturalWidth") > 30
    assert browser.requests() == [] and browser.complaints() == []


def test_a_phone(folder: Path):
    needs("chromium")
    with browsers.chromium() as browser:
        browser.window(390, 844, 3, dark=True)
        for page in ("two.html", "small.html", "index.html"):
            browser.open(folder / page)
            if page == "two.html":
                browser.wait(READY)
                box = browser.run("document.querySelector('#views').getBoundingClientRect().width")
                assert 300 < box <= 390
            wide = browser.run("document.documentElement.scrollWidth")
            assert wide <= 391, page
        dark = browser.run("getComputedStyle(document.body).backgroundColor")
        assert dark == "rgb(16, 19, 21)"


@pytest.mark.parametrize("name", ["chromium", "firefox"])
def test_without_scripts_the_picture_stays(name: str, folder: Path):
    needs(name)
    with browsers.chromium() if name == "chromium" else browsers.firefox() as browser:
        browser.window(1440, 900)
        browser.open(folder / "two.html")
        with_scripts = browser.screenshot()
        assert browser.wait(READY)
    off = browsers.firefox(javascript_enabled=False) if name == "firefox" else browsers.chromium()
    with off as browser:
        browser.window(1440, 900)
        if isinstance(browser, browsers.Chromium):
            browser.without_scripts()
        browser.open(folder / "two.html")
        shown = browser.screenshot()
        assert len(shown) > 20_000 and shown != with_scripts
        if isinstance(browser, browsers.Chromium):  # an evaluation of ours still runs there
            assert browser.run("document.querySelector('#still img').naturalWidth") > 400
            assert browser.run("document.getElementById('viewer').hidden")
        assert browsers.pages_of(browser.pdf()) == 1
