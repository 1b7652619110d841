//! Arithmetic of the report, and the format of its numbers.

/// The median; of an even number of values, the upper of the two in the middle.
///
/// # Panics
/// If there are no values.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

pub fn geometric_mean(ratios: &[f64]) -> f64 {
    (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp()
}

/// Rounds to hundredths, so that data files stay short.
pub fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

/// 512, 1k, 100k, 10M, where that is exact.
pub fn short(count: u64) -> String {
    match count {
        0 => "0".into(),
        n if n % 1_000_000 == 0 => format!("{}M", n / 1_000_000),
        n if n % 1000 == 0 => format!("{}k", n / 1000),
        n => n.to_string(),
    }
}

/// Three figures or so: 0.05, 1.6, 45.8, 2443.
pub fn figures(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 1.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle_whatever_the_order() {
        assert_eq!(median(&[9.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 3.0, 1.0, 2.0]), 3.0);
    }

    #[test]
    fn the_mean_of_twice_and_half_is_one() {
        assert!((geometric_mean(&[2.0, 0.5]) - 1.0).abs() < 1e-12);
        assert!((geometric_mean(&[2.0, 8.0, 4.0]) - 4.0).abs() < 1e-12);
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([0, 512, 1000, 1024, 100_000, 10_000_000].map(short), ["0", "512", "1k", "1024", "100k", "10M"]);
        assert_eq!([0.047, 1.62, 45.84, 2443.3].map(figures), ["0.05", "1.6", "45.8", "2443"]);
        assert_eq!(rounded(51.2345), 51.23);
    }
}
