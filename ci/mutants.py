#!/usr/bin/env python3
"""Mutation testing: which small changes of the code does no test notice?

    ci/mutants.py                              src/order, src/machine and src/key: an hour or two
    ci/mutants.py src/order src/key/table.rs   folders or files of src/, in this order: minutes for a small file
    ci/mutants.py --quick src/order            against the unit tests only
    ci/mutants.py src/workers tests/workers.rs against the unit tests and these programs only
    ci/mutants.py --sample 200 src/shared      200 of them, chosen at random (the same ones each time)
    ci/mutants.py --again src/order            only those that survived the last run, for instance against new tests
    ci/mutants.py --new --sample 9 src/shared  nine of those that the last run did not have
    ci/mutants.py --only 17                    mutant 17 of the last run, with the output of the tests

A *mutant* is the crate with one small change: another operator, a statement left out, a body that returns at once, a guard that is always
true, an arm that never matches, `min` in place of `max`. Constants, `const fn`, the insides of macros and test code are not changed. If no
test fails with it, it *survives*.

All mutants are compiled into one program, each behind a switch: `a + b` becomes `(if crate::mutant(17) { a - b } else { a + b })`, and
the variable MUTANT says which one is on. So one build serves all. Mutants that do not compile are left out: the compiler's errors say which,
and the rest is generated again. First each test runs alone without a mutant, and notes which switches it meets. Then each mutant runs
against the tests that meet its switch, each in a process of its own, and those first that take little time and have caught others. A
mutant counts as caught if a test fails in two of three runs, or takes ten times its processor time, or 30 times its time and a minute,
or much memory, or if all its threads sleep for much longer than the test takes. One that failed in one of three runs goes on, and is called "sometimes" if nothing else catches it.

All is done in a copy of the tree, in target/mutants (or MUTANTS_WORK). MUTANTS_JOBS is how many run at once (2); MUTANTS_RUNNER is a
command to run each with. mutants.json there has each mutant with the test that caught it, from time to time while it runs. It needs `pip
install tree-sitter tree-sitter-rust`, and Linux. reports/mutations.md explains the survivors.
"""
import array, itertools, json, os, random, re, resource, select, signal, subprocess, sys, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

try:
    import tree_sitter_rust
    from tree_sitter import Language, Parser
except ImportError:
    sys.exit("ci/mutants.py needs: pip install tree-sitter tree-sitter-rust")

ROOT = Path(__file__).resolve().parent.parent
WORK = Path(os.environ.get("MUTANTS_WORK", ROOT / "target/mutants"))
TREE = WORK / "tree"
SWITCH = """
#[allow(unsafe_code)]
pub(crate) mod mutants {
    use std::{os::fd::IntoRawFd, sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering::Relaxed}};
    static MUTANT: AtomicU32 = AtomicU32::new(0);
    static MET: [AtomicBool; 9999] = [const { AtomicBool::new(false) }; 9999];
    static FILE: AtomicI32 = AtomicI32::new(0);

    // Before `main`, so that no test allocates because of a switch.
    #[used]
    #[unsafe(link_section = ".init_array")]
    static START: extern "C" fn() = start;

    extern "C" fn start() {
        if std::env::var("MUTANT_ENDS").is_ok() {
            std::panic::set_hook(Box::new(|_| std::process::exit(101)));
        }
        if let Ok(file) = std::env::var("MUTANTS_MET") {
            // Programs that this one starts write to it, too.
            let file = std::fs::OpenOptions::new().create(true).append(true).open(file);
            FILE.store(file.unwrap().into_raw_fd(), Relaxed);
        }
        MUTANT.store(std::env::var("MUTANT").map_or(0, |number| number.parse().unwrap()), Relaxed);
    }

    unsafe extern "C" {
        fn write(file: i32, bytes: *const u8, count: usize) -> isize;
    }

    #[cold]
    fn meet(number: u32) {
        if FILE.load(Relaxed) > 0 && !MET[number as usize].swap(true, Relaxed) {
            unsafe { write(FILE.load(Relaxed), number.to_ne_bytes().as_ptr(), 4) };
        }
    }

    #[inline]
    pub(crate) fn mutant(number: u32) -> bool {
        let on = MUTANT.load(Relaxed);
        if on == 0 {
            meet(number);
        }
        on == number
    }
}
pub(crate) use mutants::mutant;
"""
FEATURES = "metrics,serde,stream,tokio,tracing"
# What is not compiled, or belongs to tests.
LEFT_OUT = ("/tests", "src/sync/loom.rs", "src/sync/std_lock.rs", "src/shared/driven.rs", "src/shared/stopped.rs")
# Each operator, and what it becomes.
OPERATORS = {op: new for op, *new in map(str.split, """
    == !=; != ==; && ||; || &&; < == > <=; > == < >=; <= >; >= <; + - *; - + /; * + /; / % *; % / +; << >>; >> <<; & | ^; | & ^; ^ | &;
    += -= *=; -= += /=; *= += /=; /= %= *=; %= /= +=; <<= >>=; >>= <<=; &= |=; |= &=; ^= |= &=""".split(";"))}
INTEGERS = "u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize".split()
# Kinds of syntax that are copied as they are.
COPIED = """token_tree macro_invocation macro_definition const_item static_item attribute_item type_arguments array_type line_comment
    block_comment string_literal use_declaration enum_item struct_item type_item const_block""".split()


def values(kind):
    """What a body of this return type may return at once."""
    kind = kind.strip()
    if kind == "bool":
        return ["true", "false"]
    if kind in INTEGERS:
        return ["0", "1"]
    if option := re.fullmatch("Option<(.*)>", kind, re.S):
        return ["None"] + [f"Some({value})" for value in values(option[1])]
    if kind.startswith("(") and not re.search("[<(].*,.*[>)]", kind[1:-1]):
        return [f"({', '.join(v)})" for v in itertools.islice(itertools.product(*map(values, kind[1:-1].split(","))), 4)]
    return [] if re.match("&|impl|Box<dyn|!|Self|\\(", kind) else ["Default::default()"]


class File:
    """Copies a file with switches. `mutants` gets its mutants: those whose name `is_wanted`."""

    def __init__(self, path, mutants, is_wanted):
        self.path, self.mutants, self.is_wanted, self.fn, self.names = path, mutants, is_wanted, [""], {}
        self.source = (ROOT / path).read_bytes()

    def generate(self):
        (TREE / self.path).write_text(self.render(Parser(Language(tree_sitter_rust.language())).parse(self.source).root_node))

    def text(self, node):
        return self.source[node.start_byte : node.end_byte].decode()

    def between(self, start, end):
        return self.source[start:end].decode()

    def add(self, node, what):
        """The number of a new mutant; None if it is not wanted."""
        name = f"{self.path} {self.fn[-1]}: " + " ".join(what.split())
        self.names[name] = count = self.names.get(name, 0) + 1
        name += f" ({count})" if count > 1 else ""
        if not self.is_wanted(name):
            return None
        self.mutants.append({"name": name, "file": self.path, "line": node.start_point[0] + 1, "number": len(self.mutants) + 1})
        return len(self.mutants)

    def children(self, node, skip=0):
        """The node, with its children rendered from byte `skip` on."""
        out, at = "", max(node.start_byte, skip)
        for child in node.children:
            if child.start_byte >= at:
                out += self.between(at, child.start_byte) + self.render(child)
                at = child.end_byte
        return out + self.between(at, node.end_byte)

    def switch(self, node, changes):
        """The node, or one of `changes`: pairs of what it is called, and the text."""
        numbered = [(self.add(node, what), text) for what, text in changes]
        out = "".join(f"if crate::mutant({n}) {{/*M{n}<*/ {text} /*M{n}>*/}} else " for n, text in numbered if n)
        same = self.children(node)
        # A statement that starts with `if` would end there.
        return f"({out}{{ {f'({same})' if re.match('if|match|unsafe|{', same) else same} }})" if out else same

    def render(self, node):
        if node.type in COPIED or node.type in ("mod_item", "function_item", "impl_item") and self.is_test(node):
            return self.text(node)
        special = getattr(self, "on_" + node.type, None)
        return special(node) if special else self.children(node)

    def is_test(self, node):
        if re.search(r"fn visit\b", self.text(node)[:60]):
            return True  # it counts for tests
        while (node := node.prev_named_sibling) and node.type in ("attribute_item", "line_comment", "block_comment"):
            if node.type == "attribute_item" and re.search(r"cfg\(.*test|\btest\b", self.text(node)):
                return True
        return False

    def on_function_item(self, node):
        if re.search(r"\bconst\b", self.between(node.start_byte, node.child_by_field_name("name").start_byte)):
            return self.text(node)
        body, kind, owner = node.child_by_field_name("body"), node.child_by_field_name("return_type"), node.parent
        while owner and owner.type != "impl_item":
            owner = owner.parent
        owner = self.text(owner.child_by_field_name("type")).split("<")[0] + "::" if owner else ""
        self.fn.append(owner + self.text(node.child_by_field_name("name")))
        out = self.between(node.start_byte, body.start_byte) + "{"
        for value in values(self.text(kind)) if kind else [""] * bool(body.named_children):
            if re.sub(r"\s", "", self.text(body)) != "{%s}" % value.replace(" ", "") and (n := self.add(body, f"return {value}")):
                out += f" if crate::mutant({n}) {{/*M{n}<*/ return {value}; /*M{n}>*/}} "
        out += self.children(body, body.start_byte + 1)
        self.fn.pop()
        return out

    def on_binary_expression(self, node):
        left, op, right = (node.child_by_field_name(field) for field in ("left", "operator", "right"))
        if {node.parent.type, left.type, right.type} & {"let_chain", "let_condition"}:
            return self.children(node)
        brackets = "{} {} {}" if node.type == "compound_assignment_expr" else "({}) {} ({})"
        return self.switch(node, [(f"{self.text(op)} → {new} in `{self.text(node)}`", brackets.format(self.text(left), new, self.text(right)))
                                  for new in OPERATORS.get(self.text(op), [])])

    on_compound_assignment_expr = on_binary_expression

    def on_unary_expression(self, node):
        op = self.text(node.children[0])
        return self.switch(node, [(f"no {op} in `{self.text(node)}`", self.text(node.children[1]))] if op in "!-" else [])

    def on_call_expression(self, node):
        called = node.child_by_field_name("function")
        method = called.child_by_field_name("field") if called.type == "field_expression" else None
        new = {"min": "max", "max": "min"}.get(self.text(method)) if method else None
        return self.switch(node, [(f"{new} in `{self.text(node)}`", self.between(node.start_byte, method.start_byte) + new
                                   + self.between(method.end_byte, node.end_byte))] if new else [])

    def on_expression_statement(self, node):
        is_dropped = node.children[0].type in ("call_expression", "assignment_expression", "compound_assignment_expr")
        n = self.add(node, f"without `{self.text(node)}`") if is_dropped and self.text(node) != "visit();" else None
        return f"if /*M{n}<*/ !crate::mutant({n}) {{ {self.children(node)} }} /*M{n}>*/" if n else self.children(node)

    def on_struct_expression(self, node):
        fields, changes = node.child_by_field_name("body").named_children, []
        if any(field.type == "base_field_initializer" for field in fields):
            for field in fields:
                if field.type in ("field_initializer", "shorthand_field_initializer"):
                    rest = re.sub(r"^[\s,]*", "", self.between(field.end_byte, node.end_byte))
                    changes.append((f"without field `{self.text(field)}`", self.between(node.start_byte, field.start_byte) + rest))
        return self.switch(node, changes)

    def on_match_arm(self, node):
        pattern, arms = node.child_by_field_name("pattern"), [c for c in node.parent.named_children if c.type == "match_arm"]
        guard = pattern.child_by_field_name("condition")
        if guard is not None and "let " in self.text(guard):
            return self.children(node)
        if guard is not None:
            out, what = self.between(node.start_byte, guard.start_byte), self.text(guard)
            inner = self.render(guard)
            for value, switch in (("true", "crate::mutant({}) ||"), ("false", "!crate::mutant({}) &&")):
                if n := self.add(guard, f"guard `{what}` → {value}"):
                    inner = f"/*M{n}<*/ ({switch.format(n)} ({inner})) /*M{n}>*/"
            return out + inner + " " + self.children(node, pattern.end_byte)
        is_last = node == arms[-1] or self.text(arms[-1].child_by_field_name("pattern")).strip() != "_"
        n = None if is_last else self.add(node, f"without arm `{self.text(pattern)}`")
        out = f" if /*M{n}<*/ !crate::mutant({n}) /*M{n}>*/" if n else ""
        return self.between(node.start_byte, pattern.end_byte) + out + self.children(node, pattern.end_byte)


def cargo(*arguments):
    env = os.environ | {"CARGO_TARGET_DIR": str(WORK / "build"), "CARGO_INCREMENTAL": "0", "CARGO_PROFILE_DEV_OPT_LEVEL": "1",
                        "CARGO_PROFILE_DEV_DEBUG": "none"}
    run = subprocess.run(["cargo", *arguments, "--locked", "--message-format=json"], cwd=TREE, env=env, stdout=subprocess.PIPE,
                         stderr=subprocess.DEVNULL, text=True)
    return [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]


def innermost(span):
    """The mutant that the compiler's complaint is about."""
    opened = []
    for mark in re.finditer(rb"/\*M(\d+)([<>])\*/", (TREE / span["file_name"]).read_bytes()[: span["byte_start"]]):
        opened.append(int(mark[1])) if mark[2] == b"<" else opened.remove(int(mark[1]))
    return opened[-1:]


def between(message, mutants):
    """The mutants that leave out a statement or an arm at or between the places that the compiler shows. A complaint about what such a
    statement moved, borrowed or matched names no mutant."""
    spans = [s for part in [message, *message["children"]] for s in part["spans"]]
    file = next(s["file_name"] for s in message["spans"] if s["is_primary"])
    lines = [s["line_start"] for s in spans if s["file_name"] == file]
    first = min(lines) if message["code"] and message["code"]["code"] != "E0004" else message["spans"][0]["line_start"]
    near = [m for m in mutants if m["file"] == file and first <= m["line"] <= max(lines)]
    likely = [m for m in near if re.match("[^`]*: without (arm|`return|`[^`(]* = )", m["name"])]
    return {m["number"] for m in likely or near if ": without " in m["name"]}


def generate(files, is_wanted):
    """Makes the tree with all mutants of these files that are wanted and compile."""
    TREE.mkdir(parents=True, exist_ok=True)
    subprocess.run(f"rm -rf '{TREE}'/src && git ls-files -z --cached --others --exclude-standard | tar --create --null --files-from - "
                   f"--ignore-failed-read | tar --extract --touch --directory '{TREE}'", shell=True, check=True, cwd=ROOT)
    lib = TREE / "src/lib.rs"
    lib.write_text("#![allow(warnings, arithmetic_overflow, unconditional_panic)]\n" + lib.read_text() + SWITCH)
    for test in TREE.glob("tests/*.rs"):
        if re.search(r"mod wheel\b", test.read_text()):
            test.write_text(test.read_text() + SWITCH)  # it includes the files of the wheel
    broken = set()
    while True:
        mutants, bad, others = [], set(), []
        for file in files:
            File(file, mutants, lambda name: name not in broken and is_wanted(name)).generate()
        for message in cargo("check", "--lib", "--profile=test", "--features", FEATURES):
            if message["reason"] == "compiler-message" and message["message"]["level"] == "error":
                hit = [n for span in message["message"]["spans"] if span["file_name"] in files for n in innermost(span)]
                bad |= set(hit)
                others += [] if hit else [message["message"]]
        bad = bad or set().union(*(between(message, mutants) for message in others))
        print(f"{len(mutants)} mutants; {len(bad)} do not compile", flush=True)
        if not bad:
            return mutants if not others else sys.exit("\n".join(message["rendered"] for message in others))
        broken |= {mutants[n - 1]["name"] for n in bad}


def build(names):
    """The programs of the unit tests, and of these files of tests/."""
    names = ["keyqueue", *names]
    tests = [f"--test={name}" for name in names[1:]]
    built = [m for m in cargo("test", "--no-run", "--lib", *tests, "--features", FEATURES) if m.get("executable")]
    return {name: next(m["executable"] for m in built if m["target"]["name"] == name) for name in names}


class Test:
    """A test; `takes` and `works` are its seconds and its seconds of processor time, and `met` the switches that it meets."""

    def __init__(self, program, name):
        self.program, self.name, self.met, self.takes, self.works, self.more, self.runs, self.catches = program, name, set(), 60, 60, {}, 2, 1

    def __str__(self):
        return f"{Path(self.program).name.rsplit('-', 1)[0]} {self.name}"

    def worth(self):
        return self.catches / self.runs / (self.takes + 0.01)

    def run(self, number, more={}, output=subprocess.DEVNULL):
        """How it ends with a mutant; None if it passes."""
        env = os.environ | {"MUTANT": str(number), "MACHINE_SECONDS": "0", "MACHINE_WORDS": "2", "REFERENCE_SECONDS": "1",
                            "REFERENCE_WORDS": "2", "KEYQUEUE_STRESS": "1", "RUST_BACKTRACE": "0"} | self.more | more
        limit = int(5 + 10 * self.works)

        def before():
            os.nice(5)
            resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
            resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

        start, quiet, last = time.monotonic(), 0, None
        test = subprocess.Popen([*os.environ.get("MUTANTS_RUNNER", "").split(), self.program, "--exact", self.name, "--test-threads=1"],
                                cwd=TREE, env=env, preexec_fn=before, stdout=output, stderr=output, start_new_session=True)
        ends = os.pidfd_open(test.pid)
        poll = select.poll()
        poll.register(ends, select.POLLIN)
        how = None
        while not poll.poll(1000):
            # One that waits for ever takes no processor time, and none of its threads waits for a processor.
            now = threads(test.pid)
            quiet = quiet + 1 if now and last and "R" not in now[1] and now[0] - last[0] < 1_000_000 else 0
            last = now
            if quiet > 4 + 4 * self.takes or time.monotonic() - start > 60 + 30 * self.takes:
                how = "hangs" if quiet else "takes too long"
                os.killpg(test.pid, signal.SIGKILL)
        os.close(ends)
        _, status, used = os.wait4(test.pid, 0)
        test.returncode = ended = os.waitstatus_to_exitcode(status)
        if number == 0:
            self.takes, self.works = time.monotonic() - start, used.ru_utime + used.ru_stime
        return how or (f"ended with {ended}" if ended else None)

    def cover(self):
        """Runs it without a mutant. The result is whether it passes."""
        met = WORK / f"met-{os.getpid()}-{id(self)}"
        # Where no test catches a panic, the first one ends the program: a random life that failed is not shortened.
        passes = False
        for more in {"MUTANT_ENDS": "1"}, {}:
            self.more = more
            passes = passes or self.run(0, {"MUTANTS_MET": str(met)}) is None
            numbers = array.array("I", met.read_bytes()) if met.exists() else []
            self.met.update(numbers)
            if passes and (more or self.met):
                break
        met.unlink(missing_ok=True)
        return passes

    def catches_mutant(self, number, sometimes):
        self.runs += 1
        for again in range(3):
            if not (how := self.run(number)):
                break
            if again or how != "ended with 101":
                self.catches += 1
                return f"{self}" + (f" ({how})" if how != "ended with 101" else "")
            sometimes.append(str(self))
        return None


def threads(process):
    """The nanoseconds that the threads of a process have run, and their states."""
    ran, states = 0, ""
    try:
        for task in Path(f"/proc/{process}/task").iterdir():
            ran += int((task / "schedstat").read_text().split()[0])
            states += (task / "stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return None  # a thread has ended meanwhile
    return ran, states


def tests_of(programs, pool):
    """All tests, after a run without a mutant."""
    tests = []
    for program in programs.values():
        listed = subprocess.run([program, "--list", "--format", "terse"], cwd=TREE, stdout=subprocess.PIPE, text=True).stdout
        tests += [Test(program, line.removesuffix(": test")) for line in listed.splitlines() if line.endswith(": test")]
    passed = list(pool.map(Test.cover, tests))
    print(*(f"{test} fails without a mutant" for test, passes in zip(tests, passed) if not passes), sep="\n", flush=True)
    tests = [test for test, passes in zip(tests, passed) if passes and test.met]
    print(f"{len(tests)} tests meet a switch; they take {sum(t.takes for t in tests):.0f} s, {sum(t.works for t in tests):.0f} s of the "
          "processor; the longest:", *(f"{t.takes:.1f} s ({t.works:.1f}): {t}" for t in sorted(tests, key=lambda t: -t.takes)[:12]),
          sep="\n    ", flush=True)
    return tests


def main():
    arguments = sys.argv[1:]
    options = [a for a in arguments if a.startswith("--")]
    chosen = [a for a in arguments if a.startswith("src/")] or ["src/order", "src/machine", "src/key"]
    saved = WORK / "mutants.json"
    last = json.loads(saved.read_text()) if saved.exists() else {}
    if "--only" in options:
        number = int(arguments[arguments.index("--only") + 1])
        print(mutant := next(m for m in last["mutants"] if m.get("number") == number), flush=True)
        for program, name in mutant["tests"]:
            Test(program, name).run(number, output=None)
        sys.exit()
    files = [str(f.relative_to(ROOT)) for c in chosen for f in ([ROOT / c] if c.endswith(".rs") else sorted((ROOT / c).rglob("*.rs")))]
    files = [f for f in dict.fromkeys(files) if not any(part in f for part in LEFT_OUT)]
    again = {m["name"] for m in last["mutants"] if not m["caught"]} if "--again" in options else None
    old = {m["name"] for m in last["mutants"]} if "--new" in options else set()
    mutants = generate(files, lambda name: (again is None or name in again) and name not in old)
    named = [a for a in arguments if a.startswith("tests/")]
    programs = build(sorted(Path(test).stem for test in named or ([] if "--quick" in options else (ROOT / "tests").glob("*.rs"))))
    # In a random order, the same each time: a run that is ended early is a sample of the folder that it was at.
    wanted = random.Random(1).sample(mutants, len(mutants))
    if "--sample" in options:
        wanted = wanted[: int(arguments[arguments.index("--sample") + 1])]
    wanted.sort(key=lambda m: next(at for at, start in enumerate(chosen) if m["file"].startswith(start)))
    pool = ThreadPoolExecutor(int(os.environ.get("MUTANTS_JOBS", 2)))
    tests = tests_of(programs, pool)
    recent = {}

    def one(mutant):
        number, sometimes = mutant["number"], []
        left = {test for test in tests if number in test.met}
        mutant["tests"], caught = [(test.program, test.name) for test in left], None
        place = mutant["name"].split(":")[0]
        while left and not caught:
            test = recent.pop(place, None)
            test = test if test in left else max(left, key=Test.worth)
            left.remove(test)
            if caught := test.catches_mutant(number, sometimes):
                recent[place] = test
        mutant |= {"caught": caught, "sometimes": sometimes}

    # Those that were caught before, which do not run again.
    kept = [m | {"number": None} for m in last.get("mutants", []) if m["name"] in old or again is not None and m["caught"]]

    def save():
        ran = [m for m in mutants if "caught" in m]
        saved.write_text(json.dumps({"mutants": kept + ran}, ensure_ascii=False, indent=0))
        return ran

    for number, _ in enumerate(pool.map(one, wanted), 1):
        if number % 25 == 0:
            print(f"{number} of {len(wanted)} ran; {sum(not m['caught'] for m in save())} survive", flush=True)
    ran = save()
    print("| file | viable | run | survive |\n|---|---|---|---|")
    for file in files + [""]:
        these, run = ([m for m in kept + some if m["file"].startswith(file)] for some in (mutants, ran))
        print(f"| {file or 'all'} | {len(these)} | {len(run)} | {sum(not m['caught'] for m in run)} |")
    for m in ran:
        if not m["caught"]:
            how = f"sometimes {m['sometimes'][0]}" if m["sometimes"] else f"{len(m['tests'])} tests" if m["tests"] else "no test meets it"
            print(f"{m['number']}: line {m['line']} of {m['name']} ({how})")


if __name__ == "__main__":
    main()
