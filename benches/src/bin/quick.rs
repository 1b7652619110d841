use keyqueue_benches::{rivals::*, workloads::*, *};
fn main() {
    let filter = std::env::args().nth(1).unwrap_or_default();
    let rounds: usize = std::env::args().nth(2).and_then(|s| s.parse().ok()).unwrap_or(5);
    let mut logs = vec![];
    macro_rules! w { ($name:expr, $n:expr, $k:ty, $f:ident($($a:expr),*)) => {{
        let name = $name.to_string();
        if name.contains(&filter) {
        let mut t: Vec<Vec<f64>> = vec![vec![];4];
        for _ in 0..rounds {
            t[0].push($f::<$k, Ours<$k>>($($a),*).as_nanos() as f64 / $n as f64);
            t[1].push($f::<$k, parking_lot_mutex::Queue<$k>>($($a),*).as_nanos() as f64 / $n as f64);
            t[2].push($f::<$k, std_mutex::Queue<$k>>($($a),*).as_nanos() as f64 / $n as f64);
            t[3].push($f::<$k, DashSeg<$k>>($($a),*).as_nanos() as f64 / $n as f64);
        }
        let m: Vec<f64> = t.iter_mut().map(|v| {v.sort_by(f64::total_cmp); v[v.len()/2]}).collect();
        let r = m[1].min(m[2]) / m[0];
        logs.push(r.ln());
        println!("{name:28} ours {:8.1} pl {:8.1} std {:8.1} dash {:8.1}  ratio {r:5.2}", m[0], m[1], m[2], m[3]);
        }
    }}}
    let n = 400_000u64;
    for k in [1u64, 1024, 100_000] { w!(format!("cycle u64 {k}"), n, u64, cycle(k, n)); }
    for k in [1u64, 1024, 100_000] { w!(format!("cycle str {k}"), n, String, cycle(k, n)); }
    if "parts".contains(&filter) { for k in [1u64,1024,100_000] { let mut v: Vec<f64> = (0..rounds).map(|_| parts(k, n).as_nanos() as f64 / n as f64).collect(); v.sort_by(f64::total_cmp); println!("parts {k} {:.1}", v[v.len()/2]); } }
    for t in [1u64, 2] { for k in [1u64, 1024] { w!(format!("dup k{k} t{t}"), 2*n, u64, duplicates(k, t, 2*n)); } }
    for t in [1u64, 2, 4, 16] { w!(format!("ring t{t}"), n, u64, ring(1024, t, n)); }
    for b in [1000u64, 100_000] { for p in [1u64, 2, 8] { w!(format!("unique {p}x{p} b{b}"), n, u64, unique(p, b, n)); } }
    w!("fill", 300_000u64, u64, fill_and_drain(300_000));
    println!("geomean {:.2}", (logs.iter().sum::<f64>() / logs.len() as f64).exp());
}
