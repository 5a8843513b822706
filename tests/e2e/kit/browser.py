"""Chromium without a screen, driven through the page as a person would: by what can be seen and clicked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from shutil import which
from typing import Any

from selenium import webdriver
from selenium.common.exceptions import TimeoutException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from tests.e2e.kit.waiting import DEADLINE

_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
)  # fmt: skip
_AXE = """
const done = arguments[arguments.length - 1];
axe.run().then((found) => done(found.violations.map((each) => each.id + ": " + each.nodes[0].html)));
"""


class Browser:
    """One window."""

    def __init__(self, driver: webdriver.Chrome, origin: str) -> None:
        self.driver = driver
        self.origin = origin
        self._axe = (files("axe_core_python") / "axe.min.js").read_text()

    def go(self, path: str) -> None:
        """Load a page, and wait until all that it loads later is there."""
        self.driver.get(self.origin + path)
        self.settle()

    def settle(self) -> None:
        """Wait until nothing is being loaded."""
        quiet = (
            "return document.readyState === 'complete' && !document.querySelector('.loading, .htmx-request')"
        )
        self.until(lambda: self.run(quiet), "the page to be loaded")

    def until(self, found: Any, what: str) -> Any:
        """What `found` gives, once it is true. The failure has what the page shows then."""
        try:
            return WebDriverWait(self.driver, DEADLINE, 0.05).until(lambda _: found())
        except TimeoutException:
            shown = f"{self.driver.current_url} shows {self.text[:2000]!r}"
            raise AssertionError(f"waited for {what}; {shown}") from None

    def run(self, script: str, *values: object) -> Any:
        return self.driver.execute_script(script, *values)

    def one(self, selector: str) -> WebElement:
        """By a CSS selector."""
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def click(self, words: str) -> None:
        """Press the button or link that says this, and wait for the page that follows."""
        sought = f"//*[self::a or self::button][starts-with(normalize-space(.), '{words}')]"
        found: WebElement = self.until(
            lambda: next(iter(self.driver.find_elements(By.XPATH, sought)), None), f"a button {words}"
        )
        self.run("arguments[0].scrollIntoView({block: 'center'})", found)
        self.run("window.left = false")
        found.click()
        self.until(lambda: self.run("return window.left !== false"), "the page that follows")
        self.settle()

    def fill(self, name: str, text: str) -> None:
        """Write into the field of this name."""
        field = self.one(f"[name={name}]:not([type=hidden])")
        field.clear()
        field.send_keys(text)

    def offers(self, word: str) -> None:
        """Wait until the box for conditions suggests this first."""
        first = "return (document.querySelector('[role=option] b') || {}).textContent"
        self.until(lambda: self.run(first) == word, f"the suggestion {word}")

    def reads(self, words: str) -> None:
        """Wait until the page has these words."""
        self.until(lambda: words in self.text, repr(words))

    @property
    def text(self) -> str:
        """What can be seen."""
        return str(self.run("return document.body.innerText"))

    def type(self, *keys: str) -> None:
        """Press keys, whatever has the focus."""
        self.driver.switch_to.active_element.send_keys(*keys)

    def looks(self, *, dark: bool, width: int) -> None:
        """How the display is."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def violations(self) -> list[str]:
        """What axe-core finds on this page."""
        self.run(self._axe)
        found: list[str] = self.driver.execute_async_script(_AXE)
        return found

    def complaints(self) -> list[str]:
        """What the console has got since it was last asked: errors of scripts, refusals by the policy."""
        return [str(json.dumps(each)) for each in self.driver.get_log("browser")]  # type: ignore[no-untyped-call]


@contextmanager
def browser(origin: str, profile: Path) -> Iterator[Browser]:
    """A new window, with a profile of its own."""
    options = webdriver.ChromeOptions()
    options.binary_location = which("chromium") or ""
    for flag in (*_FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(executable_path=which("chromedriver"))
    driver = webdriver.Chrome(options=options, service=service)
    try:
        yield Browser(driver, origin)
    finally:
        driver.quit()


ENTER, DOWN, TAB = Keys.ENTER, Keys.ARROW_DOWN, Keys.TAB
