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
