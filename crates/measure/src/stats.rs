//! Whether repeats of two measurements differ: the one test of comparisons, of tables and of the doctor's contrasts.
//! `bench/compare/mod.rs` explains it. Pure, and bounded whatever comes in.

/// Less is no difference that anybody would notice.
pub(crate) const SAME_WITHIN: f64 = 0.05;
/// One in twenty may be chance.
pub(crate) const CHANCE: f64 = 0.05;

/// Enough for a standard error to two digits.
const RESAMPLES: usize = 400;
/// Longer series are averaged to so many moments first; blocks then are whole groups, which keeps autocorrelation.
const MOMENTS_MAX: usize = 1000;
/// Fewer say nothing about autocorrelation.
const MOMENTS_MIN: usize = 8;
/// SplitMix64: small, and the same everywhere.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Nearly normal: twelve uniform numbers, less their mean.
    #[cfg(test)]
    pub(crate) fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.next() as f64 / u64::MAX as f64).sum::<f64>() - 6.0
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }
}

pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Of the population that they are a sample of.
fn variance(values: &[f64]) -> f64 {
    let centre = mean(values);
    let squares: f64 = values.iter().map(|v| (v - centre) * (v - centre)).sum();
    squares / (values.len().max(2) - 1) as f64
}

/// The mean of a series, resampled in blocks: as many means as resamples, each divided by the mean itself.
pub(crate) fn block_bootstrap(series: &[f64], random: &mut Random) -> Option<Vec<f64>> {
    let known: Vec<f64> = series.iter().copied().filter(|v| v.is_finite() && *v >= 0.0).collect();
    let series = thinned(&known, MOMENTS_MAX);
    let (n, centre) = (series.len(), mean(&series));
    if n < MOMENTS_MIN || !centre.is_finite() || centre <= 0.0 {
        return None;
    }
    let block = block_length(&series);
    let one = |_| {
        let mut sum = 0.0;
        let mut taken = 0;
        while taken < n {
            let start = random.below(n);
            let length = block.min(n - taken);
            sum += (0..length).map(|k| series[(start + k) % n]).sum::<f64>();
            taken += length;
        }
        sum / n as f64 / centre
    };
    Some((0..RESAMPLES).map(one).collect())
}

/// Politis and White's, for the circular bootstrap, with their flat-top window.
pub(crate) fn block_length(series: &[f64]) -> usize {
    let n = series.len();
    let centre = mean(series);
    let covariance = |lag: usize| {
        let products = (0..n - lag).map(|t| (series[t] - centre) * (series[t + lag] - centre));
        products.sum::<f64>() / n as f64
    };
    let r0 = covariance(0);
    if r0 <= f64::MIN_POSITIVE {
        return 1;
    }
    let most = ((n as f64).sqrt().ceil() as usize).min(n / 3).max(1);
    let lags: Vec<f64> = (0..=2 * most).map(|lag| if lag < n { covariance(lag) } else { 0.0 }).collect();
    // The last lag that is told from noise; after it come `quiet` that are not.
    let quiet = 5.max((n as f64).log10().sqrt().ceil() as usize);
    let noise = 2.0 * ((n as f64).log10() / n as f64).sqrt();
    let silent = |from: usize| (from + 1..=from + quiet).all(|k| lags.get(k).is_none_or(|r| (r / r0).abs() < noise));
    let last = (0..=most).find(|k| silent(*k)).unwrap_or(most).max(1);
    let window = (2 * last).min(lags.len() - 1);
    let weight = |k: usize| match k as f64 / window as f64 {
        t if t <= 0.5 => 1.0,
        t => 2.0 * (1.0 - t),
    };
    let sum = |of: &dyn Fn(usize) -> f64| 2.0 * (1..=window).map(|k| weight(k) * of(k)).sum::<f64>();
    let g = sum(&|k| k as f64 * lags[k]);
    let spectrum = r0 + sum(&|k| lags[k]);
    let d = 4.0 / 3.0 * spectrum * spectrum;
    let best = (2.0 * g * g / d.max(f64::MIN_POSITIVE)).cbrt() * (n as f64).cbrt();
    let longest = (3.0 * (n as f64).sqrt()).min(n as f64 / 3.0);
    (best.min(longest).ceil() as usize).clamp(1, n)
}

/// One side of a comparison: logarithms of its repeats, and of each the variance that its moments give to its mean.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sample {
    pub(crate) logs: Vec<f64>,
    pub(crate) within: Vec<f64>,
}

impl Sample {
    /// Of the mean of the repeats: never less than what the moments within them say.
    fn variance_of_mean(&self) -> f64 {
        let between = variance(&self.logs);
        let within = if self.within.is_empty() { 0.0 } else { mean(&self.within) };
        // Repeats that agree to the last bit (rates that were typed in) still leave a little doubt.
        between.max(within).max(1e-10) / self.logs.len().max(1) as f64
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Welch {
    /// Of the ratio B to A: low and high.
    pub(crate) interval: [f64; 2],
    pub(crate) p: f64,
}

/// Welch's test on logarithms; nothing with fewer than two repeats on a side.
pub(crate) fn welch(a: &Sample, b: &Sample) -> Option<Welch> {
    if a.logs.len() < 2 || b.logs.len() < 2 {
        return None;
    }
    let (va, vb) = (a.variance_of_mean(), b.variance_of_mean());
    let freedom = (va + vb).powi(2) / (va * va / (a.logs.len() - 1) as f64 + vb * vb / (b.logs.len() - 1) as f64);
    let (difference, error) = (mean(&b.logs) - mean(&a.logs), (va + vb).sqrt());
    let reach = t_quantile(CHANCE, freedom) * error;
    let interval = [(difference - reach).exp(), (difference + reach).exp()];
    let p = t_two_sided((difference / error).abs(), freedom);
    (p.is_finite() && interval.iter().all(|v| v.is_finite())).then_some(Welch { interval, p })
}

/// Whether two samples differ, by more than anybody would notice; nothing where too few repeats can say it.
pub(crate) fn differ(a: &Sample, b: &Sample) -> Option<bool> {
    let ratio = (mean(&b.logs) - mean(&a.logs)).exp();
    welch(a, b).map(|found| !is_slight(ratio) && excludes_none(found.interval))
}

pub(crate) fn is_slight(ratio: f64) -> bool {
    ratio.ln().abs() < (1.0 + SAME_WITHIN).ln()
}

/// Whether the ratio is surely not 1.
pub(crate) fn excludes_none(interval: [f64; 2]) -> bool {
    interval[0] > 1.0 || interval[1] < 1.0
}

/// That `|t|` is at least so large by chance: the regularised incomplete beta function.
pub(crate) fn t_two_sided(t: f64, freedom: f64) -> f64 {
    incomplete_beta(freedom / 2.0, 0.5, freedom / (freedom + t * t))
}

/// The `t` whose two-sided probability is `p`, by halving.
pub(crate) fn t_quantile(p: f64, freedom: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1e4);
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        if t_two_sided(middle, freedom) > p { low = middle } else { high = middle }
    }
    high
}

/// By its continued fraction (NIST DLMF 8.17.22), evaluated as Lentz does.
fn incomplete_beta(a: f64, b: f64, x: f64) -> f64 {
    if !(0.0..=1.0).contains(&x) || x == 0.0 || x == 1.0 {
        return x.clamp(0.0, 1.0);
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (1.0 - x).ln()).exp();
    // The fraction converges fast on this side; the other follows by symmetry.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - front * beta_fraction(b, a, 1.0 - x) / b;
    }
    front * beta_fraction(a, b, x) / a
}

fn beta_fraction(a: f64, b: f64, x: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let safe = |v: f64| if v.abs() < TINY { TINY } else { v };
    let (mut c, mut d) = (1.0, 1.0 / safe(1.0 - (a + b) * x / (a + 1.0)));
    let mut value = d;
    for m in 1..=300 {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let before = value;
        for term in [even, odd] {
            d = 1.0 / safe(1.0 + term * d);
            c = safe(1.0 + term / c);
            value *= c * d;
        }
        if (value / before - 1.0).abs() < 1e-14 {
            break;
        }
    }
    value
}

/// Stirling's series (NIST DLMF 5.11.1), moved up to where it is exact enough.
fn ln_gamma(x: f64) -> f64 {
    let mut shift = 0.0;
    let mut x = x;
    while x < 12.0 {
        shift -= x.ln();
        x += 1.0;
    }
    let square = x * x;
    let series = (1.0 / 12.0 - (1.0 / 360.0 - 1.0 / (1260.0 * square)) / square) / x;
    shift + (x - 0.5) * x.ln() - x + 0.5 * (2.0 * std::f64::consts::PI).ln() + series
}

/// Benjamini and Hochberg: each p times the number of p, divided by its rank; never falling.
pub(crate) fn adjusted(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|a, b| p[*b].total_cmp(&p[*a]));
    let mut out = vec![1.0; p.len()];
    let mut least: f64 = 1.0;
    for (n, index) in order.into_iter().enumerate() {
        least = least.min(p[index] * p.len() as f64 / (p.len() - n) as f64);
        out[index] = least;
    }
    out
}

/// The interval that holds 95 of 100 of them.
pub(crate) fn middle(mut values: Vec<f64>) -> Option<[f64; 2]> {
    values.sort_by(f64::total_cmp);
    let at = |part: f64| values.get(((values.len().checked_sub(1)?) as f64 * part).round() as usize).copied();
    Some([at(CHANCE / 2.0)?, at(1.0 - CHANCE / 2.0)?])
}

/// Every n-th at most, the last included: series of days become bounded pictures. Of each group the mean of what is
/// known; a group of which nothing is known stays a hole.
pub(crate) fn thinned(values: &[f64], points_max: usize) -> Vec<f64> {
    let group = values.len().div_ceil(points_max.max(1)).max(1);
    let mean = |chunk: &[f64]| {
        let known: Vec<f64> = chunk.iter().copied().filter(|v| v.is_finite()).collect();
        if known.is_empty() { f64::NAN } else { known.iter().sum::<f64>() / known.len() as f64 }
    };
    values.chunks(group).map(mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: f64, expected: f64, within: f64) {
        assert!((found - expected).abs() < within, "{found} is not {expected}");
    }

    /// Values of printed tables of Student's t.
    #[test]
    fn students_t_is_that_of_the_tables() {
        for (freedom, expected) in [(1.0, 12.706), (2.0, 4.3027), (4.0, 2.7764), (10.0, 2.2281), (120.0, 1.9799)] {
            near(t_quantile(0.05, freedom), expected, 1e-3);
            near(t_two_sided(expected, freedom), 0.05, 1e-4);
        }
        near(t_two_sided(0.0, 5.0), 1.0, 1e-12);
        near(ln_gamma(0.5), std::f64::consts::PI.sqrt().ln(), 1e-9);
        near(ln_gamma(6.0), 120f64.ln(), 1e-9);
    }

    #[test]
    fn adjusted_p_are_those_of_benjamini_and_hochberg() {
        let found = adjusted(&[0.01, 0.04, 0.03, 0.005]);
        for (found, expected) in found.iter().zip([0.02, 0.04, 0.04, 0.02]) {
            near(*found, expected, 1e-12);
        }
        assert!(adjusted(&[]).is_empty());
    }

    /// An autoregressive series: x' = c x + noise.
    fn series(correlation: f64, n: usize, random: &mut Random) -> Vec<f64> {
        let mut uniform = || random.next() as f64 / u64::MAX as f64 - 0.5;
        let mut x = 0.0;
        let step = |_| {
            x = correlation * x + uniform();
            100.0 + x
        };
        (0..n).map(step).collect()
    }

    #[test]
    fn blocks_are_longer_where_moments_depend_on_each_other() {
        let mut random = Random::new(1);
        let (free, bound) = (series(0.0, 600, &mut random), series(0.9, 600, &mut random));
        let (short, long) = (block_length(&free), block_length(&bound));
        assert!(short <= 4 && (10..=73).contains(&long), "{short} and {long}");
        assert_eq!(block_length(&[5.0; 50]), 1);
    }

    /// The standard error of the mean of an AR(1) series is 1 / (1 - c) of that of its noise; without blocks it would
    /// come out as a quarter of that.
    #[test]
    fn the_bootstrap_sees_autocorrelation() {
        let mut random = Random::new(7);
        let mut found = Vec::new();
        for _ in 0..12 {
            let values = series(0.9, 800, &mut random);
            let drawn = block_bootstrap(&values, &mut random).unwrap();
            found.push(variance(&drawn).sqrt() * mean(&values));
        }
        let expected = (1.0f64 / 12.0).sqrt() / 0.1 / 800f64.sqrt();
        let ratio = mean(&found) / expected;
        assert!((0.7..1.2).contains(&ratio), "{ratio}");
    }

    #[test]
    fn too_little_to_resample_is_nothing() {
        let mut random = Random::new(1);
        assert_eq!(block_bootstrap(&[1.0; 7], &mut random), None);
        assert_eq!(block_bootstrap(&[0.0; 70], &mut random), None);
        assert_eq!(block_bootstrap(&[f64::NAN; 70], &mut random), None);
        assert!(block_bootstrap(&vec![1.0; 500_000], &mut random).is_some());
    }

    /// How often equal boxes are called different: about one in twenty, never much more.
    #[test]
    fn welch_is_fooled_as_often_as_it_says() {
        let mut random = Random::new(42);
        for repeats in [2, 3, 5] {
            let mut wrong = 0;
            for _ in 0..2000 {
                let mut sample =
                    || Sample { logs: (0..repeats).map(|_| 0.02 * random.normal()).collect(), within: Vec::new() };
                let found = welch(&sample(), &sample()).unwrap();
                wrong += u32::from(found.p <= 0.05);
                assert_eq!(found.p <= 0.05, found.interval[0] > 1.0 || found.interval[1] < 1.0);
            }
            assert!(wrong < 2000 / 20 * 5 / 4, "{repeats} repeats: {wrong} of 2000");
        }
    }
}
