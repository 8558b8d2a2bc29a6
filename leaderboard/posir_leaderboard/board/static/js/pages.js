"use strict";
// Buttons for the pages of the table. Those of DataTables measure themselves, which lays the whole page out once more.

{
  const { el } = board;
  const AROUND = 2;

  /** Return the pages that are offered: the first, the last, and those around the current one; null where some are left out. */
  function offered(page, pages) {
    const all = Array.from({ length: pages }, (_, at) => at);
    const near = all.filter((at) => at === 0 || at === pages - 1 || Math.abs(at - page) <= AROUND);
    return near.flatMap((at, place) => (place && at > near[place - 1] + 1 ? [null, at] : [at]));
  }

  /** Offer the pages of a table in an element; `open` is called with the chosen one. The focused button keeps the focus. */
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
