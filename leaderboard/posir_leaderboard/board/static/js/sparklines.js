"use strict";
// Small drawings beside numbers: the picture of the answer, and a difference with its interval around 0.

{
  const { svg, known } = board;
  /** Return the picture of the answer, a document from its start to its end; a dash if the positions are unknown. */
  board.strip = (row) => {
    if (!row.strip) return board.el("span", { class: "faint" }, board.DASH);
    return document.importNode(new DOMParser().parseFromString(row.strip, "image/svg+xml").documentElement, true);
  };

  /** Return a difference with its interval on an axis from -limit to limit, with a mark at 0. */
  board.differenceGlyph = (value, low, high, limit) => {
    const at = (number) => `${(50 + (46 * Math.min(Math.max(number, -limit), limit)) / limit).toFixed(2)}%`;
    return svg(
      "svg",
      { class: "difference", height: 16, "aria-hidden": "true" },
      svg("line", { class: "axis", x1: "4%", x2: "96%", y1: 8, y2: 8 }),
      svg("line", { class: "zero", x1: "50%", x2: "50%", y1: 1, y2: 15 }),
      known(low) ? svg("line", { class: "interval", x1: at(low), x2: at(high), y1: 8, y2: 8 }) : null,
      svg("circle", { cx: at(value), cy: 8, r: 3.5 }),
    );
  };

  /** Return the end of an axis around 0 that contains all differences of rows and their intervals, in steps of 0.05. */
  board.differenceLimit = (columns) => {
    const names = ["start_to_end", "start_to_end_low", "start_to_end_high", "start_to_end_unweighted"];
    const ends = names.flatMap((name) => columns[name] ?? []).filter(known);
    return Math.max(0.05, Math.ceil(Math.max(0, ...ends.map(Math.abs)) * 20 - 1e-9) / 20);
  };

  /** Return the state of the bias of a row as a chip, of an average in how many tasks each is; its tooltip is the answer, as text. */
  board.chip = ({ states, state_label: label, answer }) => {
    if (!states) return null;
    const kind = states.length === 1 ? states[0].replaceAll(/[_ ]/g, "-") : "several";
    return board.el("span", { class: `state ${kind}`, title: answer }, `bias in what it reads: ${label.replaceAll("biased ", "").replaceAll("no bias", "none")}`);
  };

  const range = (low, high, format) => (known(low) && known(high) ? `${format(low)} to ${format(high)}` : "");
  board.scoreInterval = (row) => board.intervalText(row, "ndcg_at_10", "score");
  board.nullRange = (row) => range(row.psi_chance, row.psi_chance_high, board.plain);
}
