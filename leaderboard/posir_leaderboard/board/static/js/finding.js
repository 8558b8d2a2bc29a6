"use strict";
// The heading about the filtered rows, and the legend of the table.

{
  const { el, byId, isKnown } = board;
  const nameElement = (row) => board.name(board.shortName(row.label));
  const pluralize = (number, word) => `${board.count(number)} ${word}${number === 1 ? "" : "s"}`;

  /** Split rows into the best, those not worse than the best, and the others, each by descending score. */
  board.splitByTie = (rows) => {
    const sorted = rows.filter((row) => isKnown(row.score)).sort((a, b) => b.score - a.score);
    const [best, ...others] = sorted;
    return { best: best ?? null, ties: others.filter((row) => board.isTied(best, row)), behind: others.filter((row) => !board.isTied(best, row)) };
  };

  /** Name the first row, and the second row or the number of other rows. */
  board.listNames = ([first, ...others]) => [nameElement(first), ...(others.length ? [" and ", others.length > 1 ? `${others.length} others` : nameElement(others[0])] : [])];

  /** Return the heading about the filtered rows and the lead below it, as texts and elements. */
  function finding(rows, state, where) {
    const passing = rows.filter((row) => board.isComparable(row) && board.passes(row, state));
    const { best, ties, behind } = board.splitByTie(passing);
    if (!best) return [[board.messages.no_match], []];
    const [tied] = ties;
    const [next] = behind;
    const isPaired = (next?.changes?.[best.index] ?? "-") !== "-";
    const values = {
      best: nameElement(best),
      tied: ties.length > 1 ? board.fill("others", { number: ties.length }).join("") : tied && nameElement(tied),
      where,
      lowest: tied && board.percent(ties.at(-1).score),
      score: board.percent(best.score),
    };
    const lead = next && board.fill("ahead", { best: nameElement(best), points: board.percent(-board.pointsBehind(next, best)), second: nameElement(next), interval: "" });
    const ends = passing.every((row) => row.published) ? board.describeEnds(passing) : [];
    return [
      [...board.fill("filtered", { models: pluralize(passing.length, "model") }), ...board.fill(tied ? "tied" : isPaired ? "best" : "highest", values)],
      [...ends, ...(lead ?? [])],
    ];
  }

  /** Show the heading, the lead below it, and a note on the data. */
  board.showFinding = (rows, state, shown, { where, headline, lead }) => {
    const named = (parts) => parts.map((part, i) => (i % 2 ? board.name(part) : part));
    const [heading, below] = board.isFiltered(state) ? finding(rows, state, where) : [named(headline), named(lead)];
    const published = rows.length && rows.every((row) => row.published);
    byId("finding").replaceChildren(...heading);
    byId("lead").replaceChildren(...below);
    byId("search").placeholder = board.shortName(rows.at(-1)?.label ?? "");
    byId("bias").parentElement.hidden = !state.bias && !rows.some(board.isTested);
    const data = shown.length === "all" || !rows.length ? "" : shown.choice.average ? `${shown.group.name}, ${shown.choice.label.toLowerCase()}` : shown.choice.data;
    const what = shown.length === "all" ? "" : ` in documents of ${board.describeTokens(shown.length) || shown.length}`;
    const source = published ? `; published in the papers${rows.some((row) => isKnown(row.score_low)) ? "" : ", without intervals"}` : "";
    const intervals = !published && rows.some((row) => isKnown(row.score_low)) ? "; in brackets 95% intervals" : "";
    const single = published && shown.choice.average && !rows.some((row) => isKnown(row.difference)) ? "; start minus end is known only for single tasks" : "";
    const sample = shown.group.name === "PosIR-Mini" ? " A small sample for a first run." : "";
    const pictures = rows.some((row) => row.strip) ? el("span", { class: "narrow" }, " Charts: nDCG@10 from the start to the end of documents.") : "";
    byId("untested").hidden = !rows.some((row) => row.published);
    board.showElsewhere(rows, shown);
    return byId("measured").replaceChildren("nDCG@10 (100: the relevant document is always first)", `${[what, data && `; ${data}`, intervals, source, single].join("")}.${sample}`, pictures);
  };

  /** Link to the published results below a table that has none. */
  board.showElsewhere = (rows, { group, elsewhere }) => {
    const container = byId("elsewhere");
    container.hidden = !elsewhere || elsewhere === group || rows.some((row) => row.published);
    if (container.hidden) return;
    const count = Math.max(...elsewhere.views.map((view) => view.models));
    container.replaceChildren(`${pluralize(count, "published model")}, on other data: see `, el("a", { href: board.toFragment({ ...board.defaults(), benchmark: elsewhere.name }) }, elsewhere.name), ".");
  };

  /** Hide the legend entries for columns without values. */
  board.showKey = (rows) => {
    const has = (name) => rows.some((row) => isKnown(row[name]) && row[name] !== false);
    for (const entry of document.querySelectorAll("[data-has]")) entry.hidden = !has(entry.dataset.has);
  };
}
