"use strict";
// Sparklines beside numbers: a score with its interval and, for PSI, the null distribution.

{
  const { svg } = board;
  const HEIGHT = 16;

  /** Return a function from a value to its position on a scale, in percent of the width, with room for a dot at both ends. */
  const positionOn =
    ([low, high]) =>
    (value) =>
      `${(4 + (92 * (Math.min(Math.max(value, low), high) - low)) / (high - low || 1)).toFixed(2)}%`;

  function line(className, at, from, to, y = HEIGHT / 2) {
    return svg("line", { class: className, x1: at(from), x2: at(to), y1: y, y2: y });
  }

  /**
   * Return the sparkline of a score.
   *
   * @param {{score: ?number, low: ?number, high: ?number, nullMean: ?number, nullP95: ?number}} values
   * @param {[number, number]} scale
   * @param {string} className
   */
  board.sparkline = (values, scale, className) => {
    const at = positionOn(scale);
    const parts = [line("axis", at, scale[0], scale[1])];
    if (board.known(values.nullMean)) {
      parts.push(line("null", at, scale[0], values.nullP95));
      parts.push(svg("line", { class: "null-mean", x1: at(values.nullMean), x2: at(values.nullMean), y1: 2, y2: HEIGHT - 2 }));
    }
    if (board.known(values.low)) parts.push(line("interval", at, values.low, values.high));
    if (board.known(values.score)) parts.push(svg("circle", { cx: at(values.score), cy: HEIGHT / 2, r: 3.5 }));
    return svg("svg", { class: `sparkline ${className}`, height: HEIGHT, "aria-hidden": "true" }, ...parts);
  };

  /** Return scales that contain all values of a view. */
  board.scales = (columns) => {
    const ends = (...names) => names.flatMap((name) => columns[name]).filter(board.known);
    const ndcg = ends("ndcg_at_10", "ndcg_at_10_low", "ndcg_at_10_high");
    const psi = ends("psi_estimate", "psi_high", "psi_null_p95");
    const low = ndcg.length ? Math.floor(Math.min(...ndcg) * 10) / 10 : 0;
    const high = ndcg.length ? Math.ceil(Math.max(...ndcg) * 10) / 10 : 1;
    return {
      ndcg: [low, Math.max(high, low + 0.1)],
      psi: [0, psi.length ? Math.max(Math.ceil(Math.max(...psi) * 10) / 10, 0.1) : 1],
    };
  };

  board.ndcgSparkline = (row, scale) =>
    board.sparkline({ score: row.ndcg_at_10, low: row.ndcg_at_10_low, high: row.ndcg_at_10_high }, scale, "ndcg");

  board.psiSparkline = (row, scale) =>
    board.sparkline(
      { score: row.psi_estimate, low: row.psi_low, high: row.psi_high, nullMean: row.psi_null_mean, nullP95: row.psi_null_p95 },
      scale,
      "psi",
    );

  const range = (low, high, format) => (board.known(low) ? `${format(low)} to ${format(high)}` : "");
  board.ndcgInterval = (row) => range(row.ndcg_at_10_low, row.ndcg_at_10_high, board.percent);
  board.startToEndInterval = (row) => range(row.start_to_end_low, row.start_to_end_high, board.points);
  board.psiInterval = (row) => range(row.psi_low, row.psi_high, board.plain);
  board.nullRange = (row) => range(row.psi_null_mean, row.psi_null_p95, board.plain);
}

{
  /** Show the legend above the table. */
  board.makeKey = () => {
    const sample = board.psiSparkline({ psi_estimate: 0.45, psi_low: 0.3, psi_high: 0.62, psi_null_mean: 0.18, psi_null_p95: 0.27 }, [0, 1]);
    board
      .byId("key")
      .append(
        sample,
        " Dot: estimate. Line: its 95 % interval. Grey: PSI under the null, with a tick at its mean. ",
        "Models that do not differ significantly share a range of ranks.",
      );
  };
}
