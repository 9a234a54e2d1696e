"""Open WebUI in a browser, used as a person would: what is on the page is told, a line of JSON each.

python open_webui.py URL CHROMIUM
"""

import json
import sys

from playwright.sync_api import Page, expect, sync_playwright

# A busy machine takes this long to show a page.
PATIENCE = 30_000


def told(name: str, value: object) -> None:
    print(json.dumps([name, value]), flush=True)


def answers(page: Page) -> list[str]:
    """What the agent said, without the page's own words below it."""
    found = page.locator(".chat-assistant #response-content-container")
    return [" ".join(text.split()) for text in found.all_inner_texts()]


def ask(page: Page, text: str) -> None:
    page.locator("#chat-input").click()
    page.keyboard.type(text)
    page.keyboard.press("Enter")


def grows(page: Page, last: str) -> list[str]:
    """What the newest answer says, each time that it is something else, until this is in it."""
    seen: list[str] = []
    for _ in range(PATIENCE // 20):
        now = answers(page)[-1:]
        if now and now[0] and now != seen[-1:]:
            seen += now
        if seen and last in seen[-1]:
            return seen
        page.wait_for_timeout(20)
    raise TimeoutError(f"{last!r} isn't there: {seen}")


def use(page: Page, url: str) -> None:
    page.goto(url)
    page.get_by_role("button", name="Get started").click()
    page.locator("#name").fill("Ada")
    page.locator("#email").fill("ada@example.com")
    page.locator("#password").fill("a-word-of-ada")
    page.get_by_role("button", name="Create Admin Account").click()
    page.locator("#chat-input").wait_for()
    # Its news lie above the page.
    news = page.get_by_role("button", name="Okay, Let's Go!")
    news.wait_for()
    news.evaluate("button => button.click()")
    news.wait_for(state="detached")
    model = page.get_by_role("button", name="Selected model")
    told("model", model.first.inner_text().strip())

    ask(page, "[[deltas=20]] [[slow=100]] pack a tent")
    told("first", grows(page, "19"))
    ask(page, "[[recall]]")
    told("second", grows(page, "tent")[-1])
    # It is at its place once the page has stopped moving to the end of the answer.
    answer = page.locator("[id^=message-]", has=page.locator(".chat-assistant")).last
    answer.hover()
    answer.get_by_role("button", name="Regenerate").click()
    page.get_by_text("Try Again").click()
    expect(page.get_by_text("2/2")).to_be_visible()
    told("again", grows(page, "tent")[-1])

    ask(page, "[[hang]]")
    grows(page, "hanging")
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("button", name="Stop")).to_have_count(0)
    told("stopped", answers(page)[-1])


with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path=sys.argv[2], args=["--no-sandbox"])
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(PATIENCE)
    expect.set_options(timeout=PATIENCE)
    try:
        use(page, sys.argv[1])
    except Exception:
        print(page.locator("body").inner_text(), file=sys.stderr)
        raise
    browser.close()
