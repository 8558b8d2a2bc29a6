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
      ["License", (model) => board.name(model.license ?? board.DASH)],
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
        "Fact",
        rows.map(([name, cell]) => [name, ...models.map(cell)]),
      ),
    );
  };

  /** Return what a model's file has of a view, a task or an average. */
  const detailOf = (model, view) => (view.average ? model.averages : model.tasks).get(view.name);
  board.detailOf = detailOf;

  /** Return a model's rows of a view by length. */
  function rowsByLength(model, view) {
    const columns = detailOf(model, view)?.rows;
    if (!columns) return new Map();
    const names = Object.keys(columns);
    return new Map(
      columns.length.map((length, at) => [length, Object.fromEntries(names.map((name) => [name, columns[name][at]]))]),
    );
  }

  /** Return nDCG@10 and start to end of a row as text, with their intervals, and the state of the bias. */
  const scoresOf = (row) =>
    el(
      "div",
      { class: "scores" },
      el("b", {}, board.percent(row.score)),
      el("span", { class: "ends" }, board.scoreInterval(row)),
      board.known(row.start_to_end ?? row.start_to_end_unweighted) ? el("span", { class: "change" }, board.points(row.start_to_end ?? row.start_to_end_unweighted)) : null,
      el("span", { class: "ends" }, board.intervalText(row, "start_to_end")),
      board.isDecided(row) && board.known(row.score) ? board.chip(row) : null,
    );

  const KEY = () => el("p", { class: "faint" }, "Bold: nDCG@10 (of published results in a length, the mean over positions). Signed: start to end, in points. Below each its interval, if known, and the state of the bias in what is read.");

  /** Return scores by length: a row per model, which leaves room for all lengths. */
  board.byLength = (models, choice) => {
    const found = models.map((model) => rowsByLength(model, choice));
    const lengths = [...new Set(found.flatMap((one) => [...one.keys()]))];
    if (!lengths.length) return null;
    const head = ["Model", ...lengths.map((length) => (length === "all" ? "All" : length))];
    const body = models.map((model, at) =>
      el(
        "tr",
        {},
        el("th", { scope: "row" }, board.swatch(model), board.name(model.label)),
        ...lengths.map((length) => el("td", {}, found[at].has(length) ? scoresOf(found[at].get(length)) : board.DASH)),
      ),
    );
    const table = el(
      "table",
      { class: "per-length" },
      el("caption", { class: "unseen" }, "Scores by length"),
      el("thead", {}, el("tr", {}, ...head.map((text) => el("th", { scope: "col" }, text)))),
      el("tbody", {}, ...body),
    );
    return board.section(`${titleOf(choice)}: by document length`, board.wide(table), KEY());
  };

  const titleOf = (choice) => (choice.average ? `${choice.name}, ${choice.label.toLowerCase()}` : choice.name);
  board.titleOf = titleOf;

  /** Return scores by language, or by another dimension of a group. */
  board.byChoice = (models, tasks, group, length) => {
    const rows = tasks.map((task) => {
      const found = models.map((model) => rowsByLength(model, task));
      return [task.label, ...found.map((one) => one.get(length) ?? one.get("all"))];
    });
    const dimension = group.dimension.toLowerCase();
    return board.section(
      `${group.name}: by ${dimension}${length === "all" ? "" : `, ${length}`}`,
      perModel(
        `Scores by ${dimension}`,
        models,
        group.dimension,
        rows.map(([name, ...cells]) => [name, ...cells.map((row) => (row ? scoresOf(row) : board.DASH))]),
      ),
      KEY(),
    );
  };

  /** Return differences of nDCG@10 to the first model on the same queries, with the state that follows from the interval. */
  board.differences = (models, paired, choice) => {
    if (models.length < 2 || models.every((model) => model.published)) return null;
    const heading = `Differences to ${models[0].label}`;
    const first = paired?.models.indexOf(models[0].at) ?? -1;
    const known = models.slice(1).filter((model) => first >= 0 && paired.models.includes(model.at));
    if (!known.length) {
      const why = "These models are not compared pairwise: a paired test needs the ranks of both on the same queries, which published results do not have.";
      return board.section(heading, el("p", { class: "empty" }, why));
    }
    const lengths = Object.keys(paired.lengths);
    const cell = (length, other) => {
      const [value, half, state] = ["value", "half", "state"].map((name) => paired.lengths[length][name][other][first]);
      if (!board.known(value)) return board.DASH;
      const ends = `[${[value - half, value + half].map((end) => board.points(Math.min(1, Math.max(-1, end)))).join(", ")}]`;
      return el(
        "div",
        { class: "scores" },
        el("b", {}, board.points(value)),
        el("span", { class: "ends" }, ends),
        el("span", { class: "ends" }, state),
      );
    };
    const body = known.map((model) =>
      el(
        "tr",
        {},
        el("th", { scope: "row" }, board.swatch(model), board.name(model.label)),
        ...lengths.map((length) => el("td", {}, cell(length, paired.models.indexOf(model.at)))),
      ),
    );
    const head = ["Model", ...lengths.map((length) => (length === "all" ? "All" : length))];
    return board.section(
      heading,
      board.wide(
        el(
          "table",
          { class: "per-length" },
          el("caption", { class: "unseen" }, heading),
          el("thead", {}, el("tr", {}, ...head.map((text) => el("th", { scope: "col" }, text)))),
          el("tbody", {}, ...body),
        ),
      ),
      el(
        "p",
        { class: "faint" },
        `nDCG@10 on ${titleOf(choice)}, in points, with intervals by document or article, adjusted for ${[...new Set(lengths.map((length) => paired.lengths[length].comparisons))].join(" comparisons, in a length for ")}.${choice.average ? "" : " Differences, intervals and states are those of posir compare."}`,
      ),
    );
  };
}
