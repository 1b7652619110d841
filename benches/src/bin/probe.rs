use keyqueue_benches::{workloads::*, *, rivals::*};
fn main() {
    let mut a = std::env::args().skip(1);
    let (w, p, b) = (a.next().unwrap(), a.next().unwrap().parse().unwrap(), a.next().unwrap().parse().unwrap());
    for _ in 0..10 { let d = match w.as_str() { "ours" => unique::<u64, Ours<u64>>(p, b, 400_000), _ => unique::<u64, parking_lot_mutex::Queue<u64>>(p, b, 400_000) };
    print!("{:.0} ", d.as_nanos() as f64 / 400_000.0); }
    println!();
}
