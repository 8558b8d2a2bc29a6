"use strict";
// Small drawings beside numbers: a curve over position, and a difference with its interval around 0.

{
  const { svg, known } = board;
  const WIDTH = 120;
  const HEIGHT = 44;

  /** Return the ends in [0, 1] of the axis that the curves of rows share, in tenths. */
  board.curveEnds = (rows) => {
    const scores = rows.flatMap((row) => [...(row.curve ?? []), ...(row.null_band ?? [])]).filter(known);
    const low = Math.floor(Math.min(...scores) / 100);
    return scores.length ? { low: low / 10, high: Math.max(Math.ceil(Math.max(...scores) / 100), low + 1) / 10 } : { low: 0, high: 1 };
  };

  /** Return a function from a score in thousandths to its height on the shared axis, one pixel inside the drawing. */
  const heights = ({ low, high }) => (score) => (1 + (HEIGHT - 2) * (1 - (score / 1000 - low) / (high - low))).toFixed(2);

  /** Return the parts of a curve that have no gap, each as points. */
  function unbroken(scores, x, height) {
    const parts = [[]];
    scores.forEach((score, at) => (known(score) ? parts.at(-1).push(`${x(at)},${height(score)}`) : parts.push([])));
    return parts.filter((part) => part.length);
  }

  function bandOf(low, high, x, height) {
    if (![...low, ...high].every(known)) return null;
    const upper = high.map((score, at) => `${x(at)},${height(score)}`);
    const lower = low.map((score, at) => `${x(at)},${height(score)}`);
    return svg("polygon", { class: "band", points: [...upper, ...lower.reverse()].join(" ") });
  }

  /** Return in words what a curve shows. */
  function inWords(row) {
    const scores = row.curve.map((score) => (known(score) ? (score / 10).toFixed(1) : "unknown"));
    const middle = scores[Math.floor(scores.length / 2)];
    const end = known(row.window_end) ? `; most evidence after ${Math.round(row.window_end * 100)} % is beyond the window` : "";
    return `nDCG@10 over position: start ${scores[0]}, middle ${middle}, end ${scores.at(-1)}${end}`;
  }

  /** Return the sparkline of nDCG@10 over position on an axis that rows share; a dash if the positions are unknown. */
  board.curve = (row, ends) => {
    if (!row.curve) return board.el("span", { class: "faint" }, board.DASH);
    const height = heights(ends);
    const bins = row.curve.length;
    const x = (at) => ((WIDTH * (at + 0.5)) / bins).toFixed(1);
    const band = row.null_band ? bandOf(row.null_band.slice(0, bins), row.null_band.slice(bins), x, height) : null;
    const lines = unbroken(row.curve, x, height).map((points) =>
      points.length > 1
        ? svg("polyline", { class: "line", points: points.join(" ") })
        : svg("circle", { class: "point", cx: points[0].split(",")[0], cy: points[0].split(",")[1], r: 1.5 }),
    );
    const end = known(row.window_end) ? (WIDTH * row.window_end).toFixed(1) : null;
    return svg(
      "svg",
      { class: "curve", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: WIDTH, height: HEIGHT, preserveAspectRatio: "none", role: "img", "aria-label": inWords(row) },
      svg("path", { class: "axis", d: `M0,1H${WIDTH}M0,${HEIGHT - 1}H${WIDTH}` }),
      band,
      ...lines,
      end ? svg("path", { class: "window", d: `M${end},0V${HEIGHT}` }, svg("title", {}, "End of the model's window")) : null,
    );
  };

  /** Return a score as a dot with its interval on an axis that rows share, with a line where the best one is. */
  board.dot = (row, { low, high }, best) => {
    const at = (score) => `${(3 + (94 * (score - low)) / (high - low)).toFixed(2)}%`;
    return svg(
      "svg",
      { class: "dot", height: 20, "aria-hidden": "true" },
      svg("line", { class: "axis", x1: "3%", x2: "97%", y1: 10, y2: 10 }),
      known(best) ? svg("line", { class: "best", x1: at(best), x2: at(best), y1: 0, y2: 20 }) : null,
      known(row.score_low) ? svg("line", { class: "interval", x1: at(row.score_low), x2: at(row.score_high), y1: 10, y2: 10 }) : null,
      svg("circle", { cx: at(row.score), cy: 10, r: 4.5 }),
    );
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

  /** Return the state of the bias of a row as a chip, of an average in how many tasks each is; its tooltip is the answer. */
  board.chip = ({ states, state_label: label, answer }) => {
    if (!states) return null;
    const kind = states.length === 1 ? states[0].replaceAll(/[_ ]/g, "-") : "several";
    return board.el("span", { class: `state ${kind}`, title: answer }, label);
  };

  const range = (low, high, format) => (known(low) && known(high) ? `${format(low)} to ${format(high)}` : "");
  board.scoreInterval = (row) => board.intervalText(row, "ndcg_at_10", "score");
  board.nullRange = (row) => range(row.psi_chance, row.psi_chance_high, board.plain);
}
