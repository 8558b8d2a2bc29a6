"use strict";
// Buttons for the pages of the table. The buttons of DataTables measure themselves, which triggers another layout.

{
  const { el } = board;
  const AROUND = 2;

  /** Return the first page, the last page and the pages around the current one; null for a gap. */
  function listPages(page, pages) {
    const all = Array.from({ length: pages }, (_, number) => number);
    const near = all.filter((number) => number === 0 || number === pages - 1 || Math.abs(number - page) <= AROUND);
    return near.flatMap((number, i) => (i && number > near[i - 1] + 1 ? [null, number] : [number]));
  }

  /** Show buttons for pages in an element; `open` is called with the selected page. The focused button keeps the focus. */
  board.offerPages = (container, { page, pages }, open) => {
    const focused = container.contains(document.activeElement) ? document.activeElement.dataset.name : null;
    const button = (name, text, number) =>
      el(
        "button",
        { type: "button", "data-name": name, disabled: number < 0 || number >= pages, "aria-current": number === page && "page", onclick: () => open(number) },
        text,
      );
    const numbers = listPages(page, pages).map((number) => (number === null ? el("span", {}, "…") : button(`page ${number}`, String(number + 1), number)));
    container.hidden = pages < 2;
    container.replaceChildren(button("previous", "Previous", page - 1), ...numbers, button("next", "Next", page + 1));
    if (focused) container.querySelector(`[data-name="${focused}"]:not(:disabled)`)?.focus();
  };
}
