"""Names of the numbers that the audits of reports give -> how a table calls them, and which way they point."""

from __future__ import annotations

from typing import NamedTuple


class Metric(NamedTuple):
    """A row of the table: its name in RESULT, its title, which way it points, what it means.

    `form`: share (in percent), count (whole), mean (one decimal), number. `pair`: it is of two groups.
    """

    name: str
    title: str
    points: str
    about: str
    form: str = "number"
    pair: bool = False


_ALIKE = "higher = more like the reference"
_VARIED = "higher = more varied"
_NONE = "no direction"
SIMILARITY = (
    Metric(
        "bertscore_f1", "BERTScore F1", _ALIKE, "Tokens matched by their embeddings, precision and recall combined."
    ),
    Metric("bertscore_precision", "BERTScore precision", _ALIKE, "Share of generated tokens that find a match."),
    Metric("bertscore_recall", "BERTScore recall", _ALIKE, "Share of reference tokens that find a match."),
    Metric("rouge1", "ROUGE-1", _ALIKE, "Words in both reports (F1), mean over reports."),
    Metric("rougeL", "ROUGE-L", _ALIKE, "Longest common subsequence of words (F1), mean over reports."),
    Metric("bleu", "BLEU, mean over reports", _ALIKE, "Runs of one to four words that the reference also has."),
    Metric("corpus_bleu", "BLEU of the corpus", _ALIKE, "The same, counted over all reports together."),
    Metric("ratescore", "RaTEScore", _ALIKE, "Medical entities matched by their embeddings."),
)
DIVERSITY = (
    Metric("template_diversity", "Template diversity", _VARIED, "Distinct reports as a share of all: 100% = no two "
                                                                "alike.",
           "share"),
    Metric("n_templates", "Different reports", _VARIED, "Number of distinct texts.", "count"),
    Metric("top_template", "Most frequent report", "higher = less varied",
           "Share of images that receive the most frequent text.", "share"),
    Metric("type_token_ratio", "Type-token ratio", _VARIED, "Distinct words per token; falls as a corpus grows, so "
           "compare it only between corpora of one size.", "share"),
    Metric("self_bleu_diversity", "1 − self-BLEU", _VARIED, "How little the reports overlap with each other.", "share"),
    Metric("semantic_diversity", "Semantic diversity", _VARIED, "1 minus the mean cosine between the embeddings of two "
           "reports.", "share"),
    Metric("words_per_report", "Words per report", _NONE, "Mean length.", "mean"),
    Metric("n_empty", "Empty reports", "fewer is better", "Reports without any word; they are included in every "
                                                          "other metric.",
           "count"),
)  # fmt: skip
VOCABULARY = (
    Metric("vocabulary", "Different words", _VARIED, "Distinct words without stop words.", "count"),
    Metric("vocabulary_kept", "… kept", "of the references' words", "Words of the references that are also generated.",
           "count"),
    Metric("vocabulary_lost", "… lost", "of the references' words", "Words of the references that are never generated.",
           "count"),
    Metric("vocabulary_new", "… new", "in no reference", "Words that no reference has.", "count"),
    Metric("lost_mass", "Reference tokens lost", "higher = more is never written", "Share of reference tokens whose "
           "word is never generated.", "share"),
    Metric("new_mass", "Generated tokens that are new", "higher = more new words", "Share of generated tokens "
           "whose word is in no reference.", "share"),
    Metric("omitted_mass", "Omitted reference mass", "higher = more is omitted", "Share of reference tokens "
           "of words generated at less than half the rate.", "share"),
)  # fmt: skip
_FEWER = "higher = more is lost"
_OWN = "higher = more is added"
WORDS = (
    Metric("n_associated", "Words associated with a group in the references", "can be lost", "Their association is "
           "significant after correction; only these words can be erased or preserved.", "count", True),
    Metric("erasure", "Erased", _FEWER, "Omitted and neutralised words together. By chance: the mean count with group "
           "labels shuffled between patients.", "count", True),
    Metric("omitted", "… omitted", _FEWER, "Generated at less than half the rate of the references, and no longer "
           "associated.", "count", True),
    Metric("neutralised", "… neutralised", _FEWER, "Written, but no longer more often for one group.", "count", True),
    Metric("erasure.paper", "Erased, published rule", _FEWER, "The rule as published: displaced beyond 1.96 without "
           "correction. It cannot detect a word that is never generated, and counts chance as erasure.", "count", True),
    Metric("erasure.exact", "Erased, exact rule", _FEWER, "An exact test of the references, which also detects words "
           "that only one group has.", "count", True),
    Metric("new", "New associations", _OWN, "Neutral in the references, associated in the generated reports.", "count",
           True),
    Metric("new.paper", "New, published rule", _OWN, "The same by the rule as published, without correction.", "count",
           True),
    Metric("flip", "Flipped", _OWN, "Associated with one group in the references and with the other in the generated "
           "reports.", "count", True),
    Metric("flip.paper", "Flipped, published rule", _OWN, "The same by the rule as published, without correction.",
           "count", True),
    Metric("amplified", "Amplified", "higher = stronger than in the references", "Displaced further to the same side.",
           "count", True),
    Metric("weakened", "Weakened", _FEWER, "Displaced towards neutral, or lost without a significant association in "
                                           "the references.",
           "count", True),
    Metric("preserved", "Preserved", "higher = more is kept", "Associated in both, on the same side, not displaced.",
           "count", True),
    Metric("preserved.paper", "Preserved, published rule", "displaced words only", "The published rule counts a word "
           "as preserved if it is displaced and stays on its side.", "count", True),
)  # fmt: skip
_WAE = (
    "0 for identical text, about 1 for faithful text by another author, and low again if all reports collapse to one "
    "template. Compare it with its null (the references split into two halves) and the omitted mass."
)
FAIRNESS = (
    Metric("wae_prediction", "WAE, generated weights", _NONE, f"Mean squared displacement of words, weighted by how "
           f"often they are generated. {_WAE}", "number", True),
    Metric("wae_reference", "WAE, reference weights", _NONE, f"The same, weighted by how often words occur in the "
           f"references. {_WAE}", "number", True),
    Metric("delta_wae_prediction", "ΔWAE, generated weights", "0 = both groups alike", "WAE over words of the first "
           "group minus WAE over words of the second.", "number", True),
    Metric("delta_wae_reference", "ΔWAE, reference weights", "0 = both groups alike", "The same with reference "
           "weights.", "number", True),
    Metric("weat", "WEAT", "0 = no association", "Association of word sets by word embeddings.", "number", True),
    Metric("weat_effect_size", "WEAT effect size", "0 = no association", "The same in standard deviations.", "number",
           True),
    Metric("delta_dir", "ΔDIR", "0 = lengths as in the references", "Tokens written for the second group over those "
           "for the first (male to female), generated minus reference.", "number", True),
)  # fmt: skip
GROUPS = (
    ("Similarity to the references", SIMILARITY),
    ("Diversity and collapse", DIVERSITY),
    ("Vocabulary", VOCABULARY),
    ("Words associated with a group", WORDS),
    ("Displacement and fairness", FAIRNESS),
)
_KNOWN = {metric.name: metric for _, metrics in GROUPS for metric in metrics}


def metric_of(name: str) -> Metric:
    """A metric by its name; one that we do not know keeps its name (scores that somebody brought)."""
    found = _KNOWN.get(name) or _KNOWN.get(name.partition(".")[0])
    if found is None:
        return Metric(name, name, "", "")
    if found.name != name:
        return found._replace(name=name, title=f"{found.title} ({name.partition('.')[2]})")
    return found


def is_known(name: str) -> bool:
    """Whether this page has words for exactly this metric."""
    return name in _KNOWN
