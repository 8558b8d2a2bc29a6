"use strict";
// Buttons for the pages of the table. The buttons of DataTables measure themselves, which costs another layout of the page.

{
  const { el } = board;
  const AROUND = 2;

  /** Return the first page, the last page and the pages around the current one; null for a gap. */
  function offered(page, pages) {
    const all = Array.from({ length: pages }, (_, at) => at);
    const near = all.filter((at) => at === 0 || at === pages - 1 || Math.abs(at - page) <= AROUND);
    return near.flatMap((at, place) => (place && at > near[place - 1] + 1 ? [null, at] : [at]));
  }

  /** Show buttons for pages in an element; `open` is called with the chosen page. The focused button keeps the focus. */
  board.offerPages = (place, { page, pages }, open) => {
    const focused = place.contains(document.activeElement) ? document.activeElement.dataset.name : null;
    const button = (name, text, at) =>
      el(
        "button",
        { type: "button", "data-name": name, disabled: at < 0 || at >= pages, "aria-current": at === page && "page", onclick: () => open(at) },
        text,
      );
    const numbers = offered(page, pages).map((at) => (at === null ? el("span", {}, "…") : button(`page ${at}`, String(at + 1), at)));
    place.hidden = pages < 2;
    place.replaceChildren(button("previous", "Previous", page - 1), ...numbers, button("next", "Next", page + 1));
    if (focused) place.querySelector(`[data-name="${focused}"]:not(:disabled)`)?.focus();
  };
}
