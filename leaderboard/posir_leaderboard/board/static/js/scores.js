"use strict";
// Metadata and scores of models.

{
  const { el } = board;

  board.swatch = (model) => el("span", { class: `swatch series-${model.series + 1}`, "aria-hidden": "true" });

  board.section = (title, ...children) => el("section", {}, el("h2", {}, title), ...children);

  /** Wrap a table so that it scrolls if it is too wide. */
  board.wide = (table) =>
    el("div", { class: "wide", tabindex: 0, role: "region", "aria-label": table.caption.textContent }, table);

  const nameElements = (model) => [board.swatch(model), board.name(model.label)];

  /** Return a table for each model, side by side if there is room, without empty columns. */
  function tablesOf(models, what, corner, columns, rowsOf) {
    const rows = models.map(rowsOf);
    const filled = rows.map((of) => columns.filter(([, text]) => of.some(([, row]) => row && (text(row) ?? board.DASH) !== board.DASH)));
    const cssClass = (title) => title.toLowerCase().replaceAll(/\W+/g, "-");
    const cell = (row, title, text, ends) => el("td", { class: cssClass(title) }, (row && text(row)) || board.DASH, " ", row && ends?.(row) ? el("span", { class: "ends" }, ends(row)) : "");
    const head = (i) => [corner, ...filled[i].map(([title]) => title)].map((title) => el("th", { scope: "col", class: cssClass(title) }, title));
    const table = (model, i) =>
      el(
        "table",
        { class: "per-model" },
        el("caption", {}, ...nameElements(model), el("span", { class: "unseen" }, `: ${what}`)),
        el("thead", {}, el("tr", {}, ...head(i))),
        el("tbody", {}, ...rows[i].map(([title, row]) => el("tr", {}, el("th", { scope: "row" }, title), ...filled[i].map(([name, text, ends]) => cell(row, name, text, ends))))),
      );
    return el("div", { class: "figures" }, ...models.map(table));
  }

  const OPEN = new Map([
    [true, "open"],
    [false, "closed"],
  ]);

  function describeOrigin(model) {
    if (model.published) return "published in the papers";
    return model.origin ? `${model.origin}, not submitted` : "evaluated with posir";
  }

  board.facts = (models) => {
    const rows = [
      ["Result", (model) => describeOrigin(model)],
      ["Revision", (model) => board.name(model.revision || board.DASH)],
      ["Kind", (model) => model.kind],
      ["Parameters", (model) => board.shortenNumber(model.parameters)],
      ["Window", (model) => (model.window ? `${board.count(model.window)} tokens` : board.DASH)],
      ["Dimensions", (model) => board.count(model.dimensions)],
      ["Weights", (model) => OPEN.get(model.open_weights) ?? board.DASH],
      ["License", (model) => board.name(model.license ?? board.DASH)],
      [
        "Page",
        (model) =>
          model.reference ? el("a", { href: model.reference, rel: "noreferrer nofollow" }, model.reference) : board.DASH,
      ],
    ];
    const listed = (model) => rows.map(([name, cell]) => [name, cell(model)]).filter(([, content]) => (content.textContent ?? content) !== board.DASH);
    const facts = (model) =>
      el(
        "div",
        {},
        models.length > 1 ? el("h3", {}, ...nameElements(model)) : null,
        el("dl", { class: "facts" }, ...listed(model).map(([name, content]) => el("div", {}, el("dt", {}, name), el("dd", {}, content)))),
      );
    return board.section(models.length > 1 ? "About the models" : models[0].label, el("div", { class: "figures" }, ...models.map(facts)));
  };

  /** Return the part of a model's file for a view. */
  const detailOf = (model, view) => (view.average ? model.averages : model.tasks).get(view.name);
  board.detailOf = detailOf;

  /** Return a model's rows in a view, by length. */
  function rowsByLength(model, view) {
    const columns = detailOf(model, view)?.rows;
    if (!columns) return new Map();
    const names = Object.keys(columns);
    return new Map(
      columns.length.map((length, i) => {
        const row = Object.fromEntries(names.map((name) => [name, columns[name][i]]));
        return [length, { ...row, published: model.published, difference: board.differenceOf(row) }];
      }),
    );
  }

  const lengthName = (length) => (length === "all" ? "All" : length);

  /** Columns of the tables of models: title, value, and interval if known. */
  const COLUMNS = [
    ["nDCG@10", (row) => board.percent(row.score), board.formatScoreInterval],
    ["Position effect", (row) => board.points(row.position_effect), (row) => board.intervalText(row, "position_effect")],
    ["Truncated", (row) => (board.isKnown(row.unread_share) ? `${board.percent(row.unread_share)}%` : board.DASH)],
    ["Bias within the window", (row) => (row.published ? board.DASH : row.state_label)],
    ["Start minus end", (row) => (row.published ? board.points(row.difference) : board.DASH), (row) => board.intervalText(row, "start_minus_end")],
  ];

  /** Return a model's row in a view at a length. */
  board.rowOf = (model, view, length) => ({ ...rowsByLength(model, view).get(length), name: model.name });

  /** Return scores by length. */
  board.byLength = (models, choice) => {
    const rowsByModel = models.map((model) => rowsByLength(model, choice));
    const lengths = [...new Set(rowsByModel.flatMap((byLength) => [...byLength.keys()]))];
    if (!lengths.length) return null;
    const rows = (_, i) => lengths.map((length) => [lengthName(length), rowsByModel[i].get(length)]);
    return board.section(
      `${titleOf(choice)}: by document length`,
      tablesOf(models, "scores by length", "Length", COLUMNS, rows),
    );
  };

  const titleOf = (choice) => (choice.average ? `${choice.name}, ${choice.label.toLowerCase()}` : choice.name);
  board.titleOf = titleOf;

  /** Return scores by language, or by another dimension of a group. */
  board.byChoice = (models, tasks, group, length) => {
    const dimension = group.dimension.toLowerCase();
    const rows = (model) =>
      tasks.map((task) => {
        const byLength = rowsByLength(model, task);
        return [task.label, byLength.get(length) ?? byLength.get("all")];
      });
    return board.section(
      `${group.name}: by ${dimension}${length === "all" ? "" : `, ${length}`}`,
      tablesOf(models, `scores by ${dimension}`, group.dimension, COLUMNS, rows),
    );
  };

  /** Return differences in nDCG@10 to the first model on the same queries, with their states. */
  board.differences = (models, paired, choice) => {
    if (models.length < 2 || models.every((model) => model.published)) return null;
    const heading = `Differences to ${models[0].label}`;
    const first = paired?.models.indexOf(models[0].index) ?? -1;
    const others = models.slice(1).filter((model) => first >= 0 && paired.models.includes(model.index));
    if (!others.length) {
      const why = "These models cannot be compared pairwise: a paired test needs ranks of both models on the same queries, which published results lack.";
      return board.section(heading, el("p", { class: "empty" }, why));
    }
    const lengths = Object.keys(paired.lengths);
    const rows = (model) =>
      lengths.map((length) => {
        const [value, half, state] = ["value", "half", "state"].map((name) => paired.lengths[length][name][paired.models.indexOf(model.index)][first]);
        return [lengthName(length), { value, half, state }];
      });
    const ends = ({ value, half }) => (board.isKnown(value) ? `[${[value - half, value + half].map((end) => board.points(Math.min(1, Math.max(-1, end)))).join(", ")}]` : "");
    const columns = [["Difference", ({ value }) => board.points(value), ends], ["nDCG@10 is", ({ state }) => board.changes[state[0]]]];
    return board.section(
      heading,
      tablesOf(others, heading, "Length", columns, rows),
      el(
        "p",
        { class: "faint" },
        `nDCG@10 on ${titleOf(choice)}, in points, with intervals by document or article, adjusted for ${[...new Set(lengths.map((length) => paired.lengths[length].comparisons))].join(" comparisons, in a length for ")}.${choice.average ? "" : " Differences, intervals and states are those of posir compare."}`,
      ),
    );
  };
}
