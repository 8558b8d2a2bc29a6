"use strict";
// The filters of a state.

{
  /** Return a predicate for numbers in a range; the range `unknown` contains missing numbers. */
  const ranges = (entries) => {
    const all = new Map(entries);
    return {
      names: [...all.keys(), "unknown"],
      contains: (name, value) => {
        if (name === "unknown") return !board.isKnown(value);
        const [from, to] = all.get(name) ?? [NaN, NaN];
        return board.isKnown(value) && value >= from && value < to;
      },
    };
  };

  board.RANGES = {
    size: ranges([
      ["under 100M", [0, 1e8]],
      ["100M to 500M", [1e8, 5e8]],
      ["500M to 1B", [5e8, 1e9]],
      ["under 1B", [0, 1e9]],
      ["1B to 5B", [1e9, 5e9]],
      ["5B and more", [5e9, Infinity]],
    ]),
    window: ranges([
      ["up to 512", [0, 513]],
      ["513 to 8k", [513, 8000]],
      ["8k and more", [8000, Infinity]],
    ]),
    dimensions: ranges([
      ["up to 512", [0, 513]],
      ["513 to 1,024", [513, 1025]],
      ["1,025 to 2,048", [1025, 2049]],
      ["more than 2,048", [2049, Infinity]],
    ]),
  };
  const FIELDS = { size: "parameters", window: "window", dimensions: "dimensions" };

  /** Return true if a row, or a task of an average, was tested for bias within the window. */
  board.isTested = (row) => Boolean(row.states?.some((state) => state !== "not_tested"));

  /** Return true if a row is ranked. */
  board.isComparable = (row) => !row.partial && !row.other_data;

  /** Return true if a text contains every word of a search. */
  board.hasWords = (text, search) => search.toLowerCase().split(/\s+/).every((word) => text.includes(word));

  /** Return true if a row passes the filters. */
  board.passes = (row, state) =>
    board.hasWords(row.text, state.search) &&
    (!state.kind || row.kind === state.kind) &&
    (!state.weights || String(row.open_weights) === state.weights) &&
    (!state.license || (row.license ?? "unknown") === state.license) &&
    (!state.bias || row.states?.includes(state.bias)) &&
    (!state.source || (state.source === "published") === row.published) &&
    Object.entries(FIELDS).every(([name, field]) => !state[name] || board.RANGES[name].contains(state[name], row[field]));
}
