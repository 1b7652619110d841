//! Whom a thread holds up that stops in the middle of a call.
//!
//! ```text
//!   traced thread: get, add, done ── single-stepped to the n-th instruction ── stands there
//!   two others:    stand still    ── make turns for a second at most        ── stand still: n + 1
//! ```
//!
//! A child process has a queue with 1000 keys. One of its threads is traced with `ptrace`. In its n-th turn it is single-stepped to the n-th
//! instruction, and kept there until both others have finished two calls, or for a second. An instruction at which one or both of them
//! have not is counted. The thread's turns are with keys that are there, and then with keys that are new. Where both stand still, the address in
//! the program goes to the standard error: `addr2line -fie target/release/stopped ADDRESS` says what stands there.

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn main() {
    use common::mutex::{parking_lot_mutex, std_mutex};
    use keyqueue_benches::forms::{LOCK_FREE, LOCK_FREE_16, Shards};
    use keyqueue_benches::rivals::{DashSeg, Papaya, Scc};
    use traced::run;

    let only = std::env::args().nth(1).unwrap_or_default();
    println!("| a thread stops in | call | key | instructions | one of two others stands still, % | both, % |");
    println!("|---|---|---|---:|---:|---:|");
    let subjects: [fn(&str); 9] = [
        run::<Shards<1>>,
        run::<Shards<16>>,
        run::<Shards<LOCK_FREE>>,
        run::<Shards<LOCK_FREE_16>>,
        run::<parking_lot_mutex::Queue<u64>>,
        run::<std_mutex::Queue<u64>>,
        run::<DashSeg<u64>>,
        run::<Papaya<u64>>,
        run::<Scc<u64>>,
    ];
    subjects.iter().for_each(|run| run(&only));
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
fn main() {
    println!("single-stepping is for Linux on x86-64");
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod traced {
    use common::Subject;
    use std::sync::atomic::Ordering::SeqCst;
    use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize};
    use std::thread;
    use std::time::{Duration, Instant};

    const KEYS: u64 = 1000;
    /// How long the thread stands, at most.
    const STANDS: Duration = Duration::from_secs(1);
    const CALLS: [&str; 3] = ["get", "add", "done"];
    /// Between two turns.
    const NONE: usize = CALLS.len();

    /// In memory that both processes have.
    #[repr(C)]
    struct Shown {
        /// The traced thread, until the tracer has it.
        thread: AtomicI32,
        /// The call that the traced thread makes.
        call: AtomicUsize,
        /// The calls of the two others.
        calls: [AtomicU64; 2],
        others_go: AtomicBool,
        keys_are_new: AtomicBool,
    }

    fn shown() -> &'static Shown {
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, which stays; zeros are valid values of all fields, and it is larger than they are.
        unsafe {
            let at = libc::mmap(std::ptr::null_mut(), 4096, access, flags, -1, 0);
            assert_ne!(at, libc::MAP_FAILED, "no shared memory");
            &*at.cast()
        }
    }

    /// Makes turns until the process is killed.
    fn child<Q: Subject<u64>>(shown: &Shown) {
        let queue = Q::make();
        (0..KEYS).for_each(|key| queue.add(key));
        thread::scope(|scope| {
            for calls in &shown.calls {
                let queue = &queue;
                scope.spawn(move || {
                    for turn in 0_u64.. {
                        while !shown.others_go.load(SeqCst) {
                            thread::sleep(Duration::from_micros(20));
                        }
                        if turn % 8 == 0 {
                            queue.add((1 << 40) + turn); // new
                            calls.fetch_add(1, SeqCst);
                        }
                        queue.process(|queue, key| {
                            calls.fetch_add(1, SeqCst);
                            if *key < KEYS {
                                queue.add(*key);
                                calls.fetch_add(1, SeqCst);
                            }
                        });
                        calls.fetch_add(1, SeqCst);
                    }
                });
            }
            let turn = |turn: u64| {
                shown.call.store(0, SeqCst);
                queue.process(|queue, key| {
                    shown.call.store(1, SeqCst);
                    queue.add(if shown.keys_are_new.load(SeqCst) { (1 << 41) + turn } else { *key });
                    shown.call.store(2, SeqCst);
                });
                shown.call.store(NONE, SeqCst);
            };
            (0..2000).for_each(turn); // what a thread makes at its first call is there
            // SAFETY: calls without arguments that are memory.
            unsafe {
                shown.thread.store(libc::gettid(), SeqCst);
                while shown.thread.load(SeqCst) != 0 {}
                for at in 2000.. {
                    libc::raise(libc::SIGTRAP);
                    turn(at);
                }
            }
        });
    }

    struct Tracer(libc::pid_t);

    impl Tracer {
        fn ask(&self, what: libc::c_uint) {
            let null = std::ptr::null_mut::<libc::c_void>();
            // SAFETY: requests that neither read nor write memory of this process.
            let answer = unsafe { libc::ptrace(what, self.0, null, null) };
            assert_eq!(answer, 0, "no ptrace here");
        }

        /// The address of the next instruction in the program's file. (This process has the program at the same place.)
        fn address(&self) -> u64 {
            let null = std::ptr::null_mut::<libc::c_void>();
            // SAFETY: reads a register of the child.
            let at = unsafe { libc::ptrace(libc::PTRACE_PEEKUSER, self.0, 8 * libc::RIP as usize, null) };
            let maps = std::fs::read_to_string("/proc/self/maps").expect("this is Linux");
            let begin = maps.split('-').next().and_then(|begin| u64::from_str_radix(begin, 16).ok());
            at as u64 - begin.expect("the first map is the program's")
        }

        fn wait(&self) {
            let mut status = 0;
            // SAFETY: writes `status`.
            unsafe { libc::waitpid(self.0, &raw mut status, libc::__WALL) };
            assert!(libc::WIFSTOPPED(status), "the child has ended: {status:#x}");
        }

        fn until(&self, what: libc::c_uint) {
            self.ask(what);
            self.wait();
        }
    }

    pub fn run<Q: Subject<u64>>(only: &str) {
        if !Q::NAME.contains(only) {
            return;
        }
        let shown = shown();
        shown.call.store(NONE, SeqCst);
        shown.others_go.store(true, SeqCst);
        // SAFETY: this process has one thread.
        let process = unsafe { libc::fork() };
        if process == 0 {
            child::<Q>(shown);
        }
        while shown.thread.load(SeqCst) == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        shown.others_go.store(false, SeqCst);
        let tracer = Tracer(shown.thread.load(SeqCst));
        tracer.ask(libc::PTRACE_SEIZE);
        tracer.until(libc::PTRACE_INTERRUPT);
        shown.thread.store(0, SeqCst);
        for keys_are_new in [false, true] {
            shown.keys_are_new.store(keys_are_new, SeqCst);
            // Of each call: its instructions, and at how many of them one, and both, of the others stood still.
            let mut counts = [[0_u32; 3]; CALLS.len()];
            for at in 0.. {
                tracer.until(libc::PTRACE_CONT); // to the next turn
                while shown.call.load(SeqCst) == NONE {
                    tracer.until(libc::PTRACE_SINGLESTEP);
                }
                let mut step = 0;
                while step < at && shown.call.load(SeqCst) != NONE {
                    tracer.until(libc::PTRACE_SINGLESTEP);
                    step += 1;
                }
                let call = shown.call.load(SeqCst);
                if call == NONE {
                    break;
                }
                let stand_still = others_go_on(shown);
                counts[call][0] += 1;
                if stand_still > 0 {
                    counts[call][stand_still] += 1;
                    if stand_still == 2 {
                        eprintln!("{}, {}: {:#x}", Q::NAME, CALLS[call], tracer.address());
                    }
                }
            }
            for (call, [all, one, both]) in CALLS.iter().zip(counts) {
                let share = |count: u32| 100.0 * f64::from(count) / f64::from(all.max(1));
                let key = if keys_are_new { "new" } else { "known" };
                println!("| {} | {call} | {key} | {all} | {:.1} | {:.1} |", Q::NAME, share(one), share(both));
            }
        }
        // SAFETY: ends the child.
        unsafe {
            libc::kill(process, libc::SIGKILL);
            libc::waitpid(process, std::ptr::null_mut(), libc::__WALL);
        }
    }

    /// Lets the others go on. Returns how many of them did not.
    fn others_go_on(shown: &Shown) -> usize {
        let calls = || [0, 1].map(|other: usize| shown.calls[other].load(SeqCst));
        let (before, begin) = (calls(), Instant::now());
        shown.others_go.store(true, SeqCst);
        let stand_still = || calls().iter().zip(before).filter(|(now, before)| **now < before + 2).count();
        while begin.elapsed() < STANDS && stand_still() > 0 {
            thread::sleep(Duration::from_micros(50));
        }
        let stand_still = stand_still();
        shown.others_go.store(false, SeqCst);
        thread::sleep(Duration::from_micros(50)); // most of the others have ended their turns
        stand_still
    }
}
