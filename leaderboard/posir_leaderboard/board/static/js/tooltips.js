"use strict";
// What a chart says of the row behind a mark, on the scale of its axes.

{
  const { known, percent, points, plain } = board;
  const between = (low, high, format) => (known(low) && known(high) ? `${format(low)} to ${format(high)}` : null);
  const text = (name) => (row) => row[name];
  const number = (name, format) => (row) => (known(row[name]) ? format(row[name]) : null);

  const LINES = [
    ["Model", text("model")],
    ["Kind", text("kind")],
    ["Data", text("choice")],
    ["Domain", text("subset")],
    ["Length", text("length")],
    ["Position", text("position")],
    ["Queries", number("queries", board.count)],
    // A model has the score that it is ranked by, a position its mean.
    [(row) => board.title(row.score_key ?? "ndcg_at_10"), (row) => (known(row.score) ? percent(row.score) : number("ndcg_at_10", percent)(row))],
    ["95 % interval", (row) => (known(row.score) ? board.scoreInterval(row) : board.intervalText(row, "ndcg_at_10"))],
    ["Null band", (row) => between(row.null_low, row.null_high, percent)],
    [() => board.title("start_to_end"), number("start_to_end", points)],
    ["Interval", (row) => board.intervalText(row, "start_to_end")],
    ["Bias", text("state_label")],
    [() => board.title("psi"), number("psi", plain)],
    ["95 % interval", (row) => board.intervalText(row, "psi")],
    [() => board.title("psi_chance"), board.nullRange],
    ["", (row) => (row.missing ? "no result" : null)],
  ];

  /** Return the tooltip of a row as HTML, without what is unknown; `escape` escapes text. */
  board.tooltip = (row, escape) => {
    const lines = LINES.map(([title, value]) => [typeof title === "string" ? title : escape(title(row)), value(row)]).filter(([, value]) => known(value) && value !== "");
    return `<table><tbody>${lines.map(([title, value]) => `<tr><td class="key">${title}</td><td>${escape(value)}</td></tr>`).join("")}</tbody></table>`;
  };
}
