"""The planted truths have the answers of methods.md, and the samples have the planted truths."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from cxrhf.metrics import auroc
from cxrhf.twin import planted


def rank_auroc(y, p):
    """AUROC of scores without ties, from the ranks of the positives."""
    ranks = np.argsort(np.argsort(p)) + 1
    return (ranks[y == 1].mean() - (y.sum() + 1) / 2) / (y == 0).sum()


def test_context_closed_forms():
    truth = planted.context_truth()
    assert (truth.standard, truth.att, truth.ipw) == pytest.approx((0.871910, 0.744530, 0.796822), abs=5e-7)
    assert (truth.sensitivity, truth.sensitivity_att) == pytest.approx((0.4240, 0.1750), abs=5e-5)
    # methods.md took these from simulation, so they agree to its noise only
    assert truth.matched == pytest.approx(0.7615, abs=0.001)
    assert truth.strata == pytest.approx((0.917, 0.847, 0.758), abs=0.0012)
    assert truth.sensitivity_local == pytest.approx((0.611, 0.410, 0.237), abs=0.0015)
    assert truth.sensitivity_global == pytest.approx((0.167, 0.319, 0.534), abs=0.005)
    rare = planted.context_truth(pi=0.05)
    assert rare.ipw == pytest.approx(0.810254, abs=5e-7)
    assert rare.matched == pytest.approx(0.747, abs=0.003)
    null = planted.context_truth(g=0, eta=0)
    for value in (null.standard, null.att, null.ipw, null.matched, *null.strata):
        assert value == pytest.approx(0.855578, abs=5e-7)


def test_context_truth_at_the_ends():
    """Without information in C nothing can be matched; with classes of one size nobody is left out."""
    flat = planted.context_truth(m=0)
    assert flat.att == flat.standard == pytest.approx(flat.matched)
    assert np.isnan(flat.strata[0])
    even = planted.context_truth(pi=0.5)
    assert even.matched == pytest.approx(even.standard)
    # rarer positives find better partners: towards the ATT value
    gaps = [planted.context_truth(pi=pi).matched - planted.context_truth().att for pi in (0.4, 0.2, 0.05, 0.01)]
    assert all(a > b > 0 for a, b in itertools.pairwise(gaps))
    # swapping the classes and the signs leaves the separation as it is
    assert planted.context_truth(pi=0.8, eta=0.0).matched == pytest.approx(
        planted.context_truth(pi=0.2, eta=0.0).matched
    )


def test_context_samples_have_the_stated_law():
    sample = planted.context(60_000, images_per_patient=(1, 6), seed=1)
    y, q, s = sample.y, sample.pretest, sample.score
    assert y.mean() == pytest.approx(0.2, abs=0.01)
    for low, high in ((0.05, 0.1), (0.2, 0.3), (0.5, 0.7)):  # q is the exact pre-test probability
        rows = (q >= low) & (q < high)
        assert y[rows].mean() == pytest.approx(q[rows].mean(), abs=4 * 0.5 / np.sqrt(rows.sum() / 3))
    assert s[y == 0].mean() == pytest.approx(0, abs=0.03)
    assert s[y == 0].std() == pytest.approx(np.sqrt(1.64), abs=0.02)
    assert s[y == 1].mean() == pytest.approx(1.9, abs=0.05)
    assert s[y == 1].std() == pytest.approx(np.sqrt(1.16), abs=0.03)
    assert np.all(np.diff(sample.prob[np.argsort(s)]) >= 0)
    assert np.mean((sample.prob - y) ** 2) == pytest.approx(sample.truth.brier, abs=0.004)
    np.testing.assert_array_equal(sample.score, planted.context(60_000, images_per_patient=(1, 6), seed=1).score)
    assert np.any(sample.score != planted.context(60_000, images_per_patient=(1, 6), seed=2).score)


def test_rows_of_one_patient_are_alike():
    sample = planted.context(40_000, images_per_patient=2, seed=3)
    first, second = np.arange(0, 40_000, 2), np.arange(1, 40_000, 2)
    np.testing.assert_array_equal(sample.patient[first], sample.patient[second])
    assert len(np.unique(sample.patient)) == 20_000
    for values in (sample.y, sample.context, sample.score):
        assert np.corrcoef(values[first], values[second])[0, 1] > 0.25
    alone = planted.context(100, seed=3)
    assert len(np.unique(alone.patient)) == 100
    with pytest.raises(ValueError, match="images_per_patient"):
        planted.context(10, images_per_patient=0)


def test_patients_widen_the_spread_of_an_estimate():
    """Several images a patient: the AUROC varies more between samples of equal size, around the same truth."""
    spread = []
    for images in (1, 8):
        values = []
        for seed in range(40):
            sample = planted.context(1200, images_per_patient=images, seed=seed)
            values.append(rank_auroc(sample.y, sample.score))
        assert np.mean(values) == pytest.approx(sample.truth.standard, abs=4 * np.std(values) / np.sqrt(40))
        spread.append(np.std(values))
    assert spread[1] > 1.2 * spread[0]


def test_slices_truth():
    truth = planted.slices_truth()
    assert (truth.brier_hidden, truth.brier_rest) == pytest.approx((0.403041, 0.073203), abs=5e-7)
    assert truth.brier_positive == pytest.approx(0.106187, abs=5e-7)
    assert (truth.precision, truth.recall) == pytest.approx((0.9502, 0.9266), abs=5e-5)


def test_slices_samples():
    sample = planted.slices(60_000, seed=1)
    pos = sample.y == 1
    error = (1 - sample.prob) ** 2
    hidden, rest = pos & (sample.hidden == 1), pos & (sample.hidden == 0)
    assert sample.embedding.shape == (60_000, 16)
    assert not sample.hidden[~pos].any()
    assert sample.hidden[pos].mean() == pytest.approx(0.1, abs=0.007)
    assert error[hidden].mean() == pytest.approx(sample.truth.brier_hidden, abs=0.02)
    assert error[rest].mean() == pytest.approx(sample.truth.brier_rest, abs=0.005)
    assert (sample.prob[~pos] ** 2).mean() == pytest.approx(sample.truth.brier_negative, abs=0.005)
    assert sample.embedding[hidden, 0].mean() == pytest.approx(4, abs=0.1)
    called = pos & (sample.embedding[:, 0] > 2 + np.log(9) / 4)
    assert sample.hidden[called].mean() == pytest.approx(sample.truth.precision, abs=0.02)
    assert called[hidden].mean() == pytest.approx(sample.truth.recall, abs=0.02)


@pytest.mark.parametrize("null", ["blind", "harmless", "score"])
def test_slices_nulls(null):
    sample = planted.slices(30_000, null=null, seed=2)
    pos = sample.y == 1
    error = (1 - sample.prob) ** 2
    if null == "score":
        assert not sample.hidden.any()
        assert abs(np.corrcoef(sample.embedding[pos, 7], sample.logit[pos])[0, 1]) > 0.7
        return
    hidden = sample.hidden == 1
    shift = sample.embedding[hidden, 0].mean() - sample.embedding[pos & ~hidden, 0].mean()
    gap = error[hidden].mean() - error[pos & ~hidden].mean()
    assert shift == pytest.approx(0 if null == "blind" else 4, abs=0.12)
    assert gap == pytest.approx(0.329838 if null == "blind" else 0, abs=0.03)
    with pytest.raises(ValueError, match="null"):
        planted.slices(10, null="nothing")


def test_shortcut():
    truth = planted.shortcut_truth()
    assert (truth.auroc["M"], truth.auroc["F"]) == pytest.approx((0.7931, 0.8172), abs=5e-5)
    assert truth.auroc_equalised == pytest.approx(0.8052, abs=5e-5)
    sample = planted.shortcut(60_000, seed=1)
    for (sex, label), share in planted.CHEXPERT_DRAINS.items():
        rows = (sample.sex == sex) & (sample.y == label)
        assert sample.drain[rows].mean() == pytest.approx(share, abs=0.02)
    for sex in "MF":
        rows = sample.sex == sex
        assert rank_auroc(sample.y[rows], sample.score[rows]) == pytest.approx(truth.auroc[sex], abs=0.01)
    even = planted.shortcut(60_000, equalised=True, seed=3)
    assert even.truth.auroc["M"] == even.truth.auroc["F"] == pytest.approx(truth.auroc_equalised)
    shares = [even.drain[(even.sex == sex) & (even.y == 0)].mean() for sex in "MF"]
    assert shares == pytest.approx([0.1885, 0.1885], abs=0.02)


def test_subgroups_truth():
    truth = planted.subgroups_truth()
    assert truth.threshold == pytest.approx(1.3597, abs=5e-5)
    assert truth.tpr == pytest.approx([0.7324, 0.7118, 0.6628], abs=5e-5)
    assert truth.fpr == pytest.approx([0.2059, 0.1899, 0.1598], abs=5e-5)
    assert truth.balanced_tpr == pytest.approx([0.7252] * 3, abs=5e-5)
    assert truth.balanced_fpr == pytest.approx([0.2] * 3, abs=1e-9)
    assert truth.balanced_auroc == pytest.approx([0.8457] * 3, abs=5e-5)
    shifted = planted.subgroups_truth(shift=0.5)
    assert shifted.balanced_tpr == pytest.approx([0.7252, 0.7252, 0.5469], abs=5e-5)
    assert shifted.balanced_auroc[2] == pytest.approx(0.7516, abs=5e-5)
    assert shifted.threshold == truth.threshold


@pytest.mark.parametrize("shift", [0.0, 0.5])
def test_subgroups_samples(shift):
    """Raw rates by race, and balanced ones by the weights of methods.md: w = P(d) P(a|d) / P_obs(r, d, a) / R."""
    sample = planted.subgroups(150_000, shift=shift, seed=1)
    y, race, age, truth = sample.y, sample.race, sample.age, sample.truth
    called = sample.score >= truth.threshold
    cell = np.zeros((3, 2, 3))
    np.add.at(cell, (race, y, age), 1 / len(y))
    weight = (cell.sum(axis=0)[None] / 3 / cell)[race, y, age]
    for r in range(3):
        pos, neg = (race == r) & (y == 1), (race == r) & (y == 0)
        assert (race == r).mean() == pytest.approx([0.78, 0.15, 0.07][r], abs=0.005)
        assert y[race == r].mean() == pytest.approx([0.41, 0.44, 0.33][r], abs=0.02)
        assert called[pos].mean() == pytest.approx(truth.tpr[r], abs=0.03)
        assert called[neg].mean() == pytest.approx(truth.fpr[r], abs=0.025)
        assert np.average(called[pos], weights=weight[pos]) == pytest.approx(truth.balanced_tpr[r], abs=0.03)
        assert np.average(called[neg], weights=weight[neg]) == pytest.approx(truth.balanced_fpr[r], abs=0.025)


def test_women_and_men_change_places_in_the_papers_population():
    found = {
        name: planted.diseases_truth("pleural_effusion", name).auroc
        for name in ("", "_balanced_by_race", "_balanced_by_race_and_disease")
    }
    women, men = ([each[f"sex={sex}"] for each in found.values()] for sex in "FM")
    assert women == pytest.approx([0.8327, 0.8498, 0.8092], abs=5e-5)
    assert men == pytest.approx([0.8130, 0.8296, 0.8345], abs=5e-5)
    for finding in ("no_finding", "pleural_effusion"):
        alike = planted.diseases_truth(finding, "_balanced_by_race_and_disease", alike=True)
        assert list(alike.auroc.values()) == pytest.approx([0.8556] * 5, abs=5e-5)
        assert list(alike.fpr.values()) == pytest.approx([0.2] * 5, abs=1e-9)


@pytest.mark.parametrize("finding", ["no_finding", "pleural_effusion"])
def test_diseases_samples(finding):
    """Rates and AUROC by sex as they are, and by the weights w = P(d) P(a|d) / P_obs(r, d, a) / R of disease groups."""
    sample = planted.diseases(150_000, seed=1)
    y, score, cell = sample.y[finding], sample.score[finding], np.zeros((3, 3, 3))
    np.add.at(cell, (sample.race, sample.disease, sample.age), 1 / len(y))
    weight = (cell.sum(axis=0)[None] / 3 / cell)[sample.race, sample.disease, sample.age]
    for population, w in (("", np.ones(len(y))), ("_balanced_by_race_and_disease", weight)):
        truth = planted.diseases_truth(finding, population)
        for sex in "FM":
            own = sample.sex == sex
            assert auroc(y[own], score[own], w[own]) == pytest.approx(truth.auroc[f"sex={sex}"], abs=0.01)
            for d, rate in ((1, truth.tpr), (0, truth.fpr)):
                part = own & (y == d)
                called = np.average(score[part] >= truth.threshold, weights=w[part])
                assert called == pytest.approx(rate[f"sex={sex}"], abs=0.02)


def test_words_truth():
    sample = planted.words()
    truth = sample.truth
    assert list(truth.z_disp.values()) == pytest.approx([5.8226, -7.6704, -0.7409, 7.8375, 0, -2.8560], abs=5e-5)
    assert (truth.wae_pred, truth.wae_ref) == pytest.approx((1.13999, 0.99621), abs=6e-6)
    assert (truth.wae_f, truth.wae_m) == pytest.approx((6.58462, 21.93806), abs=6e-6)
    assert list(truth.category.values()) == ["new", "new", "omitted", "flip", "preserved", "neutralised"]
    vocabulary = set(sample.reference["F"]) | set(sample.reference["M"])
    assert len(vocabulary) == 396
    assert all(word.isalpha() and word == word.lower() for word in vocabulary)
    assert sample.reference["F"]["mastectomy"] == 60
    assert "mastectomy" not in sample.prediction["F"]
    assert sample.prediction["M"]["pneumothorax"] == 250


def _counted(texts, groups):
    counts = {"F": {}, "M": {}}
    for text, group in zip(texts, groups, strict=True):
        for word in text.lower().replace(".", "").split():
            counts[group][word] = counts[group].get(word, 0) + 1
    return counts


@pytest.mark.parametrize("n", [20, 501])
def test_word_reports_hold_the_counts(n):
    reports, counts = planted.word_reports(n, seed=1), planted.words()
    assert len(reports.reference) == len(reports.generated) == len(reports.group) == len(set(reports.patient)) == n
    assert _counted(reports.reference, reports.group) == counts.reference
    assert _counted(reports.generated, reports.group) == counts.prediction
    assert reports == planted.word_reports(n, seed=1)
    assert reports.reference != planted.word_reports(n, seed=2).reference


def test_word_reports_of_other_kinds():
    faithful = planted.word_reports(100, kind="faithful", exact=False, seed=1)
    counts = _counted(faithful.generated, faithful.group)
    assert counts["F"]["mastectomy"] == pytest.approx(60, abs=40)
    assert counts != planted.words().reference
    collapsed = planted.word_reports(100, kind="collapsed", seed=1)
    assert len(_counted(collapsed.generated, collapsed.group)["F"]) == 2
    with pytest.raises(ValueError, match="kind"):
        planted.word_reports(10, kind="empty")


def test_calibrated_truth():
    plain = planted.calibrated_truth(0.0)
    got = (plain.adaptive_calibration_error, plain.brier, plain.brier_skill_score, plain.brier_positive)
    assert got == pytest.approx((0, 0.128, 0.2, 0.448), abs=1e-9)
    assert plain.brier_negative == pytest.approx(0.048, abs=1e-9)
    step = planted.calibrated_truth(0.4)
    got = (step.prevalence, step.adaptive_calibration_error, step.brier, step.brier_skill_score, step.balanced_brier)
    assert got == pytest.approx((0.15297, 0.04703, 0.11027, 0.14899, 0.48284), abs=5e-6)
    far = planted.calibrated_truth(1.0)
    assert (far.adaptive_calibration_error, far.brier_skill_score) == pytest.approx((0.10193, -0.0467), abs=5e-5)


@pytest.mark.parametrize("h", [0.0, 0.4, 1.0])
def test_calibrated_samples(h):
    sample = planted.calibrated(100_000, h, seed=1)
    assert sample.y.mean() == pytest.approx(sample.truth.prevalence, abs=0.006)
    assert np.mean((sample.prob - sample.y) ** 2) == pytest.approx(sample.truth.brier, abs=0.004)
    assert sample.prob.mean() - sample.y.mean() == pytest.approx(sample.truth.adaptive_calibration_error, abs=0.006)


class TestDemo:
    def test_it_is_a_prediction_table(self):
        from cxrhf.schema import PREDICTION
        from cxrhf.tables.checks import check

        table = planted.demo_predictions(200, seed=1)
        assert table.schema.equals(PREDICTION)
        assert check(table, PREDICTION).equals(table)
        assert table.equals(planted.demo_predictions(200, seed=1))
        assert not table.equals(planted.demo_predictions(200, seed=2))

    def test_rows_are_images_by_findings(self):
        table = planted.demo_predictions(300, seed=0)
        frame = {name: np.array(table[name].to_pylist()) for name in ("image_id", "patient_id", "study_id", "finding")}
        findings = [f.finding for f in planted.DEMO_FINDINGS]
        n = table.num_rows // len(findings)
        assert sorted(set(frame["finding"])) == sorted(findings)
        assert len(set(frame["image_id"])) == n
        assert len(set(frame["patient_id"])) == 300
        first = frame["finding"] == findings[0]
        counts = np.unique(frame["patient_id"][first], return_counts=True)[1]
        assert counts.min() == 1
        assert counts.max() == 8
        for name in ("patient_id", "study_id"):  # an image has one patient and one study, a study one patient
            for finding in findings[1:]:
                np.testing.assert_array_equal(frame[name][first], frame[name][frame["finding"] == finding])
        owner = dict(zip(frame["study_id"], frame["patient_id"], strict=True))
        assert all(owner[s] == p for s, p in zip(frame["study_id"], frame["patient_id"], strict=True))

    def test_the_default_demo_has_the_planted_truths(self):
        table = planted.demo_predictions()
        truths = planted.demo_truth()
        finding = np.array(table["finding"].to_pylist())
        label = np.array([np.nan if v is None else v for v in table["label"].to_pylist()], dtype=float)
        prob, pretest = table["prob"].to_numpy(), table["pretest"].to_numpy()
        for planned in planted.DEMO_FINDINGS:
            rows = (finding == planned.finding) & ~np.isnan(label)
            y, p, truth = label[rows], prob[rows], truths[planned.finding]
            masked = np.isnan(label[finding == planned.finding]).mean()
            assert masked == pytest.approx(planned.masked, abs=0.02)
            assert rank_auroc(y, p) == pytest.approx(truth.standard, abs=3.5 * 0.45 / np.sqrt(y.sum()))
            assert pretest[rows].mean() == pytest.approx(planned.pi, abs=0.03)
            assert p.mean() == pytest.approx(y.mean(), abs=0.03)
        few = label[finding == "fracture"]
        assert 5 <= np.nansum(few) <= 80
        assert truths["pneumothorax"].standard == pytest.approx(truths["pneumothorax"].att)
        assert truths["edema"].standard - truths["edema"].att > 0.25

    def test_groups_have_no_bearing_on_scores(self):
        table = planted.demo_predictions(seed=3)
        rows = np.array(table["finding"].to_pylist()) == "atelectasis"
        prob, sex = table["prob"].to_numpy()[rows], np.array(table["sex"].to_pylist())[rows]
        assert prob[sex == "F"].mean() == pytest.approx(prob[sex == "M"].mean(), abs=0.03)
