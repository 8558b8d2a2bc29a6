"use strict";
// Tooltips of the marks of charts.

{
  const { isKnown, percent, points, decimals } = board;
  const text = (name) => (row) => row[name];
  const number = (name, format) => (row) => (isKnown(row[name]) ? format(row[name]) : null);

  const LINES = [
    ["Model", text("model")],
    ["Kind", text("kind")],
    ["Data", text("choice")],
    ["Domain", text("subset")],
    ["Length", text("length")],
    ["Position", text("position")],
    ["Queries", number("queries", board.count)],
    // A model has a ranked score, a position has a mean.
    [(row) => board.scoreTitle(row.score_key ?? "ndcg_at_10"), (row) => (isKnown(row.score) ? percent(row.score) : number("ndcg_at_10", percent)(row))],
    ["95% interval", (row) => (isKnown(row.score) ? board.formatScoreInterval(row) : board.intervalText(row, "ndcg_at_10"))],
    ["Position effect", number("position_effect", points)],
    ["Interval", (row) => board.intervalText(row, "position_effect")],
    ["Bias within the window", text("state_label")],
    ["Start minus end", number("difference", points)],
    ["PSI as published", number("psi_as_published", decimals)],
    ["PSI by chance", board.formatChanceRange],
    ["", (row) => (row.missing ? "no result" : null)],
  ];

  /** Return the tooltip of a row as HTML, without unknown values; `escape` escapes text. */
  board.tooltip = (row, escape) => {
    const lines = LINES.map(([title, value]) => [typeof title === "string" ? title : escape(title(row)), value(row)]).filter(([, value]) => isKnown(value) && value !== "");
    return `<table><tbody>${lines.map(([title, value]) => `<tr><td class="key">${title}</td><td>${escape(value)}</td></tr>`).join("")}</tbody></table>`;
  };
}
