"use strict";
// Small drawings next to numbers: the picture of the answer, and the state.

{
  const { known } = board;
  /** Return the picture of the answer, a document from its start to its end; a dash if the positions are unknown. */
  board.strip = (row) => {
    if (!row.strip) return board.el("span", { class: "ends" }, row.published ? "curve not published" : board.DASH);
    return document.importNode(new DOMParser().parseFromString(row.strip, "image/svg+xml").documentElement, true);
  };

  /** The score that has the full color. */
  const DEEP = 0.85;

  /** Color a cell by a score, on a scale that is the same on every board. */
  board.shade = (cell, value) => {
    if (known(value)) cell.style.setProperty("--heat-share", `${Math.round(50 * Math.min(Math.max(value / DEEP, 0), 1))}%`);
  };

  /** Return whether some of the evidence is truncated. */
  board.isTruncated = (row) => row.unread_share >= 0.0005;

  /** Return how much of the evidence is truncated. */
  board.truncated = (share) => `${Math.round(100 * share)}% truncated`;

  /** Return the state of a row in words, of an average in how many tasks each is; its tooltip is the answer, as text. */
  board.chip = ({ states, state_label: label, answer, published }) => {
    if (!states) return null;
    const kind = states.length === 1 ? states[0].replaceAll("_", "-") : "several";
    return board.el("span", { class: `state ${kind}`, title: published ? board.UNTESTED : answer }, label);
  };

  /** Why published results have no state. */
  board.UNTESTED = board.byId("untested").textContent;

  const range = (low, high, format) => (known(low) && known(high) ? `${format(low)} to ${format(high)}` : "");
  board.scoreInterval = (row) => board.intervalText(row, "ndcg_at_10", "score");
  board.chanceRange = (row) => range(row.psi_by_chance, row.psi_by_chance_high, board.plain);
}
