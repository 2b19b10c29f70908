"""The chat page in a real headless Chromium: sends, streams, stops. `make test-page` runs it; it
needs the Debian packages chromium and chromium-driver.

    tests/server/page_check.py [--screenshot FILE.png]
"""

import argparse
import shutil
import sys
import time
import unittest

from octet_server import SMOLLM2, OctetServer, use_test_packages

use_test_packages()

from selenium import webdriver  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

SECONDS = 60
screenshot_file = None


def make_browser():
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                 "--window-size=1000,760"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(executable_path=shutil.which("chromedriver"))
    return webdriver.Chrome(options=options, service=service)


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = OctetServer(SMOLLM2, "--served-model-name", "SmolLM2-135M-Instruct")
        cls.browser = make_browser()

    @classmethod
    def tearDownClass(cls):
        cls.browser.quit()
        cls.server.stop()

    def setUp(self):
        self.browser.get(self.server.url + "/")
        self.wait(lambda: self.text("model") == "SmolLM2-135M-Instruct")
        self.browser.get_log("browser")  # what other tests left there

    def find(self, element):
        return self.browser.find_element(By.ID, element)

    def text(self, element):
        return self.find(element).text

    def wait(self, condition):
        WebDriverWait(self.browser, SECONDS, 0.02).until(lambda _: condition())

    def answers(self):
        return [e.text for e in self.browser.find_elements(By.CSS_SELECTOR, ".assistant p")]

    def set(self, element, value):
        self.browser.execute_script(
            "document.getElementById(arguments[0]).value = arguments[1]", element, value
        )

    def send(self, text):
        box = self.find("input")
        box.send_keys(text)
        box.send_keys(Keys.ENTER)

    def test_sends_and_streams(self):
        self.set("temperature", "0")
        self.set("max-tokens", "60")
        # Counts the pieces of text as they come: to look now and then would miss most of them.
        self.browser.execute_script("""
            window.pieces = 0;
            new MutationObserver((changes) => {
              for (const change of changes) window.pieces += change.addedNodes.length;
            }).observe(document.getElementById("messages"), {childList: true, subtree: true});
        """)
        self.send("What is the capital of France? Explain.")
        self.wait(lambda: "tokens read" in self.text("status"))
        pieces = self.browser.execute_script("return window.pieces")
        self.assertGreater(pieces, 5, "the answer came in one piece")
        self.assertIn("Paris", self.answers()[0])
        self.assertIn("tokens read", self.text("status"))
        self.assertEqual([entry for entry in self.browser.get_log("browser") if entry["level"] == "SEVERE"], [])
        if screenshot_file:
            self.browser.save_screenshot(screenshot_file)

    def test_stops(self):
        self.set("temperature", "0")
        self.send("Tell me a very long story about a king, with many chapters.")
        self.wait(lambda: self.answers() and len(self.answers()[0]) > 20)
        self.find("stop").click()
        self.wait(lambda: self.text("status") == "Stopped.")
        length = len(self.answers()[0])
        time.sleep(0.5)
        self.assertEqual(len(self.answers()[0]), length)
        self.assertTrue(self.find("send").is_displayed())
        # The conversation goes on from what was written.
        self.set("max-tokens", "5")
        self.send("Thank you.")
        self.wait(lambda: len(self.answers()) == 2 and "tokens read" in self.text("status"))

    def test_what_is_written_is_text_and_nothing_else(self):
        hostile = "<img src=x onerror=document.title='hit'><script>document.title='hit'</script>"
        self.set("max-tokens", "3")
        self.send(hostile)
        self.wait(lambda: "tokens read" in self.text("status"))
        shown = self.browser.find_element(By.CSS_SELECTOR, ".user p").text
        self.assertEqual(shown, hostile)
        self.assertEqual(self.browser.title, "octet")
        self.assertEqual(self.browser.find_elements(By.CSS_SELECTOR, "main img, main script"), [])

    def test_errors_are_shown_and_the_text_comes_back(self):
        self.set("max-tokens", "100000")
        self.send("Hello")
        self.wait(lambda: self.browser.find_elements(By.CSS_SELECTOR, ".error"))
        self.assertIn("max_tokens", self.browser.find_element(By.CSS_SELECTOR, ".error p").text)
        self.assertEqual(self.find("input").get_attribute("value"), "Hello")

    def test_the_keyboard_is_enough(self):
        self.assertEqual(self.browser.switch_to.active_element.get_attribute("id"), "input")
        self.send("Count to a thousand.")
        self.wait(lambda: self.answers() and len(self.answers()[0]) > 5)
        self.browser.switch_to.active_element.send_keys(Keys.ESCAPE)
        self.wait(lambda: self.text("status") == "Stopped.")
        for name in ("settings-button", "clear", "input", "send"):
            element = self.find(name)
            self.assertTrue(element.accessible_name, name)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--screenshot", metavar="FILE.png")
    arguments, rest = parser.parse_known_args()
    screenshot_file = arguments.screenshot
    unittest.main(argv=[sys.argv[0], *rest])
