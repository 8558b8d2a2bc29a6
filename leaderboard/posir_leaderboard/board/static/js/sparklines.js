"use strict";
// Small drawings in the table.

{
  const { isKnown } = board;
  /** Return the chart of nDCG@10 over position, or a dash if unknown. */
  board.positionChart = (row) => {
    if (!row.strip) return board.el("span", { class: "ends" }, row.published ? "curve not published" : board.DASH);
    return document.importNode(new DOMParser().parseFromString(row.strip, "image/svg+xml").documentElement, true);
  };

  /** The score with the most intense color. */
  const DEEP = 0.85;

  /** Color a cell by a score; the scale is the same on every board. */
  board.shadeCell = (cell, value) => {
    if (isKnown(value)) cell.style.setProperty("--heat-share", `${Math.round(50 * Math.min(Math.max(value / DEEP, 0), 1))}%`);
  };

  /** Return true if some of the evidence is truncated. */
  board.isTruncated = (row) => row.unread_share >= 0.0005;

  /** Return the truncated share of the evidence. */
  board.describeTruncation = (share) => `${Math.round(100 * share)}% truncated`;

  /** Return the state of a row in words, or the number of tasks in each state for an average. The tooltip is the answer. */
  board.stateChip = ({ states, state_label: label, answer, published }) => {
    if (!states) return null;
    const kind = states.length === 1 ? states[0].replaceAll("_", "-") : "several";
    return board.el("span", { class: `state ${kind}`, title: published ? board.UNTESTED : answer }, label);
  };

  /** The reason why published results have no state. */
  board.UNTESTED = board.byId("untested").textContent;

  const range = (low, high, format) => (isKnown(low) && isKnown(high) ? `${format(low)} to ${format(high)}` : "");
  board.formatScoreInterval = (row) => board.intervalText(row, "ndcg_at_10", "score");
  board.formatChanceRange = (row) => range(row.psi_by_chance, row.psi_by_chance_high, board.decimals);
}
