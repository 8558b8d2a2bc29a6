"use strict";
// Small drawings beside numbers: a score with its interval, and where noise would lie.

{
  const { svg } = board;
  const HEIGHT = 16;

  /** Return a function from a value to its place on a scale, in percent of the width, with room for a dot at both ends. */
  const placed =
    ([low, high]) =>
    (value) =>
      `${(4 + (92 * (Math.min(Math.max(value, low), high) - low)) / (high - low || 1)).toFixed(2)}%`;

  function line(className, at, from, to, y = HEIGHT / 2) {
    return svg("line", { class: className, x1: at(from), x2: at(to), y1: y, y2: y });
  }

  /**
   * Return a score on a scale.
   *
   * @param {{score: ?number, low: ?number, high: ?number, noise: ?number, noiseHigh: ?number}} shown
   * @param {[number, number]} scale
   * @param {string} className
   */
  board.glyph = (shown, scale, className) => {
    const at = placed(scale);
    const parts = [line("axis", at, scale[0], scale[1])];
    if (board.known(shown.noise)) {
      parts.push(line("noise", at, scale[0], shown.noiseHigh));
      parts.push(svg("line", { class: "floor", x1: at(shown.noise), x2: at(shown.noise), y1: 2, y2: HEIGHT - 2 }));
    }
    if (board.known(shown.low)) parts.push(line("interval", at, shown.low, shown.high));
    if (board.known(shown.score)) parts.push(svg("circle", { cx: at(shown.score), cy: HEIGHT / 2, r: 3.5 }));
    return svg("svg", { class: `glyph ${className}`, height: HEIGHT, "aria-hidden": "true" }, ...parts);
  };

  /** Return the scales of a view, wide enough for everything that is drawn on them. */
  board.scales = (columns) => {
    const ends = (...names) => names.flatMap((name) => columns[name]).filter(board.known);
    const ndcg = ends("ndcg_at_10", "ndcg_at_10_low", "ndcg_at_10_high");
    const psi = ends("psi", "psi_high", "psi_null_p95");
    const low = ndcg.length ? Math.floor(Math.min(...ndcg) * 10) / 10 : 0;
    const high = ndcg.length ? Math.ceil(Math.max(...ndcg) * 10) / 10 : 1;
    return {
      ndcg: [low, Math.max(high, low + 0.1)],
      psi: [0, psi.length ? Math.max(Math.ceil(Math.max(...psi) * 10) / 10, 0.1) : 1],
    };
  };

  board.ndcgGlyph = (row, scale) =>
    board.glyph({ score: row.ndcg_at_10, low: row.ndcg_at_10_low, high: row.ndcg_at_10_high }, scale, "ndcg");

  board.psiGlyph = (row, scale) =>
    board.glyph(
      { score: row.psi, low: row.psi_low, high: row.psi_high, noise: row.psi_null_mean, noiseHigh: row.psi_null_p95 },
      scale,
      "psi",
    );

  const both = (low, high, form) => (board.known(low) ? `${form(low)} to ${form(high)}` : "");
  board.ndcgInterval = (row) => both(row.ndcg_at_10_low, row.ndcg_at_10_high, board.percent);
  board.psiInterval = (row) => both(row.psi_low, row.psi_high, board.plain);
  board.noise = (row) => both(row.psi_null_mean, row.psi_null_p95, board.plain);
}

{
  /** Show above the table how it is read. */
  board.makeKey = () => {
    const sample = board.psiGlyph({ psi: 0.5, psi_low: 0.3, psi_high: 0.62, psi_null_mean: 0.18, psi_null_p95: 0.27 }, [0, 1]);
    board
      .byId("key")
      .append(
        sample,
        " Dot: observed. Line: 95 % interval of the true value. Grey, for PSI: what chance alone shows, with a tick at its mean. ",
        "Models whose intervals overlap share a range of ranks.",
      );
  };
}
