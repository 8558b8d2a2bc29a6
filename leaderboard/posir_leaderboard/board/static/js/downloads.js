"use strict";
// Downloads: the filtered rows in the table's order, with unformatted numbers.

{
  const RUN = [
    "model",
    "revision",
    "published",
    "origin",
    "data",
    "length",
    "partial",
    "comparable",
    "rank_first",
    "rank_last",
    "paired",
  ];
  const VERDICT = ["state", "state_label", "reason", "margin", "level", "questions_needed", "documents_needed", "answer"];
  const MODEL = [
    "kind",
    "parameters",
    "window",
    "dimensions",
    "open_weights",
    "license",
    "reference",
  ];

  /** Return the names of all columns; a score with an interval has three columns. */
  function columns() {
    const scores = board.declaredScores().flatMap(({ key, interval }) => (interval ? [key, `${key}_low`, `${key}_high`] : [key]));
    return [...new Set([...RUN, ...scores, ...VERDICT, ...MODEL])];
  }

  /** Return the filtered rows as plain objects. */
  board.exportRows = (rows, data, length) => {
    const names = columns();
    return rows.map((row) => {
      const [first, last] = row.rank ?? [null, null];
      const all = {
        ...row,
        model: row.name,
        data,
        comparable: board.isComparable(row),
        length,
        rank_first: first,
        rank_last: last,
      };
      return Object.fromEntries(names.map((name) => [name, all[name] === "" ? null : (all[name] ?? null)]));
    });
  };

  /** Move the scores from other packages into a field `scores`, as in posir's JSON. */
  board.nestScores = (row) => {
    const cells = Object.entries(row);
    const isAdded = ([name]) => name.startsWith("scores.");
    const scores = cells.filter(isAdded).map(([name, value]) => [name.slice("scores.".length), value]);
    const fields = cells.filter((cell) => !isAdded(cell));
    return Object.fromEntries(scores.length ? [...fields, ["scores", Object.fromEntries(scores)]] : fields);
  };

  // Spreadsheets would run a text that matches this as a formula; posir_tasks/display/tables.py has the same rule.
  const FORMULA = /^(?![-+]\d*\.?\d+(?:[eE][-+]?\d+)?$)[=+@\t\r\n\-\uff1d\uff0b\uff20\uff0d]/;
  const escapeFormula = (text) => (FORMULA.test(text) ? `'${text}` : text);

  function formatCell(value) {
    if (!board.isKnown(value)) return "";
    const text = typeof value === "string" ? escapeFormula(value) : String(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  }

  /** Return rows as CSV with the given columns. */
  board.toCsv = (columns, rows) =>
    [columns.join(","), ...rows.map((row) => columns.map((name) => formatCell(row[name])).join(","))].join("\r\n") + "\r\n";

  board.asCsv = (rows) => board.toCsv(columns(), rows);

  /** Offer a text as a download. */
  board.save = (text, type, name) => board.saveBlob(new Blob([text], { type }), name);

  board.saveBlob = (blob, name) => {
    const address = URL.createObjectURL(blob);
    const link = board.el("a", { href: address, download: name });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
  };

  board.fileName = (data, length, suffix) => `${data} ${length}`.replaceAll(/[^A-Za-z0-9.-]+/g, "-").slice(0, 80) + suffix;
}
