"use strict";
// The heading: what the rows that pass the filters show; and the legend of the table, of what its rows have.

{
  const { el, byId, known } = board;
  const short = (row) => board.name(row.label.split("/").at(-1) || row.label);
  const points = (value) => Math.abs(value * 100).toFixed(1);
  const plural = (number, word) => `${board.count(number)} ${word}${number === 1 ? "" : "s"}`;

  const tokens = (length) => (board.lengths[length] ?? length).split(": ").at(-1);

  /** Return the rows that are not worse than the best, then the others; by descending score. */
  board.standing = (rows) => {
    const sorted = rows.filter((row) => known(row.score)).sort((one, other) => other.score - one.score);
    const [best, ...others] = sorted;
    return { best: best ?? null, ties: others.filter((row) => board.tied(best, row)), behind: others.filter((row) => !board.tied(best, row)) };
  };

  /** Return the names of up to two rows, and how many more there are. */
  board.namesOf = (rows) => {
    const named = rows.slice(0, rows.length === 3 ? 3 : 2).map(short);
    const rest = rows.length - named.length;
    const parts = rest ? [...named, `${rest} more`] : named;
    return parts.flatMap((part, at) => (at === 0 ? [part] : [at === parts.length - 1 ? " and " : ", ", part]));
  };

  /** Return the finding of the rows that pass filters, as text and elements. */
  function finding(rows, state, where) {
    const passing = rows.filter((row) => board.isComparable(row) && board.passes(row, state));
    const { best, ties, behind } = board.standing(passing);
    if (!best) return ["No model passes these filters."];
    const lead = [`Of ${plural(passing.length, "model")} with these filters, `, short(best), ` finds most ${where} (${board.percent(best.score)}).`];
    const [open, next] = [ties[0], behind[0]];
    const tie = open ? [" Whether it is better than ", ...board.namesOf(ties), ` (${points(open.score - best.score)} behind) cannot be said.`] : [];
    const equal = open && (open.changes?.[best.at] === "e" || !best.rank);
    const same = equal ? [" ", ...board.namesOf(ties), `: ${board.changeOf(best, open) ?? "the same"}.`] : tie;
    return [...lead, ...same, ...(next ? [" ", short(next), ` is ${points(next.score - best.score)} behind.`] : [])];
  }

  /** Say in the heading what the rows show, and below it what is measured and which intervals are unknown. */
  board.showFinding = (rows, state, shown, { where, headline }) => {
    if (!shown.choice) return byId("finding").replaceChildren("No results yet.");
    byId("finding").replaceChildren(...(board.isFiltered(state) ? finding(rows, state, where) : headline.map((part, at) => (at % 2 ? board.name(part) : part))));
    const data = shown.choice.average ? `${shown.group.name}, ${shown.choice.label.toLowerCase()}` : shown.choice.data;
    const what = shown.length === "all" ? "" : ` in documents of ${tokens(shown.length)}`;
    const without = rows.filter((row) => known(row.score) && !known(row.score_low));
    const why = without.some((row) => row.published) ? ` ${without.length === rows.length ? "All are published results, which have" : "Published results have"} no intervals here: the papers do not give the numbers of queries${shown.length === "all" ? "" : " by length"}.` : "";
    return byId("measured").replaceChildren(`nDCG@10${what}; ${data}.${why}`);
  };

  /** Return the legend of the table: a term and its meaning for each of what its rows have. */
  board.key = (rows, { best }) => {
    const some = (has) => rows.some(has);
    const unweighted = (row) => known(row.start_to_end_unweighted) && !known(row.start_to_end);
    const entries = [
      [some((row) => known(row.score_low)), "nDCG@10", "Below it, its 95 % interval."],
      [best, "Behind", "Points behind the best of these data." + (some((row) => row.rank) ? " Cannot be said: whether it is worse than the best. Models of which that cannot be said share a range of ranks." : "")],
      [some((row) => row.strip), "Over position", "A document from its start to its end: nDCG@10 at each place of what is read, axis 0–100, with 95 % intervals. Hatched: evidence that is not read, as wide as its share. Without it and intervals: by place in whole documents, read or not."],
      [some((row) => known(row.effect)), "Start to end", "First third of documents minus the last, in points: positive if the beginning is found better." +
        (some(unweighted) ? " Of published results, read from the authors’ figures, the thirds are not weighted by queries, and there is no interval." : "")],
      [some((row) => known(row.best_psi)), "PSI", "1 − worst / best position." + (some((row) => !known(row.psi) && known(row.best_psi)) ? " Observed: as published, which chance increases." : "")],
    ];
    return entries.filter(([shown]) => shown).map(([, term, text]) => el("span", {}, el("b", {}, term), ` ${text} `));
  };
}
