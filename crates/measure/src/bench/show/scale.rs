//! From values to places on an axis, and the round numbers beside it.

/// The range of an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scale {
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) kind: ScaleKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScaleKind {
    Linear,
    /// Decades.
    Log10,
    /// Powers of two, for sizes.
    Log2,
}

impl Scale {
    /// From zero to a round number that no value exceeds.
    pub(crate) fn from_zero(values: impl IntoIterator<Item = f64>, ticks_max: usize) -> Self {
        let most = values.into_iter().filter(|v| v.is_finite()).fold(0.0, f64::max);
        let high = if most > 0.0 { most } else { 1.0 };
        let step = round_step(high, ticks_max);
        Self { low: 0.0, high: (high / step - 1e-9).ceil().max(1.0) * step, kind: ScaleKind::Linear }
    }

    /// Exactly what is there: time, which ends when it ends.
    pub(crate) fn exact(values: impl IntoIterator<Item = f64>) -> Self {
        let (low, high) = bounds(values).unwrap_or((0.0, 1.0));
        let high = if high > low { high } else { low + low.abs().max(1.0) };
        Self { low, high, kind: ScaleKind::Linear }
    }

    /// The range of the values with a little room, not from zero: for spreads.
    pub(crate) fn around(values: impl IntoIterator<Item = f64>, ticks_max: usize) -> Self {
        let (low, high) = bounds(values).unwrap_or((0.0, 1.0));
        let room = ((high - low) * 0.1).max(high.abs() * 0.005).max(1e-9);
        let step = round_step(high - low + 2.0 * room, ticks_max);
        let low_round = ((low - room) / step).floor() * step;
        let low = if low >= 0.0 { low_round.max(0.0) } else { low_round };
        Self { low, high: ((high + room) / step).ceil() * step, kind: ScaleKind::Linear }
    }

    /// Values that are not above zero have no place on it.
    pub(crate) fn log(values: impl IntoIterator<Item = f64>, kind: ScaleKind) -> Self {
        let (low, high) = bounds(values.into_iter().filter(|v| *v > 0.0)).unwrap_or((1.0, 10.0));
        let (mut low, mut high) = (low, high);
        if kind == ScaleKind::Log10 {
            (low, high) = (10f64.powf(low.log10().floor()), 10f64.powf(high.log10().ceil()));
        }
        let high = if high > low { high } else { low * 10.0 };
        Self { low: low.max(f64::MIN_POSITIVE), high: high.min(f64::MAX), kind }
    }

    /// 0 at the low end, 1 at the high one; nothing for what has no place.
    pub(crate) fn place(self, value: f64) -> Option<f64> {
        let part = match self.kind {
            ScaleKind::Linear => (value - self.low) / (self.high - self.low),
            _ if value <= 0.0 => return None,
            _ => (value / self.low).ln() / (self.high / self.low).ln(),
        };
        part.is_finite().then(|| part.clamp(0.0, 1.0))
    }

    /// Round numbers from low to high, at most `most` of them (one more where both ends are round).
    pub(crate) fn ticks(self, most: usize) -> Vec<f64> {
        match self.kind {
            ScaleKind::Linear => self.linear_ticks(most),
            ScaleKind::Log10 => self.powers(10.0, most),
            ScaleKind::Log2 => self.powers(2.0, most),
        }
    }

    fn linear_ticks(self, most: usize) -> Vec<f64> {
        let step = round_step(self.high - self.low, most);
        let first = (self.low / step - 1e-9).ceil();
        let count = ((self.high - first * step) / step + 1e-9).floor().clamp(0.0, 100.0) as usize;
        (0..=count).map(|n| (first + n as f64) * step).collect()
    }

    fn powers(self, base: f64, most: usize) -> Vec<f64> {
        let exponent = |value: f64| value.ln() / base.ln();
        let (first, last) = ((exponent(self.low) - 1e-9).ceil() as i64, (exponent(self.high) + 1e-9).floor() as i64);
        let rough = (last - first).max(0) as usize / most.max(1) + 1;
        let each = [1, 2, 4, 5, 10, 20, 50, 100].into_iter().find(|e| *e >= rough).unwrap_or(rough) as i64;
        (first..=last).step_by(each.max(1) as usize).map(|e| base.powi(e as i32)).collect()
    }
}

fn bounds(values: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    let known = values.into_iter().filter(|v| v.is_finite());
    known.fold(None, |found: Option<(f64, f64)>, v| Some(found.map_or((v, v), |(low, high)| (low.min(v), high.max(v)))))
}

/// 1, 2 or 5 times a power of ten, so that `most` of them span the range.
fn round_step(range: f64, most: usize) -> f64 {
    let rough = (range / most.max(1) as f64).clamp(1e-300, 1e300);
    let power = 10f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|f| rough <= f * power * (1.0 + 1e-9)).unwrap_or(10.0);
    factor * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_from_zero_end_at_round_numbers() {
        let check = |most: f64, high: f64, ticks: usize| {
            let scale = Scale::from_zero([most], 5);
            assert_eq!((scale.low, scale.high), (0.0, high), "{most}");
            assert_eq!(scale.ticks(5).len(), ticks, "{most}: {:?}", scale.ticks(5));
        };
        check(406e6, 500e6, 6);
        check(95.0, 100.0, 6);
        check(1.0, 1.0, 6);
        check(0.0, 1.0, 6);
        check(f64::NAN, 1.0, 6);
        let huge = Scale::from_zero([f64::MAX / 4.0], 5);
        assert!(huge.high.is_finite() && huge.place(f64::MAX / 4.0).is_some());
    }

    #[test]
    fn sizes_are_placed_by_their_powers() {
        let scale = Scale::log([4096.0, 33_554_432.0], ScaleKind::Log2);
        assert_eq!(scale.place(4096.0), Some(0.0));
        assert_eq!(scale.place(33_554_432.0), Some(1.0));
        assert!((scale.place(65536.0).unwrap() - 4.0 / 13.0).abs() < 1e-9);
        assert_eq!((scale.place(0.0), scale.place(f64::NAN)), (None, None));
        assert_eq!(scale.ticks(20).len(), 14);
        assert_eq!(scale.ticks(7).len(), 7);
    }

    #[test]
    fn one_value_or_none_still_make_an_axis() {
        for scale in
            [Scale::exact([]), Scale::exact([7.0]), Scale::around([7.0, 7.0], 4), Scale::log([], ScaleKind::Log10)]
        {
            assert!(scale.high > scale.low && !scale.ticks(5).is_empty(), "{scale:?}");
        }
        let spread = Scale::around([395e6, 406e6], 4);
        assert!(spread.low < 395e6 && spread.low > 380e6 && spread.high > 406e6, "{spread:?}");
    }
}
