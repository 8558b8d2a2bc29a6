"use strict";
// Metadata and scores of models, as tables with one column per model.

{
  const { el } = board;

  board.swatch = (model) => el("span", { class: `swatch series-${model.place + 1}`, "aria-hidden": "true" });

  board.section = (title, ...children) => el("section", {}, el("h2", {}, title), ...children);

  /** Wrap a table so that it scrolls if it is too wide. */
  board.wide = (table) =>
    el("div", { class: "wide", tabindex: 0, role: "region", "aria-label": table.caption.textContent }, table);

  /** Return a table with one column per model. */
  function perModel(caption, models, corner, rows) {
    const head = el(
      "tr",
      {},
      el("th", { scope: "col" }, corner),
      ...models.map((model) => el("th", { scope: "col" }, board.swatch(model), board.name(model.label))),
    );
    const body = rows.map(([title, ...cells]) =>
      el("tr", {}, el("th", { scope: "row" }, title), ...cells.map((cell) => el("td", {}, cell))),
    );
    return board.wide(
      el(
        "table",
        { class: models.length === 1 ? "per-model alone" : "per-model" },
        el("caption", { class: "unseen" }, caption),
        el("thead", {}, head),
        el("tbody", {}, ...body),
      ),
    );
  }

  const OPEN = new Map([
    [true, "open"],
    [false, "closed"],
  ]);

  function resultOf(model) {
    if (model.published) return "published in the papers";
    return model.origin ? `${model.origin}, not submitted` : "submitted";
  }

  board.facts = (models) => {
    const rows = [
      ["Result", (model) => resultOf(model)],
      ["Revision", (model) => board.name(model.revision || board.DASH)],
      ["Kind", (model) => model.kind],
      ["Parameters", (model) => board.short(model.parameters)],
      ["Window", (model) => (model.window ? `${board.count(model.window)} tokens` : board.DASH)],
      ["Dimensions", (model) => board.count(model.dimensions)],
      ["Weights", (model) => OPEN.get(model.open_weights) ?? board.DASH],
      ["Licence", (model) => board.name(model.license ?? board.DASH)],
      [
        "Page",
        (model) =>
          model.reference ? el("a", { href: model.reference, rel: "noreferrer nofollow" }, model.reference) : board.DASH,
      ],
    ];
    if (models.length === 1)
      return board.section(
        models[0].label,
        el(
          "dl",
          { class: "facts" },
          ...rows.map(([name, cell]) => el("div", {}, el("dt", {}, name), el("dd", {}, cell(models[0])))),
        ),
      );
    return board.section(
      `${models.length} models compared`,
      perModel(
        "About the models",
        models,
        "",
        rows.map(([name, cell]) => [name, ...models.map(cell)]),
      ),
    );
  };

  /** Return a model's rows of a view by length. */
  function rowsByLength(model, view) {
    const columns = view.average ? model.averages.get(view.name) : model.tasks.get(view.name)?.rows;
    if (!columns) return new Map();
    const names = Object.keys(columns);
    return new Map(
      columns.length.map((length, at) => [length, Object.fromEntries(names.map((name) => [name, columns[name][at]]))]),
    );
  }

  const scoresOf = (row, scales) =>
    el(
      "div",
      { class: "scores" },
      el("span", { class: "what" }, "nDCG@10 "),
      el("b", {}, board.percent(row.ndcg_at_10)),
      el("span", { class: "ends" }, board.ndcgInterval(row)),
      board.ndcgSparkline(row, scales.ndcg),
      el("span", { class: "what" }, "Start to end "),
      el("b", {}, board.points(row.start_to_end)),
      el("span", { class: "ends" }, board.startToEndInterval(row)),
      el("span", {}),
      el("span", { class: "what" }, "PSI "),
      el("b", {}, board.plain(row.psi_estimate)),
      el("span", { class: "ends" }, board.psiInterval(row)),
      board.psiSparkline(row, scales.psi),
      el(
        "span",
        { class: "bias faint" },
        [row.bias === board.DASH ? null : row.bias, board.nullRange(row) && `null ${board.nullRange(row)}`].filter(Boolean).join("; "),
      ),
    );

  function table(models, title, corner, rows) {
    const all = rows.flatMap(([, ...cells]) => cells).filter(Boolean);
    const names = ["ndcg_at_10", "ndcg_at_10_low", "ndcg_at_10_high", "psi_estimate", "psi_high", "psi_null_p95"];
    const scales = board.scales(Object.fromEntries(names.map((name) => [name, all.map((row) => row[name])])));
    return perModel(
      title,
      models,
      corner,
      rows.map(([name, ...cells]) => [name, ...cells.map((row) => (row ? scoresOf(row, scales) : board.DASH))]),
    );
  }

  board.byLength = (models, choice) => {
    const found = models.map((model) => rowsByLength(model, choice));
    const lengths = [...new Set(found.flatMap((one) => [...one.keys()]))];
    if (!lengths.length) return null;
    const rows = lengths.map((length) => [length === "all" ? "All" : length, ...found.map((one) => one.get(length))]);
    return board.section(
      `${choice.average ? `${choice.name}, ${choice.label.toLowerCase()}` : choice.name}: by document length`,
      table(models, "Scores by length", "Length", rows),
    );
  };

  /** Return scores by language, or by another dimension of a group. */
  board.byChoice = (models, tasks, group, length) => {
    const rows = tasks.map((task) => {
      const found = models.map((model) => rowsByLength(model, task));
      return [task.label, ...found.map((one) => one.get(length) ?? one.get("all"))];
    });
    const dimension = group.dimension.toLowerCase();
    return board.section(
      `${group.name}: by ${dimension}${length === "all" ? "" : `, ${length}`}`,
      table(models, `Scores by ${dimension}`, group.dimension, rows),
    );
  };
}
